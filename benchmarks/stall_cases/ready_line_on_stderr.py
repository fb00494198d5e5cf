"""The launcher reads its engine's stdout until the line that it is ready; since the engine logs by the logging module that line goes to stderr, a file: the engine waits for requests, the launcher for the line.
---
expect:
  kind: [pipe, subprocess, network, waits]
  says: ["wait_until_ready"]
  never: ["(?i)sleeps", "(?i)computes", "(?i)(engine|child|program)[^;.]* (is gone|has ended|has died)", "(?i)waits? (for|at|in) [^;.]*lock", "(?i)pipe is full"]
"""

import os
import subprocess
import sys

import _kit

ENGINE = """
import logging, socket
logging.basicConfig(level=logging.INFO)

def load():
    print("loading the weights", flush=True)

def serve_requests(listener):
    logging.info("engine is ready on port %d", listener.getsockname()[1])
    while True:
        request, _ = listener.accept()
        request.sendall(request.recv(4096))
        request.close()

load()
serve_requests(socket.create_server(("127.0.0.1", 0)))
"""


def wait_until_ready(engine: subprocess.Popen) -> int:
    for line in engine.stdout:
        print("engine:", line, end="", flush=True)
        if "ready on port" in line:
            return int(line.split()[-1])
        _kit.here()
    raise RuntimeError(f"the engine has ended with {engine.wait()}")


_kit.steps()
with open(os.path.join(os.environ["JOBSPEC_ATTEMPT_DIR"], "engine.err"), "w") as errors:
    engine = subprocess.Popen(
        [sys.executable, "-c", ENGINE], stdout=subprocess.PIPE, stderr=errors, text=True
    )
print("port", wait_until_ready(engine))
