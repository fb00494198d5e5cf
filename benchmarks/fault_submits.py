"""The rows of `benchmarks/faults.py` about submissions: interrupted, killed, doubled, without a controller.

Each ends with the step that jobspec names. The run that it finds is then let go, and must be the only job.
"""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from benchmarks.fault_acts import finish, start_controller
from benchmarks.fault_rows import Row
from tests.slurm.lab import Lab, await_true

Submit = Callable[[Lab, Path], dict[str, Any]]


def submit_rows() -> Iterator[Row]:
    def row(fault: str, submit: Submit) -> Row:
        return Row(fault, "submission", finish, "COMPLETED", "^$", alone=True, submit=submit)

    yield row("submit interrupted in sbatch", in_sbatch("INT", "jobspec"))
    yield row("submit killed in sbatch", in_sbatch("KILL", "jobspec"))
    yield row("submit and sbatch killed", in_sbatch("KILL", "jobspec", "sbatch"))
    yield row("slurmctld down for 8 s", without_controller)
    yield row("submit RUN_DIR twice at once", twice_at_once)


def in_sbatch(signal: str, *programs: str) -> Submit:
    """The controller stands still while sbatch waits for its answer; then it goes on, and has the job."""

    def submit(lab: Lab, spec: Path) -> dict[str, Any]:
        lab.cluster.run("ctl", ["pkill", "-STOP", "-x", "slurmctld"])
        process = lab.popen("submit", spec, "--json")
        try:
            await_true(
                lambda: lab.cluster.run("ctl", ["pgrep", "-x", "sbatch"]).returncode == 0, "sbatch", 30
            )
            time.sleep(1)
            for name in programs:
                lab.cluster.run("ctl", ["pkill", f"-{signal}", "-x", name])
        finally:
            lab.cluster.run("ctl", ["pkill", "-CONT", "-x", "slurmctld"])
        process.communicate(timeout=60)
        assert process.returncode != 0, "it was not interrupted"
        return told(lab, spec)

    return submit


def told(lab: Lab, spec: Path) -> dict[str, Any]:
    """Submit the spec again: it is refused because of the first run, and names what settles it."""
    again = lab.jobspec("submit", spec)
    assert (again.returncode, "launch.unsettled" in again.stderr) == (2, True), again.stdout + again.stderr
    (run_dir,) = (lab.runs / spec.stem).iterdir()
    return settled(lab.jobspec("submit", run_dir, "--json"))


def settled(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    assert done.returncode == 0, done.stdout + done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def without_controller(lab: Lab, spec: Path) -> dict[str, Any]:
    lab.cluster.run("ctl", ["pkill", "-TERM", "-x", "slurmctld"])
    process = lab.popen("submit", spec, "--json")
    time.sleep(8)
    start_controller(lab)
    out, err = process.communicate(timeout=240)
    return settled(subprocess.CompletedProcess([], process.returncode, out, err))


def twice_at_once(lab: Lab, spec: Path) -> dict[str, Any]:
    folder = lab.runs / spec.stem / time.strftime("%Y%m%d-%H%M%S-000000")
    assert lab.jobspec("render", spec, "--out", folder).returncode == 0
    both = [lab.popen("submit", folder, "--json") for _ in range(2)]
    ends = [(process, *process.communicate(timeout=120)) for process in both]
    first, second = (
        settled(subprocess.CompletedProcess([], process.returncode, out, err)) for process, out, err in ends
    )
    assert first["job_id"] == second["job_id"], (first, second)
    return first
