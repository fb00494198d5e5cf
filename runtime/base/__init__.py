"""What the other parts of the runtime stand on, and what report and `status` share with it.

It imports the standard library, `jobspec.plan` and `jobspec.finding` alone: nothing of the runtime above it.
What knows of agents, phases or frameworks does not belong here.
"""
