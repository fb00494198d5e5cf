"""The tracker's service is started with a clean environment, so it writes its port into /tmp and waits for a client there; the client polls for that file in the job's own TMPDIR.
---
expect:
  kind: [sleep, waits, network, other, several]
  says: ["wait_for_port|start_service"]
  never: ["(?i)(^|[^a-z])lock([^a-z]|$)", "(?i)computes", "(?i)queue", "(?i)zombie|has ended|is gone"]
"""

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import _kit

SERVICE = """
import os, socket, tempfile
listener = socket.create_server(("127.0.0.1", 0))
name = os.path.join(tempfile.gettempdir(), f"tracker-{os.getppid()}.port")
with open(name, "w") as file:
    file.write(str(listener.getsockname()[1]))
while True:
    connection, _ = listener.accept()
    connection.sendall(b"ready")
"""


class Tracker:
    def __init__(self) -> None:
        self.port_file = Path(tempfile.gettempdir(), f"tracker-{os.getpid()}.port")
        self.service = self.start_service()
        self.port = self.wait_for_port()

    def start_service(self) -> subprocess.Popen:
        clean = {name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ}
        return subprocess.Popen([sys.executable, "-c", SERVICE], env=clean)

    def wait_for_port(self) -> int:
        while True:
            if self.port_file.exists():
                return int(self.port_file.read_text())
            if self.service.poll() is not None:
                raise RuntimeError("tracker: no service")
            time.sleep(0.2)


os.environ["TMPDIR"] = tempfile.mkdtemp(prefix="job-")
tempfile.tempdir = None
_kit.steps()
_kit.here()
tracker = Tracker()
