"""A client looks only at the headers of a checkpoint store's answers and neither reads nor releases them: both connections of its blocking urllib3 pool stay out, and the third request waits for one.
---
expect:
  kind: [queue, lock, network]
  says: ["(?i)newest_version|_get_conn|urlopen|pool"]
  never: ["(?i)computes", "(?i)sleeps", "(?i)refused"]
"""

import http.server
import multiprocessing

import _kit
import urllib3


class Store(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        manifest = b'{"shards": 4}' * 20
        self.send_response(200)
        self.send_header("X-Version", self.path.rsplit("-", 1)[1])
        self.send_header("Content-Length", str(len(manifest)))
        self.end_headers()
        self.wfile.write(manifest)

    def log_message(self, *_: object) -> None:
        pass


def newest_version(store: urllib3.HTTPConnectionPool, names: list[str]) -> int:
    answers = []
    for name in names:
        if len(answers) == 2:
            _kit.here()
        answers.append(store.request("GET", f"/checkpoints/{name}", preload_content=False))
    return max(int(answer.headers["X-Version"]) for answer in answers)


_kit.steps()
server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Store)
multiprocessing.get_context("fork").Process(target=server.serve_forever, daemon=True).start()
store = urllib3.HTTPConnectionPool("127.0.0.1", server.server_port, maxsize=2, block=True)
print("newest", newest_version(store, ["policy-100", "policy-200", "policy-300"]))
