"""The run logs into the pipe of a log shipper, which hangs in its upload and reads no more: the pipe is full.
---
expect:
  kind: [pipe, subprocess, sleep]
  ranks: [0]
  says: ["(?i)pipe", "log_rollouts|emit|flush|write"]
  never: ["(?i)empty pipe", "(?i)full disk"]
"""

import logging
import subprocess
import sys

import _kit

SHIPPER = """
import sys, time
def upload(line):
    time.sleep(0 if "step" in line else 3600)
for line in sys.stdin:
    upload(line)
"""

shipper = subprocess.Popen([sys.executable, "-c", SHIPPER], stdin=subprocess.PIPE, text=True)
log = logging.getLogger("rollouts")
log.addHandler(logging.StreamHandler(shipper.stdin))
log.setLevel(logging.INFO)


def log_rollouts(count: int) -> None:
    for index in range(count):
        log.info("rollout %d: %s", index, "token " * 500)


for step in range(1, 4):
    print(f"step {step}", flush=True)
    log.info("step %d", step)
_kit.here()
log_rollouts(512)
