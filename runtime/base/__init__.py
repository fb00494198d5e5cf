"""What every room of the runtime stands on: events, processes, network, signals.

Nothing here knows a phase of a run.
"""
