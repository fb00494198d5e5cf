"""The head's agent: phases of an attempt, its nodes, its record, its end."""
