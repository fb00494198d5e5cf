"""What a run under RLix proves, from logs as its driver prints them: no pipeline hides behind another."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from jobspec import frameworks
from jobspec.evidence.evidence import Artifact, CommandResult, PhaseResult, Results
from jobspec.frameworks.rlix.judge import judge
from jobspec.judging.judge import judge as judge_run
from jobspec.judging.not_proved import limitations
from jobspec.metrics import Row, Table
from jobspec.plan import LearningPlan
from jobspec.triage import scan_lines
from jobspec.verdict import Result, Status
from tests.frameworks.rlix.rlix_log_kit import (
    IDS,
    PARTS,
    STEPS,
    F,
    Lines,
    P,
    actor,
    changed,
    evidence,
    failed,
    healthy,
    judged,
    metrics,
    plan,
    without,
)


@pytest.mark.parametrize("ahead", [0, 1], ids=["version is the step", "version is the step after"])
def test_healthy_run_passes_with_every_deliverable(tmp_path: Path, ahead: int) -> None:
    found = judged(tmp_path, healthy(ahead=ahead))
    assert not failed(found)
    assert list(found) == [
        *(f"{name}: {part}" for name in IDS for part in PARTS), "Pipelines", "GPUs shared between pipelines",
    ]  # fmt: skip
    assert found["Pipelines"].reason == "2 of 2 pipelines returned"
    assert f"versions {ahead} to {STEPS - 1 + ahead}" in found["two: Weight version"].reason
    assert all(item.evidence for item in found.values())


def test_healthy_log_matches_no_signature() -> None:
    assert not scan_lines(healthy())


UNEQUAL = (
    "\x1b[36m(VllmGenerationWorker pid=9)\x1b[0m RuntimeError: verify_model: sum mismatch: "
    "expected=12.500000 actual=-3.000000"
)


@pytest.mark.parametrize(
    ("asked", "shown", "unequal", "status"),
    [
        ("", (), False, None),
        ("one", (), False, Status.SKIPPED),
        ("one", ("one",), False, P),
        ("one,two", ("one",), False, Status.SKIPPED),
        ("one", ("one",), True, F),
        ("", (), True, F),
    ],
)
def test_weights_are_compared_by_rlix_itself(
    tmp_path: Path, asked: str, shown: tuple[str, ...], unequal: bool, status: Status | None
) -> None:
    """Only a difference is printed for pipelines of NeMo-RL, so its absence proves nothing."""
    lines = [f"[ModelUpdateService] verify_model_ok pipeline_id={IDS[name]} sync_id=1" for name in shown]
    lines += [UNEQUAL] * unequal
    options = {"verify": asked} if asked else {}
    found = judged(tmp_path, [*healthy(), *lines], asked=plan(options=options))
    told = found.get("Weights compared")
    assert (told.status if told else None) is status
    if told is not None and told.status is F:
        assert "expected=12.500000 actual=-3.000000" in told.reason
    assert told is None or told.required == (told.status is F)


def swallowed(lines: Lines) -> Lines:
    """Pipeline two breaks in step 1, and returns: NeMo-RL prints the error and goes on."""
    kept = without(without(lines, IDS["two"], "step=1"), IDS["two"], "step=2")
    at = next(i for i, line in enumerate(kept) if IDS["two"] in line and "returned" in line)
    return [*kept[:at], actor("two", "❌ Error in async loop: CUDA out of memory"), *kept[at:]]


def raised(lines: Lines) -> Lines:
    at = next(i for i, line in enumerate(lines) if f"{IDS['two']} run() returned" in line)
    trace = [
        f"pipeline {IDS['two']} run() raised: RayTaskError(RuntimeError): "
        "\x1b[36mray::NemoRLFullFinetunePipeline.run()\x1b[39m (pid=101, ip=10.0.0.1)",
        '  File "/src/rlix/rlix/pipeline/nemo_rl_pipeline.py", line 641, in _expand_workers',
        "RuntimeError: sleep_partial failed for dp_ranks=[0]",
    ]
    return [*lines[:at], *trace, *lines[at + 1 : -1], "done!!! successes=1 failures=1"]


def not_shrunk(lines: Lines) -> Lines:
    """What RLix prints where there are no engines yet: the beginning, and that it does nothing."""
    skip = actor("two", f"[{IDS['two']}] _shrink_workers: policy_generation not initialized yet; skipping")
    begins = [IDS["two"] in line and "_shrink_workers START" in line for line in lines]
    return [
        text for line, found in zip(lines, begins, strict=True) for text in (line, *([skip] if found else []))
    ]


FAULTS: list[tuple[str, Callable[[Lines], Lines], dict[str, int], set[str], str]] = [
    ("one pipeline raises", raised, {"one": 3, "two": 3}, {"Pipelines", "two: Run"},
     "the pipeline raised RuntimeError: sleep_partial failed for dp_ranks=[0]"),
    ("a loop breaks and returns", swallowed, {"one": 3, "two": 1},
     {"two: Run", "two: Training", "two: Weight version"},
     "the pipeline returned, but its training loop broke: CUDA out of memory"),
    ("fewer steps than planned", lambda lines: lines, {"one": 3, "two": 2}, {"two: Training"},
     "2 of 3 planned train steps ran; step 3 is the first missing one"),
    ("weights keep their version", lambda lines: changed(lines, "version=3, actor", "version=2, actor"),
     {"one": 3, "two": 3}, {"one: Weight version", "two: Weight version"},
     "train step 2, counted from 0, published version 2"),
    ("no weights of the last step", lambda lines: without(lines, IDS["one"], "after_training step=2"),
     {"one": 3, "two": 3}, {"one: Weight version"}, "train step 2, counted from 0, published weights"),
    ("engines never wake", lambda lines: without(lines, IDS["two"], "_expand_workers DONE"),
     {"one": 3, "two": 3}, {"two: GPU time-sharing"}, "an engine that was woken after a train step"),
    ("engines never sleep", lambda lines: without(lines, IDS["one"], "_shrink_workers"),
     {"one": 3, "two": 3}, {"one: GPU time-sharing"}, "no line that shows an engine that was put to sleep"),
    ("engines wake with old weights", lambda lines: [
        re.sub(r"weight_version=\d", "weight_version=0", line) if IDS["two"] in line else line
        for line in lines], {"one": 3, "two": 3}, {"two: GPU time-sharing"},
     "engines woke with weights of version 0, older than the first train step's"),
    ("engines wake without weights", lambda lines: [
        *lines[:30], actor("one", f"[{IDS['one']}] _expand_workers FAILED during sync/version/activate. "
                                  "Ranks [0] are woken but inactive (not in routing)."), *lines[30:]],
     {"one": 3, "two": 3}, {"one: GPU time-sharing"},
     "RLix says that waking engines, or giving them weights, failed"),
    ("no weights of the first step", lambda lines: without(lines, IDS["one"], "after_training step=0"),
     {"one": 3, "two": 3}, {"one: Weight version"}, "train step 0, counted from 0, published weights"),
    ("a step without its beginning", lambda lines: without(lines, IDS["two"], "step=1 — actor_train GPUs"),
     {"one": 3, "two": 3}, {"two: Weight version"},
     "jobspec found no line that shows when train step 1, counted from 0, got its GPUs"),
    ("no engines to put to sleep", not_shrunk,
     {"one": 3, "two": 3}, {"two: GPU time-sharing"}, "no line that shows an engine that was put to sleep"),
    ("the driver is cut off", lambda lines: lines[:-1], {"one": 3, "two": 3}, {"Pipelines"},
     "the driver's last line, `done!!!`, was not found"),
    ("the end of one is not in the log", lambda lines: without(lines, IDS["two"], "returned"),
     {"one": 3, "two": 3}, {"two: Run"}, "the pipeline's end is not in the log"),
]  # fmt: skip


@pytest.mark.parametrize(("break_it", "steps", "names", "reason"), [row[1:] for row in FAULTS],
                         ids=[row[0] for row in FAULTS])  # fmt: skip
def test_fault_fails_what_it_is_about_and_nothing_else(
    tmp_path: Path, break_it: Callable[[Lines], Lines], steps: dict[str, int], names: set[str], reason: str
) -> None:
    found = judged(tmp_path, break_it(healthy()), metrics(steps))
    assert failed(found) == names, {name: item.reason for name, item in found.items()}
    assert any(reason in item.reason for item in found.values())


def test_steps_out_of_turn_fail(tmp_path: Path) -> None:
    """The next step begins before the weights of the last one are out: engines would answer with old ones."""
    lines = healthy()
    late = next(
        line for line in lines if IDS["one"] in line and "after_training step=0" in line and "version" in line
    )
    lines.remove(late)
    at = next(
        i for i, line in enumerate(lines) if IDS["one"] in line and "step=1" in line and "granted" in line
    )
    lines.insert(at + 1, late)
    found = judged(tmp_path, lines)
    reason = found["one: Weight version"].reason
    assert reason == "train step 1, counted from 0, began before step 0 had published its weights"
    assert len(found["one: Weight version"].evidence) == 2


def test_metrics_that_are_not_finite_fail_their_pipeline_alone(tmp_path: Path) -> None:
    found = judged(tmp_path, healthy(), metrics(bad="two"))
    assert failed(found) == {"two: Training"}
    assert "not a finite number" in found["two: Training"].reason


def test_pipelines_one_after_the_other_share_nothing(tmp_path: Path) -> None:
    one, two = (without(healthy(), IDS[other], "RLIX_") for other in ("two", "one"))
    lines = [*(line for line in one if "RLIX_" in line), *(line for line in two if "RLIX_" in line)]
    lines = ["pair-init barrier armed on " + IDS["one"], *lines, *healthy()[-5:]]
    found = judged(tmp_path, lines)
    assert failed(found) == {"GPUs shared between pipelines"}
    smoke = judged(tmp_path, lines, asked=plan("smoke"))
    assert not smoke["GPUs shared between pipelines"].required


def test_scheduler_that_stops_ray_fails_all(tmp_path: Path) -> None:
    cut = healthy()[:20]
    cut += ["(Orchestrator pid=90) ERROR orchestrator.shutdown called: force=True "
            "reason='scheduler_cycle_failed: ValidationError' source='scheduler'"]  # fmt: skip
    found = judged(tmp_path, cut, metrics({"one": 1}))
    assert found["Pipelines"].reason == (
        "RLix was told to stop Ray for all pipelines: scheduler_cycle_failed: ValidationError"
    )
    assert {"one: Run", "two: Run"} <= failed(found)


def test_pipeline_that_was_never_registered_is_named(tmp_path: Path) -> None:
    found = judged(tmp_path, healthy(("one",)), metrics({"one": STEPS}))
    assert found["two: Run"].reason == "jobspec found no line that names the pipeline"
    assert found["Pipelines"].reason == "1 of 2 pipelines returned"
    assert not {name for name in failed(found) if name.startswith("one:")}


def test_each_pipeline_has_its_own_requirements(tmp_path: Path) -> None:
    asked = plan()
    parts = tuple(replace(part, metrics_require=("max(train/reward) > 0.5",)) for part in asked.expect.parts)
    asked = replace(asked, expect=replace(asked.expect, parts=parts))
    table = Table((*metrics(), Row("one/train/reward", STEPS, 0.9)))
    found = judged(tmp_path, healthy(), table, asked)
    assert found["one: Required metrics"].status is P
    assert found["two: Required metrics"].status is F


def test_learning_is_judged_for_each_pipeline(tmp_path: Path) -> None:
    asked = plan()
    parts = tuple(replace(part, learning=LearningPlan("train/reward")) for part in asked.expect.parts)
    asked = replace(asked, expect=replace(asked.expect, parts=parts))
    rows = [Row("one/train/reward", step, step / 10) for step in range(1, 31)]
    rows += [Row("two/train/reward", step, 0.5) for step in range(1, 31)]
    found = judged(tmp_path, healthy(), Table((*metrics(), *rows)), asked)
    assert (found["one: Learning"].status, found["two: Learning"].status) == (P, F)
    whole = plan(learning=LearningPlan("one/train/reward"))
    assert judged(tmp_path, healthy(), Table((*metrics(), *rows)), whole)["Learning"].status is P


def test_checkpoint_of_the_last_step_is_looked_for_in_each_folder(tmp_path: Path) -> None:
    for name, step in (("one", STEPS), ("two", 2)):
        (tmp_path / f"checkpoints/{name}/step_{step}/policy").mkdir(parents=True)
        (tmp_path / f"checkpoints/{name}/step_{step}/policy/weights").write_text("x")
    found = judged(tmp_path, healthy(), asked=plan(checkpoint=True))
    assert (found["one: Checkpoint"].status, found["two: Checkpoint"].status) == (P, F)
    assert "of step 2, not of step 3" in found["two: Checkpoint"].reason


@pytest.mark.parametrize(("size", "status"), [(None, F), (0, F), (2048, P)])
def test_trace_must_have_been_brought_home(tmp_path: Path, size: int | None, status: Status) -> None:
    seen = evidence(tmp_path, healthy(), asked=plan(variants=("trace",)))
    path = "rlix/trace/rlix_gpu_timeline_1.perfetto-trace"
    kept = () if size is None else (Artifact(path, size, present=True),)
    found = {item.name: item for item in judge(replace(seen, artifacts=kept))}
    assert found["GPU trace"].status is status


def test_driver_that_exits_with_0_is_no_pass(tmp_path: Path) -> None:
    """The whole verdict: exit code 0, one pipeline of two failed."""
    seen = evidence(tmp_path, raised(healthy()))
    phases = tuple(PhaseResult(name, "ok") for name in ("preflight", "ray", "driver", "collect"))
    commands = tuple(CommandResult(name, 0, log="rlix.log") for name in ("cache-link", "rlix"))
    results = Results("ok", 0, phases=phases, commands=commands)
    asked = replace(seen.plan, collect=replace(seen.plan.collect, patterns=()), stage=())
    attempts = (replace(seen.attempts[0], results=results),)
    verdict = judge_run(replace(seen, plan=asked, attempts=attempts), frameworks.get("rlix"))
    assert verdict.result is Result.FAIL
    assert verdict.first_cause is not None
    assert "sleep_partial failed" in verdict.first_cause.text


def test_pipeline_that_broke_before_its_first_step_is_told_by_its_cause(tmp_path: Path) -> None:
    """The run ends the driver then, which has said nothing of how its pipelines ended."""
    said = "jobspec: pipeline `one` broke before its first train step: RuntimeError: no CUDA"
    found = judged(tmp_path, [healthy()[0], said], Table(()))
    assert found["one: Run"].reason == "the pipeline broke before its first train step: RuntimeError: no CUDA"
    assert found["two: Run"].reason == "the run ended before the pipeline returned, since `one` broke"
    assert found["Pipelines"].reason.startswith(
        "jobspec ended the run: `one` broke before its first train step"
    )
    assert {found[name].evidence[0].text for name in ("one: Run", "two: Run", "Pipelines")} == {said}


def test_only_the_run_itself_says_that_a_pipeline_broke(tmp_path: Path) -> None:
    text = "jobspec: pipeline `one` broke before its first train step: says a model"
    assert failed(judged(tmp_path, [*healthy(), actor("one", text), f"the answer: {text}"])) == set()


def test_learning_of_pipelines_is_no_convergence(tmp_path: Path) -> None:
    asked = plan("learning")
    asked = replace(asked, expect=frameworks.get("rlix").levels[2].stated_in(asked.expect))
    told = limitations(evidence(tmp_path, [], asked=asked))
    assert "a learning signal is no convergence" in told
    assert not [text for text in told if "no learning signal was asked for" in text]
