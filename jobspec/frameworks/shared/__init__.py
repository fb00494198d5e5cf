"""What several adapters need: dotted keys, NeMo recipes, schedules, deliverables.

What one framework alone needs stands in its adapter.
"""
