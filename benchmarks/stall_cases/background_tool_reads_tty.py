"""A tool is started in a process group of its own, to be killed as a whole, and asks at the terminal: as it is not in the foreground, the kernel stops it with SIGTTIN.
---
expect:
  kind: [stopped, subprocess, pipe, input, waits]
  says: ["run_tool|read_session"]
  never: ["(?i)sleeps", "(?i)computes", "network"]
"""

import os
import pty
import subprocess
import sys

import _kit

TOOL = """
with open("/dev/tty") as terminal:
    print("overwrite results.json? [y/n]", flush=True)
    answer = terminal.readline()
"""


def run_tool() -> int:
    """In the session: its own group, so that a timeout can kill all of it."""
    return subprocess.Popen([sys.executable, "-c", TOOL], process_group=0).wait()


def read_session(terminal: int) -> bytes:
    text = b""
    while True:
        try:
            text += os.read(terminal, 4096)
        except OSError:  # the session has ended
            return text
        if b"[y/n]" in text and not text.endswith(b"y\n"):
            os.write(terminal, b"y\n")
            text += b"y\n"


_kit.steps()
child, terminal = pty.fork()
if child == 0:
    os._exit(run_tool())
_kit.here()
print(read_session(terminal))
