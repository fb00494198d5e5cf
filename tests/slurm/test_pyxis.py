"""Containers by Pyxis and Enroot: the real ones where `build_pyxis.sh` has built them, else the stand-in."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.kits.programs_kit import needs
from tests.slurm import rootfs
from tests.slurm.lab import CACHE, Lab, await_true, profile_text
from tests.slurm.machine import pyxis

pytestmark = [pytest.mark.slurm]

ROOT = Path(__file__).parents[2]
WAIT = ["bash", "-c", "until [ -e $JOBSPEC_RUN_DIR/finish ]; do sleep 0.1; done"]


@pytest.fixture(autouse=True)
def clean(lab: Lab, need_runtime: Any) -> Iterator[None]:
    """A test leaves no container on a node, and finds none."""
    need_runtime("pyxis")
    yield
    for node in lab.cluster.nodes:
        lab.cluster.run(node, ["rm", "-rf", "/tmp/enroot-0/data"])


def containers(lab: Lab, node: str) -> list[str]:
    return lab.cluster.run(node, ["sh", "-c", "ls /tmp/enroot-0/data 2>/dev/null"]).stdout.split()


def submit(lab: Lab, name: str, argv: list[str], **more: Any) -> dict[str, Any]:
    spec = lab.command_spec(name, argv, **{"nodes": 2, "runtime": "pyxis", **more})
    return lab.submit(spec, cluster="lab-pyxis")


def log_of(run: dict[str, Any]) -> str:
    return (Path(run["run_dir"]) / f"job-{run['job_id']}.log").read_text()


def test_run_passes_in_containers_of_two_nodes_and_leaves_none(lab: Lab) -> None:
    argv = ["bash", "-c", "test ! -e /etc/slurm/slurm.conf && head -n 1 /etc/os-release && hostname"]
    run = submit(lab, "pyxis-pass", argv, artifacts={"collect": ["*.txt"]})
    assert lab.await_end(run["job_id"]) == ("COMPLETED", "0:0"), log_of(run)
    code, report = lab.report(run["run_id"])
    assert (code, report["result"]) == (0, "Pass")
    # Lines of the run's phases may come between.
    assert {'PRETTY_NAME="Debian GNU/Linux 12 (bookworm)"', "n1"} <= set(log_of(run).splitlines())
    assert [containers(lab, node) for node in ("n1", "n2")] == [[], []]


SERVE = """\
import signal, subprocess, sys
from pathlib import Path
from tests.kits.registry_kit import Registry
registry = Registry(Path(sys.argv[1]))
words = ["tar", "-C", sys.argv[2], "-c", "."]
layer = subprocess.run(words, capture_output=True, check=True).stdout
print(registry.host, registry.push_layer("lab/base", "1.0", layer), flush=True)
signal.pause()
"""


@needs("docker-registry")
def test_both_nodes_start_from_an_image_that_was_imported_once(lab: Lab, tmp_shared: Path) -> None:
    """By real Enroot, from a registry that only the login node reaches."""
    if pyxis() is None:
        pytest.skip("needs the real Enroot: tests/slurm/build_pyxis.sh builds it")
    image = lab.container("pyxis")
    root = rootfs.make_rootfs(CACHE)
    rootfs.make_mount_points(root, [path for path, _ in lab.mounts])
    words = [str(lab.python), "-c", SERVE, str(tmp_shared / "registry"), str(root)]
    serving = lab.cluster.popen("ctl", words, cwd=ROOT)
    try:
        assert serving.stdout is not None
        host, digest = serving.stdout.readline().split()
        text = profile_text(lab.cluster, "lab-cached", "pyxis")
        cache = tmp_shared / "images"
        text = text.replace("runtime: pyxis", f"runtime: pyxis, image_cache: {cache}, ask_registry: false")
        (lab.clusters / "lab-cached.yaml").write_text(text)
        argv = ["bash", "-c", "head -n 1 /etc/os-release && hostname"]
        spec = lab.command_spec("cached", argv, nodes=2, container={**image, "image": f"{host}#lab/base:1.0"})
        done = lab.jobspec("stage", spec, "--images", "--json", cluster="lab-cached")
        assert done.returncode == 0, done.stdout + done.stderr
        staged = json.loads(done.stdout)
        assert (staged["digest"], Path(staged["file"]).parent) == (digest, cache)
    finally:
        os.killpg(serving.pid, signal.SIGKILL)
        serving.communicate()
    run = lab.submit(spec, cluster="lab-cached")
    assert lab.await_end(run["job_id"]) == ("COMPLETED", "0:0"), log_of(run)
    code, report = lab.report(run["run_id"])
    assert (code, report["result"]) == (0, "Pass")
    assert 'PRETTY_NAME="Debian GNU/Linux 12 (bookworm)"' in log_of(run)
    assert (
        json.loads((Path(run["run_dir"]) / "plan.json").read_text())["container"]["image"] == staged["file"]
    )


def test_image_that_one_node_lacks_names_node_and_file(lab: Lab) -> None:
    for node in ("ctl", "n1"):
        lab.cluster.run(node, ["cp", lab.image("pyxis"), "/tmp/here.sqsh"])
    container = {**lab.container("pyxis"), "image": "/tmp/here.sqsh"}
    run = submit(lab, "pyxis-lacks", ["true"], container=container)
    assert lab.await_end(run["job_id"])[0] == "FAILED"
    code, report = lab.report(run["run_id"])
    assert (code, report["result"]) == (3, "Blocked")
    cause = report["first_cause"]
    assert cause["signature"] == "container.image-file", cause
    assert cause["node"] == "n2"
    assert "/tmp/here.sqsh" in cause["text"]
    for node in ("ctl", "n1"):
        lab.cluster.run(node, ["rm", "/tmp/here.sqsh"])


def test_requeued_job_takes_no_half_unpacked_container_of_its_own(lab: Lab) -> None:
    """NVIDIA/pyxis#161."""
    run = submit(lab, "pyxis-again", WAIT, launch={"requeue": {"max_attempts": 2}})
    name = f"pyxis_jobspec-{run['run_id']}"
    await_true(lambda: f"{name}_1" in containers(lab, "n2"), "the unpacking", 60)
    lab.slurm("scontrol", "requeue", run["job_id"])
    await_true(lambda: f"{name}_2" in containers(lab, "n2"), "the next attempt's own", 120)
    assert f"{name}_1" not in containers(lab, "n2")
    (Path(run["run_dir"]) / "finish").touch()
    assert lab.await_end(run["job_id"]) == ("COMPLETED", "0:0"), log_of(run)
    assert lab.report(run["run_id"])[0] == 0


def test_next_job_removes_what_a_killed_one_left(lab: Lab) -> None:
    """And nothing that is in use, or that jobspec has not made."""
    lab.cluster.run("n1", ["mkdir", "-p", "-m", "700", "/tmp/enroot-0/data/pyxis_of-somebody"])
    killed = submit(lab, "pyxis-killed", WAIT, nodes=1)
    lab.await_phase(killed["run_dir"], "driver")
    lab.slurm("scancel", "--signal=KILL", "--full", killed["job_id"])
    lab.await_end(killed["job_id"])
    name = f"pyxis_jobspec-{killed['run_id']}_1"
    assert name in containers(lab, "n1")
    shared = {"nodes": 1, "resources": {"exclusive": False}}
    beside = submit(lab, "pyxis-beside", WAIT, **shared)
    lab.await_phase(beside["run_dir"], "driver")
    assert name not in containers(lab, "n1")
    last = submit(lab, "pyxis-last", ["true"], **shared)
    assert lab.await_end(last["job_id"]) == ("COMPLETED", "0:0")
    assert containers(lab, "n1") == [f"pyxis_jobspec-{beside['run_id']}_1", "pyxis_of-somebody"]
    (Path(beside["run_dir"]) / "finish").touch()
    assert lab.await_end(beside["job_id"]) == ("COMPLETED", "0:0")


def test_check_starts_a_container_on_each_node(lab: Lab) -> None:
    image = lab.image("pyxis")
    done = lab.jobspec("cluster", "check", "lab-pyxis", "--nodes", 2, "--image", image, "--json")
    found = json.loads(done.stdout)
    assert [node["started"]["python"] for node in found["nodes"]] == ["3.11.2", "3.11.2"], found
    assert [containers(lab, node) for node in ("n1", "n2")] == [[], []]
    done = lab.jobspec("cluster", "check", "lab-pyxis", "--image", "/no/such.sqsh")
    assert done.returncode == 2
    assert "[ERROR] No such file or directory: /no/such.sqsh" in done.stdout + done.stderr
