"""Runs that stand still: signs of work and patience, dumps of processes, and what dumps say together."""
