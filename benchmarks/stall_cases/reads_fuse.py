"""Rank 2 reads a shard from a FUSE mount whose server has stopped to answer reads.
---
ranks: 3
expect:
  kind: [disk]
  ranks: [2]
  frame: read_shard
  says: [barrier, "(?i)fuse"]
  never: ["rank [01]( on [^ ]+)?( pid [0-9]+,?)? (sleeps|is stuck|has not come|is gone)"]
"""

import ctypes
import os
import struct
from pathlib import Path

import _kit

CLONE_NEWNS, MS_REC, MS_PRIVATE, NOSUID, NODEV = 0x20000, 0x4000, 0x40000, 2, 4
SIZE = 1 << 20
LOOKUP, GETATTR, OPEN, READ, INIT = 1, 3, 14, 15, 26  # include/uapi/linux/fuse.h


def attributes(node: int) -> bytes:
    mode = 0o100644 if node == 2 else 0o40755
    return struct.pack("<6Q10I", node, SIZE, SIZE // 512, 0, 0, 0, 0, 0, 0, mode, 1, 0, 0, 0, 4096, 0)


def answer(device: int) -> None:
    """A file system of one file, of which nothing can be read."""
    while True:
        request = os.read(device, 1 << 17)
        _, opcode, unique, node = struct.unpack_from("<IIQQ", request)
        if opcode == INIT:
            body = struct.pack("<IIIIHHIIHHI7I", 7, 31, 1 << 16, 0, 0, 0, 1 << 16, 1, 0, 0, *[0] * 8)
        elif opcode == LOOKUP:
            body = struct.pack("<QQQQII", 2, 1, 3600, 3600, 0, 0) + attributes(2)
        elif opcode == GETATTR:
            body = struct.pack("<QII", 3600, 0, 0) + attributes(node)
        elif opcode == OPEN:
            body = struct.pack("<QII", 1, 0, 0)
        elif opcode == READ:
            continue
        else:
            os.write(device, struct.pack("<IiQ", 16, -38, unique))  # ENOSYS
            continue
        os.write(device, struct.pack("<IiQ", 16 + len(body), 0, unique) + body)


def mounted(folder: Path) -> Path:
    """The file in a mount of its own, which goes with this process."""
    libc = ctypes.CDLL(None, use_errno=True)
    assert libc.unshare(CLONE_NEWNS) == 0, os.strerror(ctypes.get_errno())
    assert libc.mount(b"none", b"/", None, MS_REC | MS_PRIVATE, None) == 0
    device = os.open("/dev/fuse", os.O_RDWR)
    if os.fork() == 0:
        answer(device)
    options = f"fd={device},rootmode=40000,user_id=0,group_id=0".encode()
    failed = libc.mount(b"shards", os.fsencode(folder), b"fuse.shards", NOSUID | NODEV, options)
    assert failed == 0, os.strerror(ctypes.get_errno())
    os.close(device)
    return folder / "00002.bin"


def read_shard(path: Path) -> bytes:
    with path.open("rb") as file:
        _kit.here()
        return file.read()


if _kit.RANK == 2:
    folder = Path(os.environ["JOBSPEC_ATTEMPT_DIR"], "mount")
    folder.mkdir()
    shard = mounted(folder)
dist = _kit.gloo()
if _kit.RANK == 2:
    read_shard(shard)
dist.barrier()
