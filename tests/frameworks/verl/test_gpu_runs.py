"""Files of verl runs on a real GPU (docs/gpu.md): judged without plan or spec, as somebody else's would be.

Long lines are cut, paths are neutral, and failed runs are without the printed configuration.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from jobspec.triage import first_cause, scan_files

RUNS = Path(__file__).parents[2] / "fixtures/verl_gpu"
BRIDGE = "megatron.bridge=/src/Megatron-Bridge"


def judged(folder: Path, level: int, *more: str) -> dict[str, Any]:
    argv = [
        sys.executable,
        "-m",
        "jobspec.cli",
        "judge",
        folder,
        "--framework",
        "verl",
        "--level",
        str(level),
    ]
    done = subprocess.run([*argv, "--json", *more], capture_output=True, text=True)
    report: dict[str, Any] = json.loads(done.stdout)
    return report


@pytest.mark.parametrize("name", ["smoke", "lora"])
def test_steps_that_ran_pass_with_the_checkout_named(name: str) -> None:
    report = judged(RUNS / name, 0, "--expect-import", BRIDGE)
    assert report["result"] == "Pass"
    told = report["deliverables"]
    run = told["verl Megatron backend run"]["reason"]
    assert run.startswith("LoRA + DDP" if name == "lora" else "full parameters + DDP")
    assert "2 trained steps up to step 2" in run
    assert told["Local Bridge import in verl"]["status"] == "Pass"


def test_steps_without_a_named_checkout_prove_no_bridge() -> None:
    assert judged(RUNS / "smoke", 0)["result"] == "Blocked"


def test_reward_that_rose_is_shown_though_the_run_was_cut_off() -> None:
    """22 of 30 steps: a limit of 330 s ended it."""
    report = judged(RUNS / "learning", 5, "--expect-import", BRIDGE)
    assert report["result"] == "Blocked"
    told = report["deliverables"]
    assert "a signal asked the run to end" in report["reason"]
    shown = told["verl Megatron backend run"]["reason"]
    assert "22 trained steps of 30 were read; step 23 is the first missing one" in shown
    assert "rose beyond its noise: 0.4161 -> 0.9978" in told["Requested variants"]["reason"]


def test_a_new_process_that_loaded_and_trained_on_passes() -> None:
    report = judged(RUNS / "checkpoint", 1, "--expect-import", BRIDGE)
    assert report["result"] == "Pass"
    told = report["deliverables"]["Requested variants"]["reason"]
    assert "loaded after step 2, and trained on to step 4" in told


def test_megatron_fsdp_passes_where_verl_printed_it() -> None:
    report = judged(RUNS / "fsdp", 3, "--expect-import", BRIDGE)
    assert report["result"] == "Pass"
    told = report["deliverables"]
    assert "full parameters + Megatron-FSDP; 2 trained steps" in told["verl Megatron backend run"]["reason"]
    assert "Megatron-FSDP with one GPU shards nothing" in report["limitations"]


def test_value_head_of_a_critic_is_no_lost_weight(tmp_path: Path) -> None:
    """A critic gets a head of its own, for which the weights of a language model have nothing."""
    report = judged(RUNS / "critic", 0, "--expect-import", BRIDGE)
    assert report["result"] == "Pass"
    assert "HF import" not in report["deliverables"]
    assert any(
        limit.startswith("`lm_head.weight` was not among the weights") for limit in report["limitations"]
    )
    # Without a critic the same line is a loss.
    shutil.copytree(RUNS / "smoke", tmp_path / "run")
    with (tmp_path / "run/train.log").open("a") as log:
        log.write("(WorkerDict pid=1) WARNING: Can't find lm_head.weight in hf_keys\n")
    report = judged(tmp_path / "run", 0, "--expect-import", BRIDGE)
    assert report["deliverables"]["HF import"]["status"] == "Fail"


def test_finished_run_that_is_resumed_trains_nothing() -> None:
    report = judged(RUNS / "finished-again", 0, "--expect-import", BRIDGE)
    assert report["result"] == "Blocked"
    assert "the loaded checkpoint is of step 2, and nothing was left of 2" in report["reason"]


@pytest.mark.parametrize(
    ("name", "verdict", "line"),
    [
        ("broken-reward", "Fail", "ValueError: this reward is broken on purpose"),
        ("killed-worker", "Blocked", "(raylet) A worker died or was killed while executing a task"),
        (
            "batch-too-large",
            "Blocked",
            "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 21.16 GiB.",
        ),
        ("fsdp-attention", "Blocked", "AssertionError: NVTE_FUSED_ATTN set to 0, but expected 1"),
        ("engine-memory", "Blocked", "ValueError: No available memory for the cache blocks."),
        ("other-release", "Blocked", "Could not override 'actor_rollout_ref.actor.megatron.grad_offload'."),
    ],
)
def test_first_cause_of_failures(name: str, verdict: str, line: str) -> None:
    found = first_cause(scan_files([RUNS / name / "train.log"]))
    assert found is not None
    assert (found.verdict, found.text[: len(line)]) == (verdict, line)


@pytest.mark.parametrize("name", ["smoke", "lora", "checkpoint", "fsdp", "critic", "finished-again"])
def test_nothing_failed_where_nothing_did(name: str) -> None:
    assert first_cause(scan_files(sorted((RUNS / name).glob("*.log")))) is None


def test_wait_for_cores_that_do_not_exist_is_no_failure_of_the_code() -> None:
    """Ray had 8 cores, the trainer asked for 13: no line says so, and SIGTERM ended it."""
    found = first_cause(scan_files([RUNS / "waits-for-cores/train.log"]))
    assert found is not None
    assert (found.verdict, found.signature) == ("Blocked", "effect.terminated")


def test_logs_of_rays_services_explain_nothing_by_lost_peers(tmp_path: Path) -> None:
    """Ray's dashboard agent lost its peer when the run of the killed worker ended."""
    shutil.copy(RUNS / "killed-worker/train.log", tmp_path)
    (tmp_path / "dashboard_agent.log").write_text(
        "2026-11-29 10:49:50,101\tERROR event_agent.py:99 -- Report event failed, retrying...\n"
        "Traceback (most recent call last):\n"
        '  File "/usr/lib/python3.12/asyncio/selector_events.py", line 691, in _sock_connect_cb\n'
        "    raise OSError(err, f'Connect call failed {address}')\n"
        "ConnectionRefusedError: [Errno 111] Connect call failed ('127.0.0.1', 8265)\n".replace("\\\n", "\n")
    )
    found = first_cause(scan_files(sorted(tmp_path.iterdir())))
    assert found is not None
    assert found.file.endswith("train.log")
