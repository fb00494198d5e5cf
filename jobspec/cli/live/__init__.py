"""A run in progress, followed to its end and shown on a terminal.

Code that reads and prints the state of such a run belongs here; code that starts, ends or judges a run does
not.
"""
