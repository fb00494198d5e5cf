"""A run that goes on, as the command line shows it: progress, metrics, staging.

Nothing here decides what a run proved.
"""
