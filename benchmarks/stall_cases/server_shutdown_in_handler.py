"""Rank 1 tells rank 0's weight server that it may end; the handler calls shutdown(), which waits for the loop of the server that waits for the handler.
---
ranks: 3
expect:
  kind: [lock, join, network, rank-differs]
  ranks: [0]
  says: ["shutdown|do_POST|serve_weights"]
  never: ["(?i)sleeps", "(?i)computes", "(?i)refused", "[Aa]ll ranks[^;.]* same"]
"""

import http.client
import http.server
import threading

import _kit
import torch


class Weights(http.server.BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        if self.path == "/done":
            _kit.here()
            self.server.shutdown()
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()


def serve_weights(server: http.server.HTTPServer) -> None:
    server.serve_forever()


def tell(port: int, path: str) -> int:
    connection = http.client.HTTPConnection("127.0.0.1", port)
    connection.request("POST", path)
    return connection.getresponse().status


dist = _kit.gloo()
port = torch.zeros(1, dtype=torch.int64)
if _kit.RANK == 0:
    server = http.server.HTTPServer(("127.0.0.1", 0), Weights)
    thread = threading.Thread(target=serve_weights, args=(server,), name="weight-server")
    thread.start()
    port[0] = server.server_port
dist.broadcast(port, 0)
if _kit.RANK == 1:
    tell(int(port), "/fetched")
    tell(int(port), "/done")
if _kit.RANK == 0:
    thread.join()
dist.barrier()
