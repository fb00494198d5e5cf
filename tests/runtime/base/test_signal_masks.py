"""No program that an agent starts has signals blocked or ignored: they could not be told to end."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from jobspec.plan import CommandPlan, ImportProof
from jobspec.rendering.run_folder import build_runtime
from tests.kits.agent_lab import HOSTILE_CALLER, running, shell

SHOW = "grep -E '^Sig(Blk|Ign)' /proc/self/status"


def numbers(line: str) -> Iterator[str]:
    """The signals of one line of /proc/PID/status."""
    mask = int(line.split()[1], 16)
    yield from (signal.Signals(number + 1).name for number in range(31) if mask >> number & 1)


def told(text: str) -> dict[str, list[str]]:
    found = {line.split(":")[0]: sorted(numbers(line)) for line in text.splitlines() if "Sig" in line}
    assert found.keys() == {"SigBlk", "SigIgn"}, text
    return found


FREE: dict[str, list[str]] = {"SigBlk": [], "SigIgn": []}


@pytest.mark.parametrize("prefix", [(), HOSTILE_CALLER], ids=["plain", "hostile-caller"])
def test_programs_of_a_run_are_free(tmp_path: Path, prefix: tuple[str, ...]) -> None:
    """Checks, commands on all nodes, the import proof: each by another thread of the agent."""
    package = tmp_path / "src" / "shows"
    package.mkdir(parents=True)
    target = tmp_path / "import"
    show = f"import subprocess\nsubprocess.run([{SHOW!r} + ' > {target}'], shell=True, check=True)\n"
    (package / "__init__.py").write_text(show)
    checks = (shell(f"{SHOW} > $JOBSPEC_RUN_DIR/check", name="checks-a"),)
    everywhere = shell(f"{SHOW} > $JOBSPEC_RUN_DIR/rank-$RANK", on="all")
    src = str(package.parent)
    with running(
        tmp_path, everywhere, checks=checks, nodes=2, proofs=(ImportProof("shows", src, "r"),),
        env={"PYTHONPATH": src},
    ) as run:  # fmt: skip
        run.agent(0, prefix=prefix, env={"PYTHONPATH": src})
        run.agent(1, prefix=prefix, env={"PYTHONPATH": src})
        code, output = run.finish()
        assert code == 0, output
        for name in ("check", "rank-0", "rank-1"):
            assert told((run.root / name).read_text()) == FREE, name
    assert told(target.read_text()) == FREE


def test_script_below_checkout_run_is_free(tmp_path: Path) -> None:
    out = tmp_path / "out"
    words = ["--kept", str(tmp_path / "kept"), "--metrics", str(tmp_path / "metrics"), "--"]
    argv = [
        sys.executable,
        "-m",
        "jobspec.runtime.drivers.nemo_rl.script_run",
        *words,
        "bash",
        "-c",
        f"{SHOW} > {out}",
    ]
    with running(tmp_path, CommandPlan("train", tuple(argv))) as run:
        run.agent(prefix=HOSTILE_CALLER)
        code, output = run.finish()
    assert code == 0, output
    assert told(out.read_text()) == FREE


def test_nohup_is_respected(tmp_path: Path) -> None:
    """Who starts a run by hand under nohup(1) wants it to outlive the terminal, programs included."""
    work = """
import subprocess, sys
from jobspec.runtime.base import procs, signals
def work():
    received = signals.receive()
    subprocess.run(["bash", "-c", "grep SigIgn /proc/self/status; grep SigBlk /proc/self/status"])
    print("up", flush=True)
    return received.get()
sys.exit(procs.guard(work))
"""
    argv = ["nohup", sys.executable, "-c", work]
    process = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    assert process.stdout is not None
    masks = "".join(iter(process.stdout.readline, "up\n"))
    assert told(masks) == {"SigBlk": [], "SigIgn": ["SIGHUP"]}
    process.send_signal(signal.SIGHUP)
    process.send_signal(signal.SIGUSR1)
    assert process.wait(60) == signal.SIGUSR1


def test_driver_below_the_upstream_scripts_agent_is_free(tmp_path: Path) -> None:
    """The daemon agent of a node is left behind by a fork, whose mask it keeps."""
    pyz = tmp_path / "runtime.pyz"
    pyz.write_bytes(build_runtime())
    out = tmp_path / "out"
    work = f"""
import os, subprocess, sys
sys.path.insert(0, {str(pyz)!r})
from jobspec.runtime import upstream_agents
from jobspec.runtime.base import procs, signals
def work():
    signals.receive()
    return subprocess.run(["bash", "-c", {f"{SHOW} > {out}"!r}]).returncode
if os.fork() == 0:
    upstream_agents._detach()
    os._exit(procs.guard(work))
"""
    # Returns when the daemon has ended: it has this output open.
    subprocess.run(
        [*HOSTILE_CALLER, sys.executable, "-c", work], check=True, timeout=60, stderr=subprocess.PIPE
    )
    assert told(out.read_text()) == FREE
