"""Hypothesis here has no time limit for an example: a busy machine is not a broken law."""

from hypothesis import settings

settings.register_profile("spec", deadline=None)
settings.load_profile("spec")
