"""What files of a verl run prove, and what they do not."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from jobspec.evidence.evidence import Attempt, CommandResult, Evidence, LogFile, Results
from jobspec.frameworks import get
from jobspec.frameworks.verl.judge import CAPTURE, RUN
from jobspec.frameworks.verl.variants import NAME as VARIANTS
from jobspec.metrics import read_metrics
from jobspec.plan import Plan
from jobspec.verdict import Deliverable, Status
from tests.kits.verl_kit import context, plan_of

IMPORT = "Local Bridge import in verl"
FIXTURES = Path(__file__).parents[2] / "fixtures"
HEAD = """\
+ VANILLA_MBRIDGE=False
+ VALUE_VANILLA_MBRIDGE=False
+ python3 -m verl.trainer.main_ppo --config-name=ppo_megatron_trainer.yaml {trace}
(TaskRunnerV1 pid=1)   'vanilla_mbridge': False,
(TaskRunnerV1 pid=1)   {config}
(WorkerDict pid=2)   Adapter parameters:   2,523,136
"""
RESUME = """\
(TaskRunnerV1 pid=1) INFO:x:Resuming from /c/global_step_1, setting global step to 1
(WorkerDict pid=2) [Rank 0] Loaded PEFT adapter checkpoint from /c/global_step_1/actor/model/dist_ckpt
(WorkerDict pid=2) [Rank 0] Loaded optimizer checkpoint from /c/global_step_1/actor/optimizer/dist_ckpt
(WorkerDict pid=2) [Rank 0] Loaded PEFT adapter checkpoint from /c/global_step_1/critic/model/dist_ckpt
(WorkerDict pid=2) [Rank 0] Loaded optimizer checkpoint from /c/global_step_1/critic/optimizer/dist_ckpt
"""


def step(number: int, **more: float | None) -> dict[str, Any]:
    data = {"training/global_step": number, "actor/pg_loss": 0.1, "actor/kl_loss": 0.001 * (number - 1)}
    data |= {"actor/grad_norm": 0.5, "critic/vf_loss": 0.2, "critic/rewards/mean": 0.1 * number}
    return {"step": number, "data": {**data, **{key.replace("__", "/"): v for key, v in more.items()}}}


def printed(number: int) -> str:
    return f"(TaskRunnerV1 pid=1) step:{number} - actor/grad_norm:0.5 - training/global_step:{number}\n"


class Run:
    """A run directory in `tmp_path`, healthy unless a test changes it."""

    def __init__(self, root: Path, level: str = "smoke", **spec: Any) -> None:
        self.root = root
        self.plan: Plan = plan_of(context(level, **spec))
        self.codes: Mapping[str, int] = {}
        self.imports = {"megatron.bridge": {"n1": "/src/bridge/src/megatron/bridge/__init__.py"}}

    def log(self, text: str, name: str = "train", trace: str = "", config: str = "'x': 1") -> Run:
        (self.root / f"{name}.log").write_text(HEAD.format(trace=trace, config=config) + text)
        return self

    def metrics(self, *records: dict[str, Any], name: str = "train") -> Run:
        (self.root / "metrics").mkdir(exist_ok=True)
        text = "".join(json.dumps(record) + "\n" for record in records)
        (self.root / "metrics" / f"{name}.jsonl").write_text(text)
        return self

    def checkpoint(
        self, number: int, tracker: str = "", manifests: tuple[str, ...] = ("actor", "critic")
    ) -> Run:
        folder = self.root / "checkpoints" / f"global_step_{number}"
        for role in ("actor", "critic"):
            (folder / role / "model").mkdir(parents=True)
            (folder / role / "model" / "x").write_text("x")
            if role in manifests:
                (folder / role / "ckpt_contents.json").write_text("{}")
        (folder / "data.pt").write_text("x")
        (folder.parent / "latest_checkpointed_iteration.txt").write_text(tracker or str(number))
        return self

    def judged(self) -> dict[str, Deliverable]:
        logs = tuple(LogFile(p.name, "n1", p.stat().st_size) for p in sorted(self.root.glob("*.log")))
        commands = tuple(CommandResult(name, code) for name, code in self.codes.items())
        results = Results("ok", 0, commands=commands, imports=self.imports, file="results.json")
        table = read_metrics(self.root / "metrics", relative_to=self.root)
        attempt = Attempt(1, "attempts/1", results=results, logs=logs, metrics=table)
        return {
            item.name: item for item in get("verl").judge(Evidence(self.root, self.plan, attempts=(attempt,)))
        }


# -- level 0 -----------------------------------------------------------------------------------------


def test_healthy_smoke(tmp_path: Path) -> None:
    found = Run(tmp_path).log(printed(1)).metrics(step(1)).judged()
    assert [found[name].status for name in (IMPORT, RUN, CAPTURE)] == [Status.PASS] * 3
    assert found[VARIANTS].status is Status.NOT_REQUESTED
    assert "VANILLA_MBRIDGE=False" in found[RUN].evidence[0].text


@pytest.mark.parametrize(
    "text",
    [
        "Training Progress: 100%|##########| 1/1 [00:00<?, ?it/s]\n",
        "(TaskRunnerV1 pid=1) step:1 - val-core/openai/gsm8k/acc/mean@1:np.float64(0.3)\n",
    ],
)
def test_bar_and_validation_are_no_step(tmp_path: Path, text: str) -> None:
    found = Run(tmp_path).log(text).metrics({"step": 1, "data": {"val-core/x": 0.3}}).judged()
    assert found[RUN].status is Status.FAIL
    assert found[RUN].reason == "jobspec found no line and no record of a trained step"


def test_console_serves_where_the_file_logger_left_nothing(tmp_path: Path) -> None:
    found = Run(tmp_path).log(printed(1)).judged()
    assert found[RUN].status is Status.PASS
    assert found[CAPTURE].status is Status.PASS


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("VANILLA_MBRIDGE=False\n", "VANILLA_MBRIDGE=True\n", "`vanilla_mbridge` is True"),
        ("'vanilla_mbridge': False", "'vanilla_mbridge': True", "`vanilla_mbridge` is True"),
        ("ppo_megatron_trainer", "ppo_trainer", "an engine other than Megatron"),
        ("2,523,136", "0", "the LoRA adapter has no trainable parameter"),
    ],
)
def test_wrong_trainer_or_path_is_no_pass(tmp_path: Path, old: str, new: str, reason: str) -> None:
    run = Run(tmp_path).log(printed(1)).metrics(step(1))
    log = tmp_path / "train.log"
    log.write_text(log.read_text().replace(old, new, 1))
    found = run.judged()[RUN]
    assert found.status is Status.FAIL
    assert reason in found.reason


def test_null_of_the_file_logger_is_not_finite(tmp_path: Path) -> None:
    found = Run(tmp_path).log(printed(1)).metrics(step(1, actor__grad_norm=None)).judged()[RUN]
    assert (found.status, found.evidence[0].metric) == (Status.FAIL, "actor/grad_norm")


def test_missing_step_and_failed_command(tmp_path: Path) -> None:
    run = Run(tmp_path, train={"steps": 3}).log("").metrics(step(1), step(3))
    assert "step 2 is the first missing" in run.judged()[RUN].reason
    run.codes = {"train": 1}
    assert run.judged()[RUN].reason == "`train` exited with 1"


def test_other_or_unknown_bridge_is_blocked(tmp_path: Path) -> None:
    run = Run(tmp_path).log(printed(1))
    run.imports = {"megatron.bridge": {"n1": "/usr/lib/site-packages/megatron/bridge/__init__.py"}}
    assert (run.judged()[IMPORT].status, "void" in run.judged()[IMPORT].reason) == (Status.BLOCKED, True)
    run.imports = {}
    assert run.judged()[IMPORT].status is Status.BLOCKED


# -- level 1 -----------------------------------------------------------------------------------------


def resumed(root: Path) -> Run:
    run = Run(root, "checkpoint").log(printed(1)).log(RESUME + printed(2), "resume").checkpoint(2)
    return run.metrics(step(1)).metrics(step(2), name="resume")


def test_save_and_resume(tmp_path: Path) -> None:
    found = resumed(tmp_path).judged()
    assert (found[RUN].status, found[VARIANTS].status) == (Status.PASS, Status.PASS)


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("setting global step to 1", "x", "jobspec found no line that shows that training continued"),
        ("critic/optimizer", "actor/optimizer", "critic optimizer"),
        ("Loaded PEFT adapter", "Skipped PEFT adapter", "actor model"),
        ("step:2 - ", "step:1 - val-core/x:0.1\n", "the resume trained steps"),
        ("INFO:x:Resuming", "Training from scratch\nResuming", "Training from scratch"),
    ],
)
def test_half_a_resume_is_no_pass(tmp_path: Path, old: str, new: str, reason: str) -> None:
    run = resumed(tmp_path)
    (tmp_path / "metrics" / "resume.jsonl").unlink()
    log = tmp_path / "resume.log"
    log.write_text(log.read_text().replace(old, new))
    found = run.judged()[VARIANTS]
    assert found.status is Status.FAIL
    assert reason in found.reason


@pytest.mark.parametrize(
    ("saved", "reason"),
    [
        ({"number": 1}, "no checkpoint of step 2"),
        ({"number": 2, "tracker": "1"}, "says step 1, not 2"),
        ({"number": 2, "manifests": ("actor",)}, "`critic` of step 2 has no `ckpt_contents.json`"),
    ],
)
def test_half_a_save_is_no_pass(tmp_path: Path, saved: dict[str, Any], reason: str) -> None:
    run = Run(tmp_path, "checkpoint").log(RESUME + printed(2), "resume").checkpoint(**saved)
    assert reason in run.judged()[VARIANTS].reason


def test_old_layout_has_no_manifests(tmp_path: Path) -> None:
    run = Run(tmp_path, "checkpoint").log(printed(1)).log(RESUME + printed(2), "resume")
    assert run.checkpoint(2, manifests=()).judged()[VARIANTS].status is Status.PASS


# -- levels 2 to 5 -----------------------------------------------------------------------------------

SIZES = "actor_rollout_ref.actor.megatron.tensor_model_parallel_size=2"


@pytest.mark.parametrize(
    ("trace", "config", "status"),
    [
        (SIZES, "'pipeline_model_parallel_size': 2,", Status.PASS),
        (SIZES, "'pipeline_model_parallel_size': 1,", Status.FAIL),
        (SIZES, "'virtual_pipeline_model_parallel_size': 2,", Status.BLOCKED),
        ("", "'tensor_model_parallel_size': 2, 'pipeline_model_parallel_size': 2,", Status.BLOCKED),
    ],
)
def test_sizes_must_be_in_the_configuration(tmp_path: Path, trace: str, config: str, status: Status) -> None:
    found = (
        Run(tmp_path, "parallel", coverage={"variants": ["dense"]})
        .log(printed(1), trace=trace, config=config)
        .judged()
    )
    assert found[VARIANTS].status is status


@pytest.mark.parametrize(("value", "status"), [("True", Status.PASS), ("False", Status.FAIL)])
def test_fsdp_must_be_in_the_configuration(tmp_path: Path, value: str, status: Status) -> None:
    found = Run(tmp_path, "fsdp").log(printed(1), config=f"'use_megatron_fsdp': {value},").judged()
    assert found[VARIANTS].status is status


@pytest.mark.parametrize(("line", "status"), [("R3", Status.PASS), ("disabled", Status.FAIL)])
def test_feature_must_be_shown(tmp_path: Path, line: str, status: Status) -> None:
    key = "actor_rollout_ref.actor.megatron.router_replay.mode"
    found = Run(tmp_path, "architecture").log(printed(1), trace=f"{key}={line}").judged()
    assert found[VARIANTS].status is status


@pytest.mark.parametrize("trace", ["", "++actor_rollout_ref.actor.megatron.router_replay.mode=R3"])
def test_variable_or_added_key_proves_no_feature(tmp_path: Path, trace: str) -> None:
    """A release without the key reads neither of them."""
    found = Run(tmp_path, "architecture").log(f"+ ROUTING_REPLAY_MODE=R3\n{printed(1)}", trace=trace).judged()
    assert found[VARIANTS].status is Status.BLOCKED


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({}, ""),
        ({"actor__kl_loss": 0.0}, "an adapter is frozen"),
        ({"actor__grad_norm": 0.0}, "0 in 20 of 20 logged steps"),
        ({"critic__rewards__mean": 0.5}, "critic/rewards/mean"),
    ],
)
def test_learning_needs_a_trend_and_live_gradients(
    tmp_path: Path, change: dict[str, float], reason: str
) -> None:
    run = Run(tmp_path, "learning").log("").metrics(*(step(n, **change) for n in range(1, 21)))
    found = run.judged()[VARIANTS]
    assert found.status is (Status.FAIL if reason else Status.PASS)
    assert reason in found.reason


def test_few_steps_neither_prove_nor_disprove_learning(tmp_path: Path) -> None:
    found = Run(tmp_path, "learning").log("").metrics(*(step(n) for n in range(1, 6))).judged()[VARIANTS]
    assert found.status is Status.BLOCKED
    assert "not shown" in found.reason and "too few" in found.reason


# -- real formats ------------------------------------------------------------------------------------


def test_sample_of_a_resumed_run(tmp_path: Path) -> None:
    run = Run(tmp_path, "checkpoint").checkpoint(2)
    (tmp_path / "verl.log").write_bytes((FIXTURES / "verl_log_example.txt").read_bytes())
    found = run.judged()
    assert (found[RUN].status, found[VARIANTS].status) == (Status.PASS, Status.PASS)


def test_sample_of_the_legacy_trainer(tmp_path: Path) -> None:
    run = Run(tmp_path)
    (tmp_path / "verl.log").write_bytes((FIXTURES / "verl_log_example_legacy.txt").read_bytes())
    assert run.judged()[RUN].status is Status.PASS


def test_samples_of_failures_pass_nothing(tmp_path: Path) -> None:
    run = Run(tmp_path)
    (tmp_path / "verl.log").write_bytes((FIXTURES / "verl_log_example_failures.txt").read_bytes())
    assert run.judged()[RUN].status is not Status.PASS
