"""Speech engines, and the worker processes that they run in."""
