"""YAML with positions: documents, nodes, scalars, construction and dump.

Nothing here knows a key of a spec.
"""
