"""A tool runs `more` on a long text at a pty, and the runner reads until the prompt: the pager waits for a key.
---
expect: {kind: [input, pipe, waits, other], frame: read_until, says: ["more|read_until"], never: ["computes"]}
"""

import os
import pty

import _kit


def read_until(fd: int, mark: bytes) -> bytes:
    text = b""
    while mark not in text:
        text += os.read(fd, 4096)
    return text


_kit.steps()
pid, fd = pty.fork()
if pid == 0:
    os.environ["TERM"] = "vt100"
    os.execvp("bash", ["bash", "-c", "seq 1 500 | more; echo DONE"])
_kit.here()
read_until(fd, b"DONE")
