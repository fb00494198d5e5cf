"""Which checkout is imported, and Megatron-Core's helpers built on the node."""
