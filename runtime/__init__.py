"""What runs inside the allocation: standard library, Python 3.9; it travels as `runtime.pyz`."""
