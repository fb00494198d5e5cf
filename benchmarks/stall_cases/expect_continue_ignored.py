"""A client announces a large batch with `Expect: 100-continue` and waits for the word; the reward server speaks HTTP/1.0, never sends it and waits for the body.
---
expect:
  kind: [network, several]
  says: ["post_batch|do_POST"]
  never: ["(?i)sleeps", "(?i)computes", "(?i)refused", "(?i)is gone"]
"""

import http.server
import json
import multiprocessing
import socket

import _kit


class Rewards(http.server.BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        rows = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        body = json.dumps([len(row) for row in rows]).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def serve(server: http.server.ThreadingHTTPServer) -> None:
    server.serve_forever()


def post_batch(port: int, rows: list[str]) -> list[int]:
    body = json.dumps(rows).encode()
    head = f"POST /score HTTP/1.1\r\nHost: rewards\r\nContent-Length: {len(body)}\r\n"
    with socket.create_connection(("127.0.0.1", port)) as connection, connection.makefile("rb") as answer:
        if len(body) > 1024:  # as curl does
            connection.sendall((head + "Expect: 100-continue\r\n\r\n").encode())
            if b" 100 " not in answer.readline():
                raise ConnectionError("the server does not want the batch")
            answer.readline()
            connection.sendall(body)
        else:
            connection.sendall((head + "\r\n").encode() + body)
        return [] if b" 200 " not in answer.readline() else [len(row) for row in rows]


server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Rewards)
multiprocessing.get_context("fork").Process(target=serve, args=(server,), name="rewards", daemon=True).start()
port = server.server_address[1]
server.socket.close()
for step in range(3):
    print(f"step {step + 1}: {post_batch(port, ['yes', 'no'])}", flush=True)
_kit.steps()
_kit.here()
post_batch(port, ["a long answer " * 20] * 16)
