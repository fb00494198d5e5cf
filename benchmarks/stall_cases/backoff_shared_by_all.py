"""The back-off of rank 2's judge doubles with every failure of any request and has no cap: sixteen at once get a 429, and most of them sleep for hours; the others are at the barrier.
---
ranks: 3
expect:
  kind: [sleep, future, waits, rank-differs, collective-absent]
  ranks: [2]
  says: ["ask_judge", "barrier"]
  never: ["rank [01]( on [^ ]+)?( pid [0-9]+,?)? (sleeps|has not come|does not come|is gone)", "(?i)refused", "rank 2( on [^ ]+)?( pid [0-9]+,?)? is gone", "(?i)deadlock"]
"""

import concurrent.futures
import http.client
import http.server
import multiprocessing
import threading
import time

import _kit


class Judge(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(429)
        self.end_headers()

    def log_message(self, *_):
        pass


class Backoff:
    def __init__(self) -> None:
        self.failures, self.lock = 0, threading.Lock()

    def failed(self) -> float:
        with self.lock:
            self.failures += 1
            if self.failures == 16:
                _kit.here()
            return 2.0**self.failures


def ask_judge(port: int, backoff: Backoff, prompt: int) -> int:
    while True:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
        connection.request("GET", f"/score?prompt={prompt}")
        status = connection.getresponse().status
        connection.close()
        if status == 200:
            return prompt
        time.sleep(backoff.failed())


def serve(sender) -> None:
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Judge)
    sender.send(server.server_port)
    server.serve_forever()


dist = _kit.gloo()
if _kit.RANK == 2:
    receiver, sender = multiprocessing.Pipe()
    multiprocessing.get_context("fork").Process(target=serve, args=(sender,), daemon=True).start()
    port, backoff = receiver.recv(), Backoff()
    with concurrent.futures.ThreadPoolExecutor(16, thread_name_prefix="judge") as pool:
        scores = list(pool.map(lambda prompt: ask_judge(port, backoff, prompt), range(16)))
dist.barrier()
