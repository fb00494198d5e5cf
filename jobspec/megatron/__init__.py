"""What is known about a Megatron run before it starts: its shape, its model, the rules, the memory.

Pure and offline: arithmetic over a `TrainShape` (what an adapter asks for) and an `Architecture` (what the
model's config.json says). No framework's own names are known here, and nothing runs a command; reading a
config.json is left to `jobspec.planning.repos`.
"""
