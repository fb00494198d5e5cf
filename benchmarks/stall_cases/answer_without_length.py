"""A reward server speaks HTTP/1.1 and keeps its connections, but sends its answer without a length: the client reads on to the end of the connection, and the server waits on it for the next request.
---
expect:
  kind: [network]
  says: ["post_answers|score"]
  never: ["(?i)sleeps", "(?i)computes", "(?i)refused", "SIGSTOP", "(?i)is gone|(it|server|process|rollout|sender) died", "(?i)never (reads|accepts)"]
"""

import http.client
import http.server
import json
import multiprocessing

import _kit


class RewardHandler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self.reply(b"ok", length=True)

    def do_POST(self) -> None:
        answers = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.reply(json.dumps([float("42" in answer) for answer in answers]).encode())

    def reply(self, body: bytes, length: bool = False) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        if length:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args: object) -> None:
        pass


def post_answers(connection: http.client.HTTPConnection, answers: list[str]) -> list[float]:
    connection.request("POST", "/score", body=json.dumps(answers))
    response = connection.getresponse()
    _kit.here()
    return json.loads(response.read())


server = http.server.HTTPServer(("127.0.0.1", 0), RewardHandler)
multiprocessing.get_context("fork").Process(
    target=server.serve_forever, name="reward-server", daemon=True
).start()
port = server.server_port
server.socket.close()
connection = http.client.HTTPConnection("127.0.0.1", port)
connection.request("GET", "/health")
print(connection.getresponse().read(), flush=True)
_kit.steps()
print(post_answers(connection, ["it is 42", "I do not know"]))
