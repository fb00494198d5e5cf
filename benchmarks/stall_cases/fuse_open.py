"""Rank 1 opens a file on a FUSE mount whose server does not answer the open.
---
ranks: 3
expect:
  kind: [disk, other]
  ranks: [1]
  frame: open_index
  says: [barrier, "(?i)fuse|file system|open"]
  never: ["rank [02]( on [^ ]+)?( pid [0-9]+,?)? (sleeps|is stuck|has not come|is gone)", "FIFO"]
"""

import ctypes
import os
import struct
from pathlib import Path

import _kit

SIZE, LOOKUP, GETATTR, OPEN, INIT = 1 << 20, 1, 3, 14, 26


def attributes(node: int) -> bytes:
    mode = 0o100644 if node == 2 else 0o40755
    return struct.pack("<6Q10I", node, SIZE, SIZE // 512, 0, 0, 0, 0, 0, 0, mode, 1, 0, 0, 0, 4096, 0)


def answer(device: int) -> None:
    while True:
        _, opcode, unique, node = struct.unpack_from("<IIQQ", os.read(device, 1 << 17))
        if opcode == OPEN:
            continue
        body = b""
        if opcode == INIT:
            body = struct.pack("<IIIIHHIIHHI7I", 7, 31, 1 << 16, 0, 0, 0, 1 << 16, 1, 0, 0, *[0] * 8)
        elif opcode == LOOKUP:
            body = struct.pack("<QQQQII", 2, 1, 3600, 3600, 0, 0) + attributes(2)
        elif opcode == GETATTR:
            body = struct.pack("<QII", 3600, 0, 0) + attributes(node)
        os.write(device, struct.pack("<IiQ", 16 + len(body), 0 if body else -38, unique) + body)


def mounted(folder: Path) -> Path:
    libc = ctypes.CDLL(None, use_errno=True)
    assert libc.unshare(0x20000) == 0
    assert libc.mount(b"none", b"/", None, 0x44000, None) == 0
    device = os.open("/dev/fuse", os.O_RDWR)
    if os.fork() == 0:
        answer(device)
    options = f"fd={device},rootmode=40000,user_id=0,group_id=0".encode()
    assert libc.mount(b"index", os.fsencode(folder), b"fuse.index", 6, options) == 0
    os.close(device)
    return folder / "index.bin"


def open_index(path: Path) -> bytes:
    _kit.here()
    with open(path, "rb") as file:
        return file.read(8)


if _kit.RANK == 1:
    folder = Path(os.environ["JOBSPEC_ATTEMPT_DIR"], "mount")
    folder.mkdir()
    index = mounted(folder)
dist = _kit.gloo()
if _kit.RANK == 1:
    open_index(index)
dist.barrier()
