"""A whole run of the agent in a real container on this machine: exit code, environment, signals, attach."""

from __future__ import annotations

import json
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


def rendered(tmp_path: Path, script: str, judge: str = "") -> Path:
    """A run that this machine's bubblewrap starts, with the host's own root file system as the image.

    `judge` is the image of a service that has a container of its own, with one more mount.
    """
    profile = (
        "version: 1\nname: here\nscheduler: local\ncontainer: {runtime: bubblewrap}\n"
        f"paths: {{runs: {tmp_path}/runs, hf_home: {tmp_path}/hf, node_local: {tmp_path}/n}}\n"
    )
    # The container has a /tmp of its own, and the interpreter may lie below this machine's.
    folders = ", ".join(f"{{source: {p}, target: {p}}}" for p in sorted({sys.prefix, sys.base_prefix}))
    spec = (
        "version: 1\nname: x\nframework: command\nlaunch: {mode: srun}\n"
        f'container: {{image: /, python: {sys.executable}, env: {{A: "it\'s $HOME"}}, mounts: [{folders}]}}\n'
        f"train: {{command: [{json.dumps(script)}], shell: true}}\n"
    )
    if judge:
        more = f"{{source: {tmp_path}/models, target: /mnt}}"
        own = f"{{image: {judge}, python: {sys.executable}, env: {{B: judge}}, mounts: [{folders}, {more}]}}"
        (tmp_path / "models").mkdir()
        (tmp_path / "models" / "weights").write_text("of the judge")
        spec += (
            f"services: [{{name: judge, command: [{json.dumps(SERVE)}], shell: true, container: {own}}}]\n"
        )
    resolved = resolve_text(spec, profile)
    assert resolved.plan is not None, [finding.text() for finding in resolved.findings]
    run_dir = tmp_path / "runs" / "x" / RUN_ID
    return write_run(render(resolved, RUN_ID, str(run_dir)), run_dir)


SERVE = (
    f'echo "judge has B=$B, A=$A"; cd /mnt; exec {sys.executable} -m http.server '
    '--bind "$JOBSPEC_SERVICE_JUDGE_HOST" "$PORT"'
)
ASKS = (
    f"{sys.executable} -c 'import os, urllib.request as web; "
    'print(web.urlopen(os.environ["JOBSPEC_SERVICE_JUDGE_URL"] + "/weights").read().decode())\'; '
    'echo "here: $(ls /mnt/weights 2>/dev/null), B=$B"; echo asked'
)


def command_log(run_dir: Path, name: str = "command") -> str:
    return "".join(path.read_text() for path in run_dir.glob(f"attempts/1/logs/*/{name}*.log"))


def left(run_dir: Path) -> list[str]:
    """Processes that name the run."""
    rows = subprocess.run(["ps", "-eo", "args="], capture_output=True, text=True, check=True).stdout
    return [row for row in rows.splitlines() if str(run_dir) in row]


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


@needs_bwrap
def test_service_lives_in_a_container_of_its_own(tmp_path: Path) -> None:
    run_dir = rendered(tmp_path, ASKS, judge="/")
    (tmp_path / "n").mkdir()
    argv = ["bash", "-c", 'umask 0; exec bash "$0"', str(run_dir / "job.sbatch")]
    done = subprocess.run(argv, capture_output=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout.decode() + done.stderr.decode()
    told = [run_dir / "attempts", *(run_dir / "attempts/1").rglob("*")]
    assert [path for path in told if path.lstat().st_mode & 0o022 and not path.is_symlink()] == []
    assert command_log(run_dir).splitlines() == ["of the judge", "here: , B=", "asked"]
    assert command_log(run_dir, "service-judge").splitlines()[0] == "judge has B=judge, A="
    (row,) = json.loads((run_dir / "attempts/1/results.json").read_text())["services"]
    assert (row["name"], row["state"]) == ("judge", "stopped")
    assert (run_dir / "attempts/1/services/judge.ended").read_text() == "0\n"
    assert left(run_dir) == []


@needs_bwrap
def test_service_s_container_ends_with_a_cancelled_job(tmp_path: Path) -> None:
    run_dir = rendered(tmp_path, f"{ASKS}; sleep 300", judge="/")
    job = subprocess.Popen(["bash", str(run_dir / "job.sbatch")])
    deadline = time.monotonic() + 60
    while "asked" not in command_log(run_dir):
        assert job.poll() is None and time.monotonic() < deadline, "the command did not start"
        time.sleep(0.05)
    job.send_signal(signal.SIGTERM)
    assert job.wait(timeout=60) == 143
    assert left(run_dir) == []


@needs_bwrap
def test_service_s_image_that_is_missing_blocks_the_run(tmp_path: Path) -> None:
    run_dir = rendered(tmp_path, "touch $JOBSPEC_RUN_DIR/trained", judge=f"{tmp_path}/no-image")
    done = subprocess.run(
        ["bash", str(run_dir / "job.sbatch")], capture_output=True, timeout=120, check=False
    )
    assert done.returncode == 3, done.stdout.decode() + done.stderr.decode()
    (found,) = json.loads((run_dir / "attempts/1/results.json").read_text())["findings"]
    assert found["rule"] == "service.container"
    assert f"{tmp_path}/no-image" in found["why"]
    assert not (run_dir / "trained").exists()
    assert left(run_dir) == []
