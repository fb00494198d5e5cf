"""One module for each command: its arguments, one call, its output, its exit code.

Decisions are made below the command line.
"""
