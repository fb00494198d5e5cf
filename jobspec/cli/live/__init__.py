"""A run that goes on: followed to its end, and shown on a terminal meanwhile.

What reads and prints the state of such a run belongs here; what starts, ends or judges one does not.
"""
