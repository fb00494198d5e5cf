"""The TRL driver for real: a Ray cluster of this test, two gloo workers, a tiny model, and its verdict."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from jobspec import frameworks
from jobspec.metrics import read_metrics
from jobspec.plan import Plan
from jobspec.runtime.drivers.trl import state as trl_state
from jobspec.verdict import Deliverable, Status
from tests.kits.framework_kit import context, evidence, plan_of
from tests.kits.script_module import load_script

EXAMPLES = Path(__file__).parents[3] / "examples"
NEEDS = [name for name in ("ray", "torch", "trl") if importlib.util.find_spec(name) is None]
SMALL = {
    "per_device_train_batch_size": 16,
    "num_generations": 8,
    "max_completion_length": 8,
    "learning_rate": 3e-3,
}

pytestmark = [
    pytest.mark.train,
    pytest.mark.ray,
    pytest.mark.slow,
    pytest.mark.timeout(600),
    pytest.mark.skipif(bool(NEEDS), reason=f"not installed: {', '.join(NEEDS)}"),
]


def free_port() -> int:
    """A port below the ephemeral range, where Ray's own choices are, that no other test takes."""
    for port in range(22200, 22400):
        with socket.socket() as probe:
            try:
                probe.bind(("0.0.0.0", port))
            except OSError:
                continue
            return port
    raise AssertionError("no free port")


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Snapshots of the tiny model and of its prompts."""
    return load_script(EXAMPLES / "make_tiny_model.py").make(tmp_path_factory.mktemp("hf"))  # type: ignore[no-any-return]


@pytest.fixture(scope="module")
def ray_address() -> Iterator[str]:
    """A Ray head of this test alone, ended by its process group."""
    folder = Path(tempfile.mkdtemp(prefix="r-", dir="/tmp"))  # AF_UNIX paths hold 107 bytes
    port = free_port()
    env = {**os.environ, "RAY_AUTH_MODE": "disabled", "RAY_TMPDIR": str(folder)}
    argv = [
        sys.executable,
        "-m",
        "ray.scripts.scripts",
        "start",
        "--head",
        "--block",
        "--disable-usage-stats",
    ]
    argv += [
        f"--port={port}",
        f"--node-ip-address={outward_ip()}",
        "--num-cpus=2",
        "--include-dashboard=false",
    ]
    argv += ["--min-worker-port=22400", "--max-worker-port=22599"]
    log = (folder / "head.log").open("wb")
    head = subprocess.Popen(argv, env=env, stdout=log, stderr=log, start_new_session=True)
    address = f"{outward_ip()}:{port}"
    try:
        wait_for_ray(address, head, folder / "head.log")
        yield address
    finally:
        end_ray(head, folder)


def outward_ip() -> str:
    """This host's own address: Ray replaces a loopback address by it. No packet is sent."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))
        except OSError:
            return "127.0.0.1"
        return str(probe.getsockname()[0])


def wait_for_ray(address: str, head: subprocess.Popen[bytes], log: Path) -> None:
    code = f"import ray; ray.init({address!r}, log_to_driver=False); ray.shutdown()"
    env = {**os.environ, "RAY_AUTH_MODE": "disabled"}
    deadline = time.monotonic() + 180
    while time.monotonic() < deadline and head.poll() is None:
        host, port = address.split(":")
        with socket.socket() as probe:
            if probe.connect_ex((host, int(port))) == 0:
                done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, timeout=120)
                if done.returncode == 0:
                    return
        time.sleep(0.2)
    pytest.fail(f"Ray did not come up:\n{log.read_text()[-2000:]}")


def end_ray(head: subprocess.Popen[bytes], folder: Path) -> None:
    """End this head and whatever else was started with its folder; `ray stop` would end everybody's Ray."""
    head.terminate()  # to the head alone: it ends its children, while a signal to all of them makes it drain
    with contextlib.suppress(subprocess.TimeoutExpired):
        head.wait(40)
    for process in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if process.name.isdigit() and str(folder).encode() in (process / "cmdline").read_bytes():
                os.kill(int(process.name), signal.SIGKILL)
    head.wait(60)
    shutil.rmtree(folder, ignore_errors=True)


@dataclass
class Lab:
    """One run directory, and a way to run commands of a plan in it as the runtime would."""

    root: Path
    address: str
    model: Path
    data: Path

    @property
    def metrics(self) -> Path:
        return self.root / "attempts/1/metrics"

    @property
    def checkpoints(self) -> Path:
        return self.root / "checkpoints"

    def environment(self) -> Mapping[str, str]:
        return {
            **os.environ,
            "RAY_ADDRESS": self.address,
            "RAY_AUTH_MODE": "disabled",
            "HF_HUB_OFFLINE": "1",
            "JOBSPEC_MODEL_PATH": str(self.model),
            "JOBSPEC_DATA_PROMPTS": str(self.data),
            "JOBSPEC_METRICS_DIR": str(self.metrics),
            "JOBSPEC_CHECKPOINT_DIR": str(self.checkpoints),
            "JOBSPEC_ATTEMPT_DIR": str(self.root / "attempts/1"),
        }

    def start(self, argv: tuple[str, ...]) -> subprocess.Popen[str]:
        return subprocess.Popen(
            argv,
            env=self.environment(),
            cwd=self.root,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, argv: tuple[str, ...], code: int = 0) -> str:
        """Run to the end; the output. Fails with the output when the exit code is another one."""
        process = self.start(argv)
        out, err = process.communicate(timeout=400)
        assert process.returncode == code, f"{shlex.join(argv)[:300]}\n{out[-3000:]}\n{err[-3000:]}"
        return out + err

    def judge(self, plan: Plan) -> dict[str, Deliverable]:
        found = evidence(plan, read_metrics(self.metrics, relative_to=self.root), self.root)
        return {item.name: item for item in frameworks.get(plan.framework).judge(found)}

    def state(self, label: str) -> Any:
        return json.loads((self.root / f"attempts/1/train_state-{label}.json").read_text())


@pytest.fixture
def lab(tmp_path: Path, ray_address: str, inputs: tuple[Path, Path]) -> Lab:
    return Lab(tmp_path, ray_address, *inputs)


def plan(level: str, **train: Any) -> Plan:
    checkpoint = train.pop("checkpoint", {})
    repos = {"rewards": str(EXAMPLES / "rewards")}
    settings = {"workers": 2, "reward": "tiny_rewards.py:digit_share", "overrides": SMALL, **train}
    return plan_of(context("trl", level, repos=repos, train=settings, checkpoint=checkpoint))


def test_checkpoint_is_resumed_by_a_new_process(lab: Lab) -> None:
    """Level `checkpoint` end to end: two processes, two workers each, and every deliverable proved."""
    made = plan("checkpoint", steps=6, checkpoint={"every": 3, "keep": 2})
    train, resume = made.commands
    output = lab.run(train.argv)
    assert "trainer rank 0 of 2" in output
    assert "trainer rank 1 of 2" in output
    assert lab.judge(made)["Resume"].status is Status.FAIL  # nothing has resumed yet
    lab.run(resume.argv)
    found = lab.judge(made)
    assert {name: item.status for name, item in found.items()} == dict.fromkeys(
        ("Training", "Checkpoint", "Resume"), Status.PASS
    ), found
    state = lab.state("resume")
    assert (state["start_step"], state["end_step"], state["world_size"]) == (3, 6, 2)
    assert [rank["rng_restored"] for rank in state["ranks"]] == [True, True]
    assert [rank["optimizer_steps_loaded"] for rank in state["ranks"]] == [3, 3]
    assert [path.name for path in trl_state.complete_checkpoints(lab.checkpoints)] == [
        "checkpoint-3",
        "checkpoint-6",
    ]


def test_reward_that_does_not_vary_fails_the_learning_level(lab: Lab) -> None:
    """The control: all training steps run, all metrics are finite, and nothing was learned."""
    made = plan("learning", steps=10, reward="tiny_rewards.py:constant")
    lab.run(made.commands[0].argv)
    found = lab.judge(made)
    assert found["Training"].status is Status.PASS
    assert found["Learning"].status is Status.FAIL
    assert "`grad_norm` is exactly 0 in 10 of 10 logged steps" in found["Learning"].reason


def test_failing_reward_is_the_last_line(lab: Lab) -> None:
    made = plan("smoke", workers=1, reward="tiny_rewards.py:broken")
    output = lab.run(made.commands[0].argv, code=trl_state.EXIT_FAILED)
    assert output.strip().splitlines()[-1] == (
        "trl_grpo: training failed: reward function `broken` failed:"
        " ValueError: this reward is broken on purpose"
    )


def test_sigterm_saves_and_leaves(lab: Lab) -> None:
    """Stopped in the middle, it writes a checkpoint that the next attempt continues from."""
    made = plan("smoke", steps=500, workers=1)
    process = lab.start(made.commands[0].argv)
    deadline = time.monotonic() + 200
    while time.monotonic() < deadline and process.poll() is None:
        if (lab.metrics / trl_state.METRICS_FILE).exists():
            break
        time.sleep(0.1)
    process.send_signal(signal.SIGTERM)
    out, err = process.communicate(timeout=200)
    assert process.returncode == trl_state.EXIT_STOPPED, out[-2000:] + err[-2000:]
    assert "stopped by SIGTERM" in err.strip().splitlines()[-1]
    step = lab.state("train")["end_step"]
    assert 0 < step < 500
    saved = trl_state.complete_checkpoints(lab.checkpoints)
    assert [trl_state.checkpoint_step(path) for path in saved] == [step]


def test_unknown_option_is_blocked_before_training(lab: Lab) -> None:
    made = plan("smoke", workers=1, overrides={**SMALL, "lerning_rate": 1.0})
    output = lab.run(made.commands[0].argv, code=trl_state.EXIT_BLOCKED)
    assert output.strip().splitlines()[-1].endswith("`lerning_rate` (did you mean `learning_rate`?)")
