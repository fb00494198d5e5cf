"""Files of verl runs that jobspec did not launch: logs, metrics, checkpoints; any may be missing."""

from __future__ import annotations

import json
import pprint
import re
from pathlib import Path
from typing import Any

import pytest

from jobspec import frameworks
from jobspec.judging.foreign_run import expected, judge_files
from jobspec.verdict import Result, Status, Verdict

FIXTURES = Path(__file__).parents[2] / "fixtures"
IMPORT, RUN, VARIANTS, CAPTURE = (
    "Local Bridge import in verl",
    "verl Megatron backend run",
    "Requested variants",
    "Log capture",
)
BRIDGE = "/workspace/Megatron-Bridge"


def judge(
    folder: Path, level: str = "smoke", variants: tuple[str, ...] = (), steps: int = 0, root: str = ""
) -> Verdict:
    imports = [f"megatron.bridge={root}"] if root else []
    wanted = expected(frameworks.get("verl"), level, variants, steps, (), "", imports)
    return judge_files(folder, wanted)[1]


def status(verdict: Verdict, name: str) -> tuple[Status, str]:
    found = verdict.deliverable(name)
    assert found is not None
    return found.status, found.reason


def sample(name: str) -> str:
    return (FIXTURES / f"verl_log_{name}.txt").read_text()


def configuration(**changes: Any) -> dict[str, Any]:
    """What the runner prints; `changes` by dotted key, `__` for a dot."""
    sizes = {f"{name}_parallel_size": 1 for name in ("tensor_model", "pipeline_model", "expert_model")}
    megatron = {**sizes, "vanilla_mbridge": False, "use_megatron_fsdp": False}
    config: dict[str, Any] = {
        "actor_rollout_ref": {
            "actor": {"megatron": megatron, "strategy": "megatron"},
            "model": {"lora": {"rank": 0}},
            "rollout": {"tensor_model_parallel_size": 2},
        },
        "algorithm": {"adv_estimator": "grpo"},
        "critic": {"megatron": {"vanilla_mbridge": False}},
        "trainer": {"total_training_steps": 1, "nnodes": 1},
    }
    for key, value in changes.items():
        *parents, last = key.split("__")
        at = config
        for parent in parents:
            at = at[parent]
        at[last] = value
    return config


def log(config: dict[str, Any], *steps: int) -> str:
    """A log of the runner, its configuration interleaved with another process."""
    lines = pprint.pformat(config, width=80).splitlines()
    text = [f"(TaskRunnerV1 pid=1) {line}" for line in lines]
    text.insert(len(text) // 2, "(WorkerDict pid=2) {'not': 'the configuration'}")
    text.append("(WorkerDict pid=2) module: 1")
    text += [f"(TaskRunnerV1 pid=1) step:{n} - actor/grad_norm:0.4 - training/global_step:{n}" for n in steps]
    return "\n".join(text) + "\n"


SIZE = "actor_rollout_ref__actor__megatron__"


# -- samples -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["example", "example_legacy"])
def test_sample_of_a_healthy_run_passes(tmp_path: Path, name: str) -> None:
    (tmp_path / "slurm-17.out").write_text(f"(WorkerDict pid=7) {FILE}\n" + sample(name))
    assert judge(tmp_path, root=BRIDGE).result is Result.PASS


FAILURES = dict(
    re.findall(r"^### (case \w)[^\n]*\n(.*?)(?=^### |\Z)", sample("example_failures"), re.M | re.S)
)
EXPECTED = {
    "case A": (Result.BLOCKED, "ROCR_VISIBLE_DEVICES"),
    "case B": (Result.BLOCKED, "Total available GPUs"),
    "case C": (Result.BLOCKED, "Could not override"),
    "case D": (Result.BLOCKED, "Megatron-Bridge package not found"),
    "case E": (Result.FAIL, "provider validation"),
    "case F": (Result.BLOCKED, "world_size (6)"),
}


def test_no_failure_sample_is_left_out() -> None:
    assert set(FAILURES) == set(EXPECTED)


@pytest.mark.parametrize("case", EXPECTED)
def test_sample_of_a_failure(tmp_path: Path, case: str) -> None:
    (tmp_path / "run.log").write_text(FAILURES[case])
    verdict = judge(tmp_path)
    result, part = EXPECTED[case]
    assert verdict.result is result
    assert verdict.first_cause is not None
    assert part in verdict.first_cause.text


# -- import ------------------------------------------------------------------------------------------


FILE = f"{BRIDGE}/src/megatron/bridge/__init__.py"
PROBED = f"jobspec: driver on n1: megatron.bridge {FILE}"
FRAME = f'  File "{BRIDGE}/src/megatron/bridge/models/model_provider.py", line 9, in x'
OTHER = "megatron.bridge /usr/lib/python3/site-packages/megatron/bridge/__init__.py"


@pytest.mark.parametrize(
    ("line", "root", "want", "part"),
    [
        ("", "", Status.BLOCKED, "that it ran is not proved"),
        (PROBED, "", Status.BLOCKED, f"--expect-import megatron.bridge={BRIDGE}/src"),
        (OTHER, "", Status.BLOCKED, "the run is void"),
        ("", BRIDGE, Status.BLOCKED, "not shown"),
        (PROBED, BRIDGE, Status.PASS, "jobspec read no import line of a Ray worker"),
        (f"worker megatron.bridge={FILE}", BRIDGE, Status.PASS, "also in a Ray worker"),
        (FRAME, BRIDGE, Status.PASS, ""),
        (OTHER, BRIDGE, Status.BLOCKED, "the run is void"),
    ],
)
def test_bridge_that_ran(tmp_path: Path, line: str, root: str, want: Status, part: str) -> None:
    (tmp_path / "x.log").write_text(f"{line}\n{log(configuration(), 1)}")
    verdict = judge(tmp_path, root=root)
    found, reason = status(verdict, IMPORT)
    assert found is want
    assert part in reason
    assert verdict.result is (Result.BLOCKED if want is Status.BLOCKED else Result.PASS)


# -- what is missing is not claimed ------------------------------------------------------------------


def test_records_alone_prove_steps_but_no_trainer(tmp_path: Path) -> None:
    record = {"step": 1, "data": {"training/global_step": 1, "actor/grad_norm": 0.4}}
    (tmp_path / "metrics.jsonl").write_text(json.dumps(record) + "\n")
    verdict = judge(tmp_path)
    assert status(verdict, RUN) == (
        Status.BLOCKED,
        "not shown: jobspec found no line that shows `vanilla_mbridge` False",
    )
    assert status(verdict, CAPTURE) == (Status.BLOCKED, "not shown: jobspec found no log")
    assert verdict.result is Result.BLOCKED


def test_planned_steps_are_the_configuration_s(tmp_path: Path) -> None:
    config = configuration(trainer__total_training_steps=20)
    (tmp_path / "x.log").write_text(log(config, 1, 2, 3))
    assert "of 20 were read; step 4 is the first missing one" in status(judge(tmp_path), RUN)[1]
    assert status(judge(tmp_path, steps=3), RUN)[0] is Status.PASS


def test_torn_configuration_falls_back_to_single_lines(tmp_path: Path) -> None:
    text = log(configuration(), 1)
    torn = "\n".join(line for line in text.splitlines() if "'trainer'" not in line)
    (tmp_path / "x.log").write_text(torn)
    assert status(judge(tmp_path), RUN)[0] is Status.PASS


@pytest.mark.parametrize(
    ("level", "variants", "changes", "want"),
    [
        ("parallel", (), {f"{SIZE}pipeline_model_parallel_size": 2}, Status.PASS),
        ("parallel", ("moe",), {f"{SIZE}pipeline_model_parallel_size": 2}, Status.FAIL),
        ("parallel", ("moe",), {f"{SIZE}expert_model_parallel_size": 2}, Status.PASS),
        ("parallel", ("dense",), {f"{SIZE}expert_model_parallel_size": 2}, Status.FAIL),
        # The rollout's size has the same name; here it alone is 2.
        ("parallel", ("dense",), {}, Status.FAIL),
        ("fsdp", (), {f"{SIZE}use_megatron_fsdp": True}, Status.PASS),
        ("fsdp", (), {}, Status.FAIL),
        ("architecture", (), {}, Status.BLOCKED),
        ("architecture", ("mtp",), {}, Status.BLOCKED),
        ("smoke", ("full",), {}, Status.PASS),
        ("smoke", ("lora",), {}, Status.FAIL),
    ],
)
def test_variants_by_the_resolved_configuration(
    tmp_path: Path, level: str, variants: tuple[str, ...], changes: dict[str, Any], want: Status
) -> None:
    (tmp_path / "x.log").write_text(log(configuration(**changes), 1))
    assert status(judge(tmp_path, level, variants), VARIANTS)[0] is want


@pytest.mark.parametrize(
    ("line", "want"),
    [
        ("Random model initialized and saved to /m", Status.PASS),
        ("Output path '/m' already exists. Will do nothing.", Status.FAIL),
        ("", Status.BLOCKED),
    ],
)
def test_dummy_model_must_be_this_run_s(tmp_path: Path, line: str, want: Status) -> None:
    (tmp_path / "x.log").write_text(f"{line}\n{log(configuration(), 1)}")
    assert status(judge(tmp_path, variants=("dummy",)), VARIANTS)[0] is want


def test_configuration_outweighs_the_script_s_trace(tmp_path: Path) -> None:
    trace = "+ USE_MEGATRON_FSDP=True\n+ python3 -m verl.trainer.main_ppo a.b=1\n"
    (tmp_path / "x.log").write_text(trace + log(configuration(), 1))
    assert status(judge(tmp_path, "fsdp"), VARIANTS)[0] is Status.FAIL


@pytest.mark.parametrize(
    ("counts", "sizes", "limit"),
    [
        ((2_377_728,), {}, "a model of at most 2.4 million parameters: the mechanics alone are shown"),
        ((1_100_000, 1_377_728), {"tensor_model": 4, "pipeline_model": 2}, "a model of at most 11.0 million"),
        ((1_377_728,), {"tensor_model": 8, "expert_model": 16}, ""),  # up to 176 million
        ((494_032_768,), {}, ""),
    ],
)
def test_model_made_for_a_test_shows_mechanics_alone(
    tmp_path: Path, counts: tuple[int, ...], sizes: dict[str, int], limit: str
) -> None:
    """Megatron begins its line with a space; Ray's prefix stands before it."""
    ranks = "".join(
        "(WorkerDict pid=2)  > number of parameters on (tensor, pipeline) model parallel rank "
        f"({rank}, 0): {count}\n"
        for rank, count in enumerate(counts)
    )
    changes = {f"{SIZE}{name}_parallel_size": size for name, size in sizes.items()}
    (tmp_path / "x.log").write_text(log(configuration(**changes), 1) + ranks)
    said = [item for item in judge(tmp_path).limitations if "mechanics alone" in item]
    assert [item[: len(limit)] for item in said] == ([limit] if limit else [])


# -- resume ------------------------------------------------------------------------------------------


def checkpoint(root: Path, step: int, tracker: str) -> None:
    folder = root / f"ckpt/global_step_{step}"
    for role in ("actor", "critic"):
        (folder / role).mkdir(parents=True)
        (folder / role / "ckpt_contents.json").write_text("{}")
    (folder / "data.pt").write_text("x")
    (root / "ckpt/latest_checkpointed_iteration.txt").write_text(tracker)


def test_load_lines_prove_a_save_whose_folder_is_not_here(tmp_path: Path) -> None:
    (tmp_path / "x.log").write_text(sample("example"))
    found, reason = status(judge(tmp_path, "checkpoint"), VARIANTS)
    assert found is Status.PASS
    assert "no checkpoint was found" in reason


@pytest.mark.parametrize(
    ("tracker", "want"), [("2", Status.PASS), ("1", Status.FAIL)], ids=["whole", "stale-tracker"]
)
def test_checkpoints_that_are_here_must_be_whole(tmp_path: Path, tracker: str, want: Status) -> None:
    (tmp_path / "x.log").write_text(sample("example"))
    checkpoint(tmp_path, 2, tracker)
    assert status(judge(tmp_path, "checkpoint"), VARIANTS)[0] is want


# -- processes ---------------------------------------------------------------------------------------

CKPT = "/c/ckpt/global_step_{}"
FIRST = "(TaskRunnerV1 pid=1) Training from scratch\n"


def went_on(step: int) -> str:
    """What a process prints that goes on from a checkpoint, before it trains."""
    lines = [f"(TaskRunnerV1 pid=9) INFO:x:Resuming from {CKPT.format(step)}, setting global step to {step}"]
    lines += [
        f"(WorkerDict pid=8) [Rank 0] Loaded {what} checkpoint from {CKPT.format(step)}/actor/dist_ckpt"
        for what in ("sharded model", "optimizer")
    ]
    return "\n".join(lines) + "\n"


def trained(*steps: int, saves: bool = True) -> str:
    text = ""
    for step in steps:
        text += f"(TaskRunnerV1 pid=1) step:{step} - actor/grad_norm:0.4 - training/global_step:{step}\n"
        text += f"(TaskRunnerV1 pid=1) Saving checkpoint to {CKPT.format(step)}\n" if saves else ""
    return text


TWO = log(configuration(trainer__total_training_steps=2))
HALVES = {
    "went on": (FIRST + trained(1), went_on(1) + trained(2), Status.PASS),
    "had nothing left": (FIRST + trained(1, 2), went_on(2), Status.FAIL),
    "began again": (FIRST + trained(1, 2), FIRST + trained(1, 2), Status.FAIL),
    "began again after a load": (FIRST + trained(1), went_on(1) + trained(1, 2), Status.FAIL),
    "never trained": (FIRST + trained(1, 2), went_on(1), Status.FAIL),
}


@pytest.mark.parametrize("name", HALVES)
@pytest.mark.parametrize("files", [("a.log", "b.log"), ("b.log", "a.log"), ("one.log", "one.log")])
def test_resume_is_judged_by_process(name: str, files: tuple[str, str], tmp_path: Path) -> None:
    """Whatever the files are called, and also where one log holds both processes."""
    first, second, want = HALVES[name]
    for file, text in zip(files, (first, second), strict=True):
        with (tmp_path / file).open("a") as out:
            out.write(TWO + text)
    assert status(judge(tmp_path, "checkpoint"), VARIANTS)[0] is want


@pytest.mark.parametrize("name", ["had nothing left", "never trained"])
def test_second_process_that_trained_nothing_fails_at_any_level(name: str, tmp_path: Path) -> None:
    first, second, _ = HALVES[name]
    (tmp_path / "a.log").write_text(TWO + first)
    (tmp_path / "b.log").write_text(TWO + second)
    assert "trained no further step" in status(judge(tmp_path), RUN)[1]
    (tmp_path / "b.log").unlink()
    assert status(judge(tmp_path), RUN)[0] is Status.PASS


def test_a_process_may_write_two_logs(tmp_path: Path) -> None:
    """Ray's workers log to one file and print to another."""
    (tmp_path / "a.log").write_text(TWO + FIRST + trained(1))
    (tmp_path / "worker.err").write_text(went_on(1))
    (tmp_path / "worker.out").write_text(TWO + trained(2))
    assert status(judge(tmp_path, "checkpoint"), VARIANTS)[0] is Status.PASS


def test_metrics_of_the_first_process_are_no_steps_of_the_second(tmp_path: Path) -> None:
    (tmp_path / "a.log").write_text(TWO + FIRST + trained(1))
    (tmp_path / "b.log").write_text(TWO + went_on(1))
    records = (
        {"step": step, "data": {"training/global_step": step, "actor/grad_norm": 0.4}} for step in (1, 2)
    )
    (tmp_path / "m.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    assert status(judge(tmp_path, "checkpoint"), VARIANTS)[0] is Status.FAIL


# -- knobs -------------------------------------------------------------------------------------------

KNOB = "+ export USE_MEGATRON_FSDP=True\n+ USE_MEGATRON_FSDP=True\n"


@pytest.mark.parametrize(
    ("text", "want", "part"),
    [
        (KNOB, Status.BLOCKED, "jobspec found no line with `use_megatron_fsdp`"),
        (f"{KNOB}(WorkerDict pid=1) FullyShardedDataParallel contains 1.00M parameters\n", Status.PASS, ""),
        (f"{KNOB}(WorkerDict pid=1)   'use_megatron_fsdp': True,\n", Status.PASS, ""),
        (f"{KNOB}(WorkerDict pid=1)   'use_megatron_fsdp': False,\n", Status.FAIL, "the run used DDP"),
        (
            "(WorkerDict pid=1)   'use_megatron_fsdp': True,\n"
            "(WorkerDict pid=1) DistributedDataParallel contains 1.00M parameters\n",
            Status.BLOCKED,
            "DDP around the model",
        ),
    ],
)
def test_variable_of_the_shell_proves_no_knob(text: str, want: Status, part: str, tmp_path: Path) -> None:
    (tmp_path / "x.log").write_text(text + trained(1, saves=False))
    found, reason = status(judge(tmp_path, "fsdp"), VARIANTS)
    assert found is want and part in reason


def test_release_without_the_knob_is_told(tmp_path: Path) -> None:
    config = configuration()
    del config["actor_rollout_ref"]["actor"]["megatron"]["use_megatron_fsdp"]
    (tmp_path / "x.log").write_text(KNOB + log(config, 1))
    verdict = judge(tmp_path, "fsdp")
    found, reason = status(verdict, VARIANTS)
    assert found is Status.BLOCKED and "this release does not have it" in reason
    assert "DDP" not in status(verdict, RUN)[1]  # no line names what was around the model


def test_frame_of_fsdp_workers_shows_another_engine(tmp_path: Path) -> None:
    steps = (f"step:{step} - actor/grad_norm:0.2 - training/global_step:{step}" for step in range(1, 9))
    frame = '  File "/workspace/verl/verl/workers/fsdp_workers.py", line 640, in update_actor'
    oom = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 116.00 MiB."
    (tmp_path / "run.log").write_text(
        "\n".join((*steps, "Traceback (most recent call last):", frame, oom, ""))
    )
    verdict = judge(tmp_path, steps=40)
    assert status(verdict, RUN)[1].startswith(
        "an engine other than Megatron is set; trained steps read: 8 of 40"
    )
    assert not any("parity" in text for text in verdict.limitations)


def test_missing_steps_stand_behind_the_last_one(tmp_path: Path) -> None:
    steps = (f"step:{step} - actor/grad_norm:0.2 - training/global_step:{step}" for step in range(1, 9))
    (tmp_path / "run.log").write_text("\n".join((*steps, "")))
    item = judge(tmp_path, steps=40).deliverable(RUN)
    assert item is not None and item.evidence[0].line == 8
    assert item.reason == "not shown: 8 trained steps of 40 were read; step 9 is the first missing one"
