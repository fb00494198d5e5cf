"""Slurm: its commands, its answers, and runs started and watched by them."""
