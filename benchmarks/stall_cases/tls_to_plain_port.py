"""The client speaks TLS to a judge's plain port: the judge takes the first bytes of the handshake for a length of some 369 MB and reads on, the client waits for the answer to its hello.
---
expect:
  kind: [network]
  says: ["(?i)do_handshake|connect|wrap_socket|ask_judge|handshake"]
  never: ["(?i)computes", "(?i)sleeps", "(?i)refused", "(?i)is gone|killed", "(?i)half.open"]
"""

import http.client
import multiprocessing
import socket
import ssl
import struct

import _kit


def read_exact(connection: socket.socket, size: int) -> bytes:
    data = bytearray()
    while len(data) < size:
        piece = connection.recv(min(size - len(data), 1 << 20))
        if not piece:
            raise EOFError
        data += piece
    return bytes(data)


def judge(listener: socket.socket) -> None:
    while True:
        connection, _ = listener.accept()
        with connection:
            (size,) = struct.unpack(">I", read_exact(connection, 4))
            request = read_exact(connection, size)
            connection.sendall(struct.pack(">I", len(request)) + request)


def ask_judge(port: int, answer: str) -> str:
    context = ssl.create_default_context()
    connection = http.client.HTTPSConnection("127.0.0.1", port, context=context)
    _kit.here()
    connection.request("POST", "/judge", body=answer.encode())
    return connection.getresponse().read().decode()


_kit.steps()
listener = socket.create_server(("127.0.0.1", 0))
multiprocessing.get_context("fork").Process(target=judge, args=(listener,), name="judge", daemon=True).start()
print(ask_judge(listener.getsockname()[1], "42"))
