"""The agent of each node: preflight, commands, collection, what it measures."""
