"""The driver's files and checks that need neither torch nor Ray."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from pathlib import Path

import pytest

from jobspec.runtime.drivers.trl import driver, rewards, state
from jobspec.runtime.drivers.trl.state import BlockedError, Folders, TrainConfig

CONFIG = TrainConfig(steps=4, workers=1)


def checkpoint(folder: Path, step: int, *, marked: bool = True) -> Path:
    path = folder / f"checkpoint-{step}"
    path.mkdir(parents=True)
    (path / "model.safetensors").write_bytes(b"weights")
    if marked:
        state.mark_complete(path, 1)
    return path


# -- config ------------------------------------------------------------------------------------------


def test_config_round_trip() -> None:
    config = TrainConfig(8, 2, until=4, options={"beta": 0.1}, reward={"builtin": "addition"})
    assert TrainConfig.from_json(config.to_json()) == config


def test_until_is_all_steps_when_not_given() -> None:
    assert TrainConfig.from_json('{"steps": 7, "workers": 1}').until == 7


@pytest.mark.parametrize("text", ["", "[]", "{", '{"steps": 1}', '{"steps": 1, "workers": 1, "wrokers": 2}'])
def test_config_that_is_none_is_blocked(text: str) -> None:
    with pytest.raises(BlockedError, match="--config is not a driver config"):
        TrainConfig.from_json(text)


def test_missing_environment_is_named() -> None:
    with pytest.raises(BlockedError, match="JOBSPEC_MODEL_PATH, JOBSPEC_DATA_PROMPTS"):
        Folders.from_env(CONFIG, {"JOBSPEC_METRICS_DIR": "/m", "JOBSPEC_CHECKPOINT_DIR": "/c"})


# -- prompts -----------------------------------------------------------------------------------------


def test_prompts_of_a_folder_in_name_order(tmp_path: Path) -> None:
    (tmp_path / "b.jsonl").write_text('{"prompt": "2"}\n')
    (tmp_path / "a.jsonl").write_text('{"prompt": "1"}\n\n')
    assert [row["prompt"] for row in state.read_prompts(tmp_path)] == ["1", "2"]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "empty"),
        ('{"prompt": 1}\n{"x"', "p.jsonl:2: not JSON"),
        ('{"q": 1}', "p.jsonl:1: no key `prompt`"),
    ],
)
def test_bad_prompts_are_named_with_their_line(tmp_path: Path, text: str, why: str) -> None:
    (tmp_path / "p.jsonl").write_text(text)
    with pytest.raises(BlockedError, match=why):
        state.read_prompts(tmp_path)


def test_no_prompts(tmp_path: Path) -> None:
    with pytest.raises(BlockedError, match="no prompts at"):
        state.read_prompts(tmp_path)


# -- checkpoints -------------------------------------------------------------------------------------


def test_newest_complete_checkpoint_is_resumed(tmp_path: Path) -> None:
    checkpoint(tmp_path, 5)
    newest = checkpoint(tmp_path, 10)
    checkpoint(tmp_path, 15, marked=False)  # the process died while writing it
    assert state.find_resume(CONFIG, tmp_path) == newest


def test_truncated_checkpoint_is_not_complete(tmp_path: Path) -> None:
    path = checkpoint(tmp_path, 5)
    (path / "model.safetensors").write_bytes(b"wei")
    assert not state.is_complete(path)
    (path / "model.safetensors").unlink()
    assert not state.is_complete(path)


def test_resume_modes(tmp_path: Path) -> None:
    must = TrainConfig(4, 1, resume="must")
    assert state.find_resume(CONFIG, tmp_path) is None
    with pytest.raises(BlockedError, match="found nothing"):
        state.find_resume(must, tmp_path)
    checkpoint(tmp_path, 2, marked=False)
    with pytest.raises(BlockedError, match="found checkpoint-2"):
        state.find_resume(must, tmp_path)
    checkpoint(tmp_path, 1)
    assert state.find_resume(TrainConfig(4, 1, resume="never"), tmp_path) is None
    assert state.find_resume(must, tmp_path) == tmp_path / "checkpoint-1"


# -- metrics -----------------------------------------------------------------------------------------


def test_row_holds_numbers_only(tmp_path: Path) -> None:
    logs = {"reward": 0.5, "loss": math.nan, "text": "x", "flag": True, "step": 99}
    state.append_row(tmp_path, state.metrics_row(3, logs, {"perf/step_s": 1.0}))
    row = json.loads((tmp_path / state.METRICS_FILE).read_text())
    assert set(row) == {"step", "time", "reward", "loss", "perf/step_s"}
    assert row["step"] == 3


def test_throughput() -> None:
    assert state.throughput(None, 1.0, 10.0) == {}
    assert state.throughput((1.0, 10.0), 3.0, 30.0) == {"perf/step_s": 2.0, "perf/tokens_per_s": 10.0}


# -- rewards -----------------------------------------------------------------------------------------


def test_built_in_rewards() -> None:
    chat = [[{"role": "assistant", "content": "12ab"}], []]
    assert rewards.digits(chat) == [0.5, 0.0]
    assert rewards.addition(["64 ", "7"], answer=["64", "8"]) == [1.0, 0.0]


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        ([1.0], "1 values for 2 completions"),
        (None, "must return a list of numbers"),
        (["x", "y"], "must return a list of numbers"),
        ([1.0, math.nan], "not finite"),
    ],
)
def test_bad_answer_of_a_reward_is_named(answer: object, why: str) -> None:
    reward = rewards.checked("mine", lambda completions, **columns: answer)  # type: ignore[arg-type,return-value]
    with pytest.raises(rewards.RewardError, match=f"`mine`.*{why}"):
        reward(completions=["a", "b"])


def test_reward_of_a_file_keeps_its_name(tmp_path: Path) -> None:
    (tmp_path / "r.py").write_text(
        "def score(completions, **kw):\n    return [len(c) for c in completions]\n"
    )
    reward = rewards.load_reward({"file": str(tmp_path / "r.py"), "function": "score"})
    assert reward.__name__ == "score"
    assert reward(completions=["ab"]) == [2.0]


@pytest.mark.parametrize(
    ("spec", "why"),
    [
        ({"builtin": "nope"}, "no built-in reward `nope`"),
        ({"file": "/no/such.py", "function": "f"}, "not there"),
    ],
)
def test_missing_reward(spec: dict[str, str], why: str) -> None:
    with pytest.raises(rewards.RewardError, match=why):
        rewards.load_reward(spec)


# -- driver ------------------------------------------------------------------------------------------


def node(cpus: float, gpus: float = 0) -> dict[str, object]:
    return {"Alive": True, "Resources": {"CPU": cpus, "GPU": gpus}}


@pytest.mark.parametrize(
    ("nodes", "workers", "cpus", "threads"),
    [
        ([node(2)], 2, 1.0, 1),
        ([node(1)], 2, 0.5, 1),
        ([node(1), node(1)], 2, 1.0, 1),
        ([node(16), node(8)], 2, 1.0, 8),
        ([node(64)], 2, 1.0, 8),
    ],
)
def test_share_of_a_worker_always_fits(
    nodes: list[dict[str, object]], workers: int, cpus: float, threads: int
) -> None:
    share = driver.worker_share(TrainConfig(1, workers), nodes)
    assert (share.cpus, share.threads) == (cpus, threads)


def test_missing_gpus_are_blocked() -> None:
    with pytest.raises(BlockedError, match="the Ray cluster has 1 GPUs"):
        driver.worker_share(TrainConfig(1, 2, use_gpu=True), [node(8, 1)])


def test_tokens_are_not_handed_to_workers() -> None:
    env = {"JOBSPEC_TOKEN": "x", "HF_TOKEN": "y", "JOBSPEC_RUN_DIR": "/r", "HF_HOME": "/h", "OTHER": "z"}
    assert driver.passed_on(env) == {"HF_HOME": "/h", "JOBSPEC_RUN_DIR": "/r"}


def test_innermost_cause_is_found() -> None:
    outer, group = RuntimeError("outer"), RuntimeError("of Ray Train")
    outer.cause = KeyError("inner")  # type: ignore[attr-defined]
    group.worker_failures = {1: ValueError("late"), 0: outer}  # type: ignore[attr-defined]
    assert isinstance(driver.first_cause(group), KeyError)
    assert isinstance(driver.first_cause(OSError()), OSError)


@pytest.mark.parametrize("address", ["", "auto", "127.0.0.1:1"])
def test_unreachable_ray_is_blocked_with_the_cause_last(tmp_path: Path, address: str) -> None:
    names = ("JOBSPEC_MODEL_PATH", "JOBSPEC_DATA_PROMPTS", "JOBSPEC_METRICS_DIR", "JOBSPEC_CHECKPOINT_DIR")
    env = {**os.environ, **{name: str(tmp_path / name) for name in names}, "RAY_ADDRESS": address}
    argv = [sys.executable, "-m", "jobspec.runtime.drivers.trl.driver", "--config", CONFIG.to_json()]
    done = subprocess.run(argv, env=env, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == state.EXIT_BLOCKED
    assert done.stderr.strip().splitlines()[-1].startswith("trl_grpo: blocked: ")
    assert "Traceback" not in done.stderr
