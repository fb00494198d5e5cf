"""A stand-in for `tools/check_r3_trace.py`: says what `FAKE_NEMO_RL_FAULT` wants."""

import os
import sys

print(f"Trace dir: {sys.argv[1]}")
if os.environ.get("FAKE_NEMO_RL_FAULT") == "wrong-routes":
    print("\nFAIL:\n  - producer and fetch differ")
    sys.exit(1)
print("\nPASS: producer routed_experts matched TQ fetches, and replay was set.")
