"""Rank 1 reads a message of the length in its header, which rank 0 packed in the other byte order; rank 0 waits for the receipt.
---
ranks: 2
expect: {kind: [network, waits], says: ["recv_exact|receipt"], never: ["computes", "is stopped", "rank-gone"]}
"""

import socket
import struct

import _kit

PORT = 29871


def recv_exact(connection: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        data += connection.recv(min(size - len(data), 1 << 16))
    return data


def receipt(connection: socket.socket) -> bytes:
    return connection.recv(2)


dist = _kit.gloo()
if _kit.RANK == 0:
    server = socket.create_server(("127.0.0.1", PORT))
dist.barrier()
if _kit.RANK == 0:
    connection, _ = server.accept()
    connection.sendall(struct.pack("<I", 1024) + bytes(1024))
    _kit.here()
    receipt(connection)
else:
    connection = socket.create_connection(("127.0.0.1", PORT))
    (size,) = struct.unpack(">I", recv_exact(connection, 4))
    recv_exact(connection, size)
    connection.sendall(b"ok")
dist.barrier()
