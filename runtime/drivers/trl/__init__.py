"""GRPO with TRL, as jobspec's smallest framework runs it."""
