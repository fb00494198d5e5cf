"""Services in images of their own on a real Slurm: by bubblewrap, another root file system than the run's."""

from __future__ import annotations

import functools
import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.slurm import rootfs
from tests.slurm.lab import Lab, await_true
from tests.slurm.test_services import ASK, logs, nothing_is_left

pytestmark = pytest.mark.slurm

RUNTIME = "bubblewrap"
MARK = "/etc/image-of-judge"
SERVER = """\
import os, socket
from http.server import BaseHTTPRequestHandler, HTTPServer
class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        mark = open("/etc/image-of-judge").read().strip()
        told = f"{socket.gethostname()} in {mark} sees GPUs {os.environ['CUDA_VISIBLE_DEVICES']}"
        self.wfile.write(told.encode())
        if self.path == "/die":
            self.wfile.flush()
            print("the judge lost its engine", flush=True)
            os._exit(9)
HTTPServer((os.environ["JOBSPEC_SERVICE_JUDGE_HOST"], int(os.environ["PORT"])), Handler).serve_forever()
"""
DRIVER = ASK + f"print('driver is in the judge\\'s image:', os.path.exists({MARK!r}), flush=True)\n"
# `/die` and `/wait` go on until they are ended.
DRIVER = DRIVER.replace('300 if sys.argv[1] == "/die" else 0', '0 if sys.argv[1] == "/" else 300')


@pytest.fixture
def image(lab: Lab, need_runtime: Any) -> Path:
    need_runtime(RUNTIME)
    return image_of(lab, RUNTIME)


@functools.cache
def image_of(lab: Lab, runtime: str) -> Path:
    """The judge's image as the runtime has images: the training's with one file more. All tests share it."""
    folder = lab.shared / "scratch" / f"judge-{runtime}"
    folder.mkdir()
    root = folder / "image"
    subprocess.run(["cp", "-a", "--reflink=auto", lab.image(RUNTIME), root], check=True)
    (root / MARK.lstrip("/")).write_text("the judge's image\n")
    if runtime == "oci":  # a bundle brings its own mounts
        folders = [*lab.mounts, (Path("/tmp"), False), (Path("/sys"), False)]
        return rootfs.make_bundle(folder / "bundle", root, folders)
    if runtime == "pyxis":
        rootfs.squash(root, folder / "image.sqsh")
        return folder / "image.sqsh"
    return root


def spec(
    lab: Lab, folder: Path, name: str, image: Path, path: str, runtime: str = RUNTIME, **more: Any
) -> Path:
    for file, text in (("serve.py", SERVER), ("ask.py", DRIVER)):
        (folder / file).write_text(text)
    judge = {
        "name": "judge",
        "command": [str(lab.python), str(folder / "serve.py")],
        "nodes": 1,
        "ready": {"http": "/ready", "timeout": 60},
        "container": {**lab.container(runtime), "image": str(image)},
        **more.pop("service", {}),
    }
    command = [str(lab.python), str(folder / "ask.py"), path]
    return lab.command_spec(name, command, nodes=2, services=[judge], runtime=runtime, **more)


def run(lab: Lab, made: Path, *more: str) -> subprocess.CompletedProcess[str]:
    return lab.jobspec("run", made, *more, cluster=f"lab-{RUNTIME}")


@pytest.mark.usefixtures("counted_gpus")
def test_driver_asks_a_reward_server_of_another_image(lab: Lab, tmp_shared: Path, image: Path) -> None:
    made = spec(
        lab,
        tmp_shared,
        "own-image",
        image,
        "/",
        service={"gpus": 1},
        resources={"gpus_per_node": 2, "nodes": 2},
    )
    done = run(lab, made)
    assert done.returncode == 0, done.stdout + done.stderr
    said = logs(lab, "command-*.log")
    assert set(said) == {"n1", "n2"}
    for node, text in said.items():
        asked, driver, where = text.splitlines()
        assert asked.startswith(f"{node} asks 10.77.0.")
        assert asked.endswith(": n2 in the judge's image sees GPUs 1")
        assert (driver, where) == ("driver sees GPUs 0", "driver is in the judge's image: False")
    _, report = lab.report("last")
    line = report["deliverables"]["Service judge"]
    assert (report["result"], line["status"]) == ("Pass", "Pass")
    assert "ready on n2 after" in line["reason"]
    assert '"GET /ready HTTP/1.1" 200' in logs(lab, "service-judge.log")["n2"]
    nothing_is_left(lab, tmp_shared)


@pytest.mark.parametrize("runtime", ["charliecloud", "oci", "pyxis"])
def test_other_runtimes_start_the_reward_server_too(
    lab: Lab, need_runtime: Any, tmp_shared: Path, runtime: str
) -> None:
    need_runtime(runtime)
    image = image_of(lab, runtime)
    made = spec(lab, tmp_shared, f"own-image-{runtime}", image, "/", runtime=runtime)
    done = lab.jobspec("run", made, cluster=f"lab-{runtime}")
    assert done.returncode == 0, done.stdout + done.stderr
    for text in logs(lab, "command-*.log").values():
        asked, _, where = text.splitlines()
        assert asked.endswith(": n2 in the judge's image sees GPUs ")
        assert where == "driver is in the judge's image: False"
    nothing_is_left(lab, tmp_shared)


def test_death_in_another_image_is_the_job_s_cause(lab: Lab, tmp_shared: Path, image: Path) -> None:
    done = run(lab, spec(lab, tmp_shared, "own-image-dies", image, "/die"))
    assert done.returncode == 3, done.stdout + done.stderr
    _, report = lab.report("last")
    cause = report["first_cause"]
    assert (report["result"], cause["class"], cause["node"]) == ("Blocked", "service.ended", "n2")
    assert cause["text"] == "service `judge` exited with 9 while the run needed it"
    assert cause["why"].splitlines()[-1] == "the judge lost its engine"
    nothing_is_left(lab, tmp_shared)


def test_image_that_is_missing_on_the_nodes_blocks_the_run(lab: Lab, tmp_shared: Path, image: Path) -> None:
    made = spec(lab, tmp_shared, "no-image", tmp_shared / "no-image", "/")
    refused = run(lab, made)
    assert (refused.returncode, "container.image-absent" in refused.stderr) == (2, True)
    done = run(lab, made, "--allow", "container.image-absent")
    assert done.returncode == 3, done.stdout + done.stderr
    _, report = lab.report("last")
    cause = report["first_cause"]
    assert (report["result"], cause["class"]) == ("Blocked", "service.container")
    assert cause["text"] == "the container of service `judge` did not start: its step ended with 1"
    assert "no-image" in cause["why"]
    assert report["deliverables"]["Service judge"]["status"] != "Pass"
    nothing_is_left(lab, tmp_shared)


@pytest.mark.parametrize("how", ["cancel", "scancel"])
def test_cancelled_run_leaves_no_service(lab: Lab, tmp_shared: Path, image: Path, how: str) -> None:
    made = spec(lab, tmp_shared, f"own-image-{how}", image, "/wait")
    found = lab.submit(made, cluster=f"lab-{RUNTIME}")

    def asked() -> bool:
        return len(logs(lab, "command-*.log")) == 2 and all(logs(lab, "command-*.log").values())

    await_true(asked, "an answer of the judge", 120)
    if how == "cancel":
        assert lab.jobspec("cancel", "last").returncode == 0
    else:
        lab.cluster.run("ctl", ["scancel", str(found["job_id"])])
    lab.await_state("last", "CANCELLED")
    _, report = lab.report("last")
    assert report["reason"] == "somebody cancelled the job"
    results = json.loads(next(Path(found["run_dir"]).glob("attempts/1/results.json")).read_text())
    assert [(row["name"], row["node"], row["state"]) for row in results["services"]] == [
        ("judge", "n2", "stopped")
    ]
    nothing_is_left(lab, tmp_shared)


@pytest.mark.parametrize("runtime", [RUNTIME, "pyxis", "oci"])
def test_component_of_its_own_has_the_reward_server(
    lab: Lab, need_runtime: Any, tmp_shared: Path, runtime: str
) -> None:
    """On the second node of the second component: the step counts that one's nodes alone."""
    need_runtime(runtime)
    groups = [
        {"name": "trainer", "nodes": 1, "slurm": {"nodelist": "n4"}},
        {
            "name": "judges",
            "nodes": 2,
            "cpus_per_node": 3,
            "slurm": {"partition": "low", "nodelist": "n[1-2]"},
        },
    ]
    image = image_of(lab, runtime)
    made = spec(
        lab,
        tmp_shared,
        f"apart-{runtime}",
        image,
        "/",
        runtime=runtime,
        groups=groups,
        resources={"nodes": 3},
    )
    done = lab.jobspec("run", made, cluster=f"lab-{runtime}")
    assert done.returncode == 0, done.stdout + done.stderr
    said = logs(lab, "command-*.log")
    assert set(said) == {"n1", "n2", "n4"}
    for text in said.values():
        assert text.splitlines()[0].endswith(": n2 in the judge's image sees GPUs ")
    nothing_is_left(lab, tmp_shared)
