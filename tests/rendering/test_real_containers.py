"""A whole run of the agent in a real container on this machine: exit code, environment, signals, attach."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

from jobspec.rendering.files import render
from jobspec.rendering.run_folder import write_run
from tests.kits.programs_kit import needs
from tests.kits.render_kit import RUN_ID, resolve_text

needs_bwrap = needs("bwrap", "bubblewrap")


def rendered(tmp_path: Path, script: str) -> Path:
    """A run that this machine's bubblewrap starts, with the host's own root file system as the image."""
    profile = (
        "version: 1\nname: here\nscheduler: local\ncontainer: {runtime: bubblewrap}\n"
        f"paths: {{runs: {tmp_path}/runs, hf_home: {tmp_path}/hf, node_local: {tmp_path}/n}}\n"
    )
    # The container has a /tmp of its own, and the interpreter may lie below this machine's.
    folders = ", ".join(f"{{source: {p}, target: {p}}}" for p in sorted({sys.prefix, sys.base_prefix}))
    spec = (
        "version: 1\nname: x\nframework: command\nlaunch: {mode: srun}\n"
        f'container: {{image: /, python: {sys.executable}, env: {{A: "it\'s $HOME"}}, mounts: [{folders}]}}\n'
        f"train: {{command: [{script!r}], shell: true}}\n"
    )
    resolved = resolve_text(spec, profile)
    assert resolved.plan is not None, [finding.text() for finding in resolved.findings]
    run_dir = tmp_path / "runs" / "x" / RUN_ID
    return write_run(render(resolved, RUN_ID, str(run_dir)), run_dir)


def command_log(run_dir: Path) -> str:
    return "".join(path.read_text() for path in run_dir.glob("attempts/1/logs/*/command*.log"))


@needs_bwrap
def test_environment_and_exit_code_cross_the_container(tmp_path: Path) -> None:
    run_dir = rendered(tmp_path, 'echo "A=$A"; exit 7')
    done = subprocess.run(
        ["bash", str(run_dir / "job.sbatch")], capture_output=True, timeout=120, check=False
    )
    assert done.returncode == 7, done.stderr.decode()
    assert "A=it's $HOME\n" in command_log(run_dir)


@needs_bwrap
def test_signals_and_attach_reach_the_agent_in_its_container(tmp_path: Path) -> None:
    run_dir = rendered(tmp_path, 'trap "echo ended; exit 9" TERM; echo up; while :; do sleep 0.1; done')
    job = subprocess.Popen(["bash", str(run_dir / "job.sbatch")], stderr=subprocess.PIPE)
    deadline = time.monotonic() + 60
    while "up" not in command_log(run_dir):
        assert job.poll() is None and time.monotonic() < deadline, "the command did not start"
        time.sleep(0.05)
    argv = ["bash", str(run_dir / "attach.sh"), "--", "bash", "-c", 'echo "attempt $JOBSPEC_ATTEMPT, $A"']
    attached = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)
    job.send_signal(signal.SIGTERM)
    assert job.wait(timeout=60) == 143
    assert attached.stdout == "attempt 1, it's $HOME\n", attached.stderr
    assert "ended" in command_log(run_dir)
