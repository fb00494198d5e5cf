"""Services on a real Slurm: an HTTP server on another node, GPUs apart, a death that the verdict names."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.slurm.lab import Lab

pytestmark = pytest.mark.slurm

SERVER = """\
import os, socket
from http.server import BaseHTTPRequestHandler, HTTPServer
class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(f"{socket.gethostname()} sees GPUs {os.environ['CUDA_VISIBLE_DEVICES']}".encode())
        if self.path == "/die":
            self.wfile.flush()
            print("the judge lost its engine", flush=True)
            os._exit(9)
HTTPServer((os.environ["JOBSPEC_SERVICE_JUDGE_HOST"], int(os.environ["PORT"])), Handler).serve_forever()
"""
ASK = """\
import os, socket, sys, time, urllib.request
text = urllib.request.urlopen(os.environ["JOBSPEC_SERVICE_JUDGE_URL"] + sys.argv[1]).read().decode()
print(socket.gethostname(), "asks", os.environ["JOBSPEC_SERVICE_JUDGE_HOST"] + ":", text, flush=True)
print("driver sees GPUs", os.environ.get("CUDA_VISIBLE_DEVICES"), flush=True)
time.sleep(300 if sys.argv[1] == "/die" else 0)
"""


def spec(lab: Lab, folder: Path, name: str, path: str, **more: Any) -> Path:
    for file, text in (("serve.py", SERVER), ("ask.py", ASK)):
        (folder / file).write_text(text)
    judge = {
        "name": "judge",
        "command": [str(lab.python), str(folder / "serve.py")],
        "nodes": 1,
        "ready": {"http": "/ready", "timeout": 60},
        **more.pop("service", {}),
    }
    command = [str(lab.python), str(folder / "ask.py"), path]
    return lab.command_spec(name, command, nodes=2, services=[judge], **more)


def logs(lab: Lab, name: str) -> dict[str, str]:
    """What the files of that name say, by node."""
    run_dir = Path(lab.status("last")["run_dir"])
    return {path.parent.name: path.read_text() for path in run_dir.glob(f"attempts/1/logs/*/{name}")}


def nothing_is_left(lab: Lab, folder: Path) -> None:
    for node in ("n1", "n2"):
        running = lab.cluster.run(node, ["ps", "-eo", "args"]).stdout
        assert "slurmd" in running and str(folder) not in running


@pytest.mark.usefixtures("counted_gpus")
def test_driver_of_two_nodes_asks_a_service_on_the_last(lab: Lab, tmp_shared: Path) -> None:
    made = spec(
        lab, tmp_shared, "served", "/", service={"gpus": 1}, resources={"gpus_per_node": 2, "nodes": 2}
    )
    done = lab.jobspec("run", made)
    assert done.returncode == 0, done.stdout + done.stderr
    said = logs(lab, "command-*.log")
    assert set(said) == {"n1", "n2"}
    for node, text in said.items():
        asked, driver = text.splitlines()
        assert asked.startswith(f"{node} asks 10.77.0.") and asked.endswith(": n2 sees GPUs 1")
        assert driver == "driver sees GPUs 0"
    _, report = lab.report("last")
    line = report["deliverables"]["Service judge"]
    assert (report["result"], line["status"]) == ("Pass", "Pass")
    assert "ready on n2 after" in line["reason"]
    assert '"GET /ready HTTP/1.1" 200' in logs(lab, "service-judge.log")["n2"]
    nothing_is_left(lab, tmp_shared)


REWARDS = """\
import os, ray, urllib.request
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy as On
ray.init()
@ray.remote(num_cpus=0)
def reward():
    return urllib.request.urlopen(os.environ["JOBSPEC_SERVICE_JUDGE_URL"]).read().decode().split()[0]
nodes = [node["NodeID"] for node in ray.nodes() if node["Alive"]]
tasks = [reward.options(scheduling_strategy=On(node, soft=False)).remote() for node in nodes]
print("ANSWERS", sorted(ray.get(tasks)))
"""


@pytest.mark.ray
@pytest.mark.slow
def test_workers_of_ray_in_containers_ask_their_own_node(lab: Lab, need_runtime, tmp_shared: Path) -> None:  # type: ignore[no-untyped-def]
    need_runtime("bubblewrap")
    (tmp_shared / "serve.py").write_text(SERVER)
    (tmp_shared / "train.py").write_text(REWARDS)
    judge = {"name": "judge", "command": [str(lab.python), str(tmp_shared / "serve.py")], "on": "all"}
    made = lab.command_spec(
        "ray-served",
        [str(lab.python), str(tmp_shared / "train.py")],
        nodes=2,
        mode="ray",
        runtime="bubblewrap",
        services=[judge],
    )
    done = lab.jobspec("run", made, cluster="lab-bubblewrap")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "ANSWERS ['n1', 'n2']" in lab.jobspec("logs", "last").stdout
    nothing_is_left(lab, tmp_shared)


def test_death_of_a_service_is_the_job_s_cause(lab: Lab, tmp_shared: Path) -> None:
    done = lab.jobspec("run", spec(lab, tmp_shared, "unserved", "/die"))
    assert done.returncode == 3, done.stdout + done.stderr
    code, report = lab.report("last")
    cause = report["first_cause"]
    assert (code, report["result"]) == (3, "Blocked")
    assert (cause["class"], cause["node"]) == ("service.ended", "n2")
    assert cause["text"] == "service `judge` exited with 9 while the run needed it"
    assert cause["why"].splitlines()[-1] == "the judge lost its engine"
    nothing_is_left(lab, tmp_shared)
