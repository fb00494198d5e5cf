"""At the end of an evaluation main closes its answer checker, a threading server that joins its handlers; one of them still reads the next line from main's own connection, which main would close only behind that.
---
expect:
  kind: [join, network]
  says: ["server_close|close_checker|handle|readline|join"]
  never: ["(?i)sleeps", "computes", "(?i)refused", "half-open"]
"""

import json
import socket
import socketserver
import threading

import _kit


class CheckHandler(socketserver.StreamRequestHandler):
    def handle(self) -> None:
        while line := self.rfile.readline():
            row = json.loads(line)
            self.wfile.write(json.dumps({"right": row["answer"] == row["truth"]}).encode() + b"\n")


class Checker(socketserver.ThreadingTCPServer):
    allow_reuse_address = True


class Client:
    def __init__(self, address: tuple[str, int]) -> None:
        self.connection = socket.create_connection(address)
        self.lines = self.connection.makefile("rwb")

    def check(self, answer: str, truth: str) -> bool:
        self.lines.write(json.dumps({"answer": answer, "truth": truth}).encode() + b"\n")
        self.lines.flush()
        return json.loads(self.lines.readline())["right"]

    def close(self) -> None:
        self.lines.close()
        self.connection.close()


def close_checker(checker: Checker) -> None:
    checker.shutdown()
    _kit.here()
    checker.server_close()


checker = Checker(("127.0.0.1", 0), CheckHandler)
threading.Thread(target=checker.serve_forever, name="checker", daemon=True).start()
client = Client(checker.server_address)
_kit.steps()
right = [client.check(str(number % 3), "1") for number in range(9)]
print("accuracy", sum(right) / len(right), flush=True)
close_checker(checker)
client.close()
