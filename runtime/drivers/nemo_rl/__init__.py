"""NeMo-RL's own scripts, run from its checkout."""
