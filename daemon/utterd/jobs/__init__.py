"""A job's life: decode, plan, lookup, speak, finish, store, announce, settle."""
