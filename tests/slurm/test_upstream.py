"""Mode `upstream` on the test cluster: a stand-in for ray.sub starts a real Ray, the agents do the rest."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.slurm.lab import Lab, profile_text

pytestmark = [pytest.mark.slurm]

STAND_IN = Path(__file__).with_name("stand_in_ray.sub")
IMAGE = "registry.example.com#nvidia/stand-in:1"  # the stand-in starts no container
DRIVER = """\
import os, ray
print("staged:", open(os.environ["JOBSPEC_DATA_WORDS"] + "/a.txt").read())
print("slurm variables:", [name for name in os.environ if name.startswith("SLURM_")])
ray.init(address="auto", log_to_driver=False, logging_level="ERROR")
print("nodes:", sorted(node["NodeManagerHostname"] for node in ray.nodes() if node["Alive"]))
"""


@pytest.fixture
def checkout(lab: Lab, tmp_shared: Path) -> Path:
    """A git checkout with ray.sub in its root and a package that the import proof can ask for."""
    (lab.clusters / "lab-upstream.yaml").write_text(profile_text(lab.cluster, "lab-upstream", "pyxis"))
    root = tmp_shared / "RL"
    (root / "stand_in_rl").mkdir(parents=True)
    shutil.copy(STAND_IN, root / "ray.sub")
    (root / "stand_in_rl/__init__.py").write_text("")
    (root / "driver.py").write_text(DRIVER)
    (tmp_shared / "words").mkdir()
    (tmp_shared / "words/a.txt").write_text("all of it")
    who = ["-c", "user.name=ann", "-c", "user.email=ann@example.org"]
    for step in (["init", "-q"], ["add", "."], [*who, "commit", "-qm", "a checkout"]):
        subprocess.run(["git", "-C", str(root), *step], check=True)
    return root


def submit(lab: Lab, checkout: Path, name: str, nodes: int, command: list[str], python: str = "") -> Any:
    ray = lab.python.with_name("ray")
    spec = lab.command_spec(
        name,
        command,
        nodes=nodes,
        mode="upstream",
        repos=[
            {"name": "rl", "path": str(checkout), "pythonpath": ["."], "prove": {"import": "stand_in_rl"}}
        ],
        data=[{"name": "words", "source": str(checkout.parent / "words"), "stage": "node_local"}],
        container={
            "image": IMAGE,
            "python": python or str(lab.python),
            "env": {"RAY_PROGRAM": str(ray), "HOSTILE": "$(touch /tmp/x) 'q' \"d\"\n%j"},
        },
    )
    return lab.submit(spec, cluster="lab-upstream")


def test_a_framework_script_of_two_nodes_passes_with_the_whole_proof(lab: Lab, checkout: Path) -> None:
    made = submit(lab, checkout, "up-pass", 2, [str(lab.python), str(checkout / "driver.py")])
    assert lab.await_end(made["job_id"], timeout=240) == ("COMPLETED", "0:0")
    code, report = lab.report(made["run_id"])
    assert (code, report["result"]) == (0, "Pass")
    results = lab.results(made["run_dir"])
    hosts = {node["name"] for node in results["nodes"]}
    assert len(hosts) == 2
    assert set(results["imports"]["stand_in_rl"]) == hosts
    done = {phase["phase"]: phase["outcome"] for phase in results["phases"]}
    assert {done[name] for name in ("preflight", "stage", "imports", "ray", "driver", "collect")} == {"ok"}
    head = results["nodes"][0]["name"]
    text = (Path(made["run_dir"]) / f"attempts/1/logs/{head}/command.log").read_text()
    assert f"staged: all of it\nslurm variables: []\nnodes: {sorted(hosts)}\n" in text
    (logs,) = Path(made["run_dir"]).glob(f"attempts/1/logs/{made['job_id']}-logs")
    assert {"ray-head.log", "ray-worker-0.log", "ray-driver.log"} <= {path.name for path in logs.iterdir()}


def test_a_node_whose_setup_fails_blocks_the_run_by_name(lab: Lab, checkout: Path) -> None:
    """The script ignores it: Ray comes up on both nodes, and only the head's agent can say no."""
    python = checkout.parent / "python"
    python.write_text(f'#!/bin/bash\n[[ $(uname -n) != n2 ]] || {{ echo "no such interpreter"; exit 9; }}\n'
                      f'exec {lab.python} "$@"\n')  # fmt: skip
    python.chmod(0o755)
    made = submit(lab, checkout, "up-setup", 2, ["true"], str(python))
    assert lab.await_end(made["job_id"], timeout=240) == ("FAILED", "3:0")
    code, report = lab.report(made["run_id"])
    assert (code, report["result"]) == (3, "Blocked")
    cause = report["first_cause"]
    assert (cause["class"], cause["node"]) == ("upstream.setup", "n2")
    assert "status 9" in cause["text"] and "no such interpreter" in cause["why"]


def test_the_exit_code_of_the_command_is_the_jobs(lab: Lab, checkout: Path) -> None:
    made = submit(lab, checkout, "up-seven", 1, ["bash", "-c", "echo last words; exit 7"])
    assert lab.await_end(made["job_id"], timeout=240) == ("FAILED", "7:0")
    code, report = lab.report(made["run_id"])
    assert (code, report["result"]) == (1, "Fail")
    assert "exited with 7" in report["first_cause"]["text"]
    assert [row["exit_code"] for row in lab.results(made["run_dir"])["commands"]] == [7]
