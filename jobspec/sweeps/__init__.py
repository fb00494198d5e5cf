"""Points of a sweep, the finished ones, and their table of results.

Nothing here speaks to a scheduler.
"""
