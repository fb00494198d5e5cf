"""A resolver asks a name server over UDP, without a timeout, and the server does not answer.
---
expect: {kind: [network], ranks: [0], frame: resolve, never: [SIGSTOP, SYN_SENT]}
"""

import socket
import struct
from concurrent.futures import ThreadPoolExecutor

import _kit

server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
server.bind(("127.0.0.1", 0))  # stands for a name server that drops what comes


def question(name: str) -> bytes:
    labels = b"".join(bytes([len(part)]) + part.encode() for part in name.split("."))
    return struct.pack(">6H", 7, 0x0100, 1, 0, 0, 0) + labels + b"\0" + struct.pack(">2H", 1, 1)


def resolve(name: str) -> bytes:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
        client.connect(server.getsockname())
        client.send(question(name))
        return client.recv(512)


def reward_address() -> bytes:
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(resolve, "rewards.cluster.local").result()


_kit.steps()
_kit.here()
reward_address()
