"""Looks whether everything that a daemon needs is there: one module a kind of check."""
