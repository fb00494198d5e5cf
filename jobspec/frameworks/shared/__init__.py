"""What several adapters do in the same way: rules, pieces of a plan, and deliverables from logged metrics.

Here belongs code that two or more adapters need, and the facts about NeMo-RL for both adapters that run it.
Code that one adapter needs stays in that adapter. Code that knows no adapter at all (paths, sizes, words) is
in `jobspec.units` and its neighbours.
"""
