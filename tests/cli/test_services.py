"""A run with a real reward server of its own, through the whole chain on this machine."""

from __future__ import annotations

import json
import sys
from typing import Any

from tests.kits.project_kit import Done, Project

SERVER = """
import json, os, sys
from http.server import BaseHTTPRequestHandler, HTTPServer
class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        self.answer({"ready": True})
    def do_POST(self):
        text = self.rfile.read(int(self.headers["Content-Length"])).decode()
        if text == "stop":
            print("RuntimeError: the judge's engine is dead", flush=True)
            os._exit(5)
        self.answer(text.count("1") / len(text))
    def answer(self, data):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(json.dumps(data).encode())
HTTPServer((os.environ["JOBSPEC_SERVICE_REWARD_HOST"], int(os.environ["PORT"])), Handler).serve_forever()
"""
TRAIN = """
import json, os, sys, time, urllib.request
url = os.environ["JOBSPEC_SERVICE_REWARD_URL"] + "/score"
with open(os.environ["JOBSPEC_METRICS_DIR"] + "/metrics.jsonl", "w") as metrics:
    for step, text in enumerate(sys.argv[1:], 1):
        try:
            reward = json.load(urllib.request.urlopen(url, text.encode()))
        except OSError:
            if "PATIENCE" not in os.environ:
                raise
            time.sleep(300)
        print(json.dumps({"step": step, "reward": reward}), file=metrics, flush=True)
"""


def run(project: Project, *texts: str, patience: bool = True, **service: Any) -> tuple[Done, dict[str, Any]]:
    project.write("serve.py", SERVER)
    project.write("train.py", TRAIN)
    ready = {"http": "/health", "timeout": 60}
    spec = {
        "version": 1,
        "name": "rewarded",
        "framework": "command",
        "launch": {"mode": "srun"},
        "container": {"env": {"PATIENCE": "1"} if patience else {}},
        "services": [{"name": "reward", "command": [sys.executable, "serve.py"], "ready": ready, **service}],
        "train": {"command": [sys.executable, "train.py", *texts]},
        "metrics": {"require": ["last(reward) >= 0.5"]},
    }
    project.write("rewarded.yaml", json.dumps(spec))
    done = project.cli("run", "rewarded.yaml")
    report: dict[str, Any] = json.loads((project.last().root / "report.json").read_text())
    return done, report


def test_rewards_come_from_the_server(project: Project) -> None:
    done, report = run(project, "0001", "0111")
    assert done.code == 0, done.text
    assert done.out.index("services") < done.out.index("driver")
    told = report["deliverables"]["Service reward"]
    assert told["status"] == "Pass"
    assert "GET /health answered 200" in told["reason"]
    assert report["deliverables"]["Required metrics"]["status"] == "Pass"
    log = project.cli("logs", "last", "--name", "service-reward").out
    assert "POST /score" in log
    assert "POST /score" not in project.cli("logs", "last").out  # the driver's alone


def test_server_that_dies_blocks_the_run(project: Project) -> None:
    done, report = run(project, "0001", "stop")
    cause = report["first_cause"]
    assert done.code == 3, done.text
    assert report["result"] == "Blocked"
    assert (cause["class"], cause["node"] != "") == ("service.ended", True)
    assert cause["text"] == "service `reward` exited with 5 while the run needed it"
    assert "the judge's engine is dead" in cause["why"]
    assert report["deliverables"]["Service reward"]["status"] == "Blocked"


def test_driver_that_fails_as_its_server_dies_is_no_fail(project: Project) -> None:
    """It ends a moment later, with a traceback of its own: that is an effect."""
    done, report = run(project, "0001", "stop", patience=False)
    assert done.code == 3, done.text
    assert report["first_cause"]["class"] == "service.ended"
    assert report["result"] == "Blocked"


def test_server_that_is_never_ready_blocks_the_run(project: Project) -> None:
    ready = {"http": "/health", "timeout": 1, "status": 204}
    done, report = run(project, "1", ready=ready)
    assert done.code == 3, done.text
    assert report["first_cause"]["class"] == "service.not-ready"
    assert "answers with status 200, not 204" in report["first_cause"]["text"]
    assert report["deliverables"]["Run"]["status"] == "Skipped"
