"""How commands reach the machine of the scheduler: here, or over SSH."""
