"""What several adapters do in the same way: rules, pieces of a plan, and deliverables from logged metrics.

Here belongs what two adapters or more need, and what is known of NeMo-RL by both adapters that run it. What
only one adapter needs stays there; what knows no adapter at all (paths, sizes, words) is in `jobspec.units`
and its neighbours.
"""
