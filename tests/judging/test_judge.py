"""The rules of a verdict: what passes, what blocks, which cause comes first, what is not claimed."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from jobspec.evidence.evidence import Evidence
from jobspec.evidence.read import read_evidence
from jobspec.frameworks.base import Level
from jobspec.judging.judge import decide, judge
from jobspec.plan import ImportProof, SlurmPlan
from jobspec.report import render_report
from jobspec.verdict import Deliverable, Result, Status, Verdict
from tests.kits.verdict_kit import PHASES, PLAN, T0, RunFolder, StandInFramework, learning_rows, passing_run

DISK = "OSError: [Errno 28] No space left on device"
# Before the first train step it would only say that the run is too large for these GPUs.
STEP = "step:1 - actor/loss:0.5 - training/global_step:1"
OOM = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB"
ASSERT = "RuntimeError: CUDA error: device-side assert triggered"


def verdict_of(run: RunFolder) -> Verdict:
    return judge(read_evidence(run.root), StandInFramework())


def status(verdict: Verdict, name: str) -> Status:
    item = verdict.deliverable(name)
    assert item is not None
    return item.status


def failing_run(root: Path, log: str = "", exit_code: int = 1) -> RunFolder:
    """A run whose driver started and ended badly."""
    run = RunFolder(root)
    for phase in PHASES:
        run.phase(phase, outcome="failed" if phase == "driver" else "ok")
    run.metrics(learning_rows(20))
    if log:
        run.log(log)
    run.write()
    run.results("failed", exit_code)
    return run


def stopped_run(
    root: Path, phase: str, rule: str = "preflight.canary", what: str = "no shared folder"
) -> RunFolder:
    """A run that ended before its driver."""
    run = RunFolder(root)
    for earlier in PHASES[: PHASES.index(phase)]:
        run.phase(earlier)
    run.event(phase, "start")
    run.finding(phase, rule, what, node="n2", why="because", fix="do this")
    run.event(phase, "end", outcome="blocked", seconds=1.0)
    run.write()
    run.results("blocked", 3, commands=[])
    return run


def test_all_proved_is_a_pass(tmp_path: Path) -> None:
    verdict = verdict_of(passing_run(tmp_path))
    assert (verdict.result, verdict.exit_code, verdict.level) == (Result.PASS, 0, "learning")
    assert {item.status for item in verdict.deliverables} == {Status.PASS}
    assert verdict.first_cause is None


def test_every_pass_of_a_phase_names_its_evidence(tmp_path: Path) -> None:
    verdict = verdict_of(passing_run(tmp_path))
    named = [item for item in verdict.deliverables if item.name != "Training steps"]
    assert all(item.evidence and item.evidence[0].file for item in named)


def test_figures_are_first_and_last_tenth(tmp_path: Path) -> None:
    figures = {figure.name: figure for figure in verdict_of(passing_run(tmp_path)).figures}
    assert next(iter(figures)) == "reward"
    assert figures["reward"].first < 0.25 and figures["reward"].last == pytest.approx(0.84)


@pytest.mark.parametrize("phase", ["preflight", "stage", "helpers", "imports", "ray"])
def test_finding_before_the_driver_blocks_and_names_its_node(tmp_path: Path, phase: str) -> None:
    verdict = verdict_of(stopped_run(tmp_path, phase))
    assert (verdict.result, verdict.exit_code) == (Result.BLOCKED, 3)
    cause = verdict.first_cause
    assert cause is not None and (cause.node, cause.kind, cause.text) == (
        "n2",
        "preflight.canary",
        "no shared folder",
    )
    assert cause.line > 0 and cause.fix == "do this"
    assert verdict.reason == "no shared folder"
    assert status(verdict, "Run") is Status.SKIPPED


def test_earliest_finding_over_all_nodes_wins(tmp_path: Path) -> None:
    run = RunFolder(tmp_path)
    run.event("preflight", "start")
    run.clock = T0 + 5
    run.finding("preflight", "preflight.late", "later", node="n1")
    run.clock = T0 + 2
    run.finding("preflight", "preflight.early", "earlier", node="n3")
    run.write()
    run.results("blocked", 3, commands=[])
    cause = verdict_of(run).first_cause
    assert cause is not None and cause.node == "n3"


def test_command_that_fails_without_a_known_cause_is_a_fail(tmp_path: Path) -> None:
    verdict = verdict_of(failing_run(tmp_path, exit_code=7))
    assert (verdict.result, verdict.exit_code) == (Result.FAIL, 1)
    assert verdict.first_cause is not None and "`train` exited with 7" in verdict.first_cause.text


@pytest.mark.parametrize(
    ("line", "result"), [(DISK, Result.BLOCKED), (OOM, Result.BLOCKED), (ASSERT, Result.FAIL)]
)
def test_cause_in_the_log_decides_between_fail_and_blocked(tmp_path: Path, line: str, result: Result) -> None:
    verdict = verdict_of(failing_run(tmp_path, f"{STEP}\n{line}\n"))
    assert verdict.result is result
    assert verdict.first_cause is not None
    assert (verdict.first_cause.file, verdict.first_cause.line) == ("attempts/1/logs/n1/train.log", 2)
    assert status(verdict, "Run") == result.value


def test_failed_run_passes_and_fails_nothing_else(tmp_path: Path) -> None:
    verdict = verdict_of(failing_run(tmp_path, DISK))
    for name in ("Training steps", "Required metrics"):
        assert status(verdict, name) is Status.SKIPPED


def test_failure_line_in_a_passing_run_is_only_a_warning(tmp_path: Path) -> None:
    run = passing_run(tmp_path)
    run.log(f"{DISK}\nretrying elsewhere\n")
    verdict = verdict_of(run)
    assert verdict.result is Result.PASS
    assert [finding.rule for finding in verdict.findings] == ["verdict.suspicious-line"]


def test_secret_in_a_log_is_a_warning_without_the_secret(tmp_path: Path) -> None:
    run = passing_run(tmp_path)
    run.log("+ export WANDB_API_KEY=abcdef0123\n")
    verdict = verdict_of(run)
    assert [finding.rule for finding in verdict.findings] == ["verdict.secret"]
    assert "abcdef0123" not in str(verdict)


def test_missing_results_are_no_pass_whatever_the_events_say(tmp_path: Path) -> None:
    run = passing_run(tmp_path)
    (run.folder / "results.json").unlink()
    verdict = verdict_of(run)
    assert verdict.result is Result.BLOCKED
    assert status(verdict, "Run") is Status.BLOCKED


def test_run_whose_head_was_ended_while_it_collected_is_no_pass(tmp_path: Path) -> None:
    run = passing_run(tmp_path)
    path = run.folder / "results.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "collecting": True}))
    verdict = verdict_of(run)
    assert (verdict.result, status(verdict, "Run")) == (Result.BLOCKED, Status.BLOCKED)
    reason = next(one.reason for one in verdict.deliverables if one.name == "Run")
    assert reason.startswith("every command exited with 0, and nothing says how the collection of its files")


def test_exit_code_zero_of_the_run_does_not_hide_a_command(tmp_path: Path) -> None:
    run = passing_run(tmp_path)
    run.results(commands=[{"name": "train", "exit_code": 1}])
    assert verdict_of(run).result is Result.FAIL


def test_planned_command_that_is_not_recorded_is_no_pass(tmp_path: Path) -> None:
    run = passing_run(tmp_path)
    run.results(commands=[])
    assert verdict_of(run).result is Result.FAIL


@pytest.mark.parametrize(("began", "word"), [(True, "did not end on its own"), (False, "did not start")])
def test_unrecorded_command_is_told_by_how_far_it_came(tmp_path: Path, began: bool, word: str) -> None:
    run = passing_run(tmp_path)
    if began:
        run.event("driver", "progress", data={"what": "command", "name": "train"})
        run.write()
    run.results(commands=[])
    item = verdict_of(run).deliverable("Run")
    assert item is not None and word in item.reason


def test_phase_said_failed_by_results_is_no_pass(tmp_path: Path) -> None:
    run = passing_run(tmp_path)
    run.results(phases=[{"phase": "collect", "outcome": "failed", "start": 1, "end": 2}])
    verdict = verdict_of(run)
    assert verdict.result is Result.BLOCKED and status(verdict, "Artifacts") is Status.BLOCKED


def test_other_checkout_voids_a_run_that_did_well(tmp_path: Path) -> None:
    run = passing_run(tmp_path)
    run.results(imports={"megatron.bridge": {"n1": "/opt/venv/site-packages/megatron/bridge/__init__.py"}})
    verdict = verdict_of(run)
    assert verdict.result is Result.BLOCKED
    item = verdict.deliverable("Import proof")
    assert item is not None and "not from /src/Megatron-Bridge/src: the run is void" in item.reason


class OtherCheckout(StandInFramework):
    """A stand-in whose logs show another checkout than the import proof did, and a deliverable that fails."""

    def judge(self, evidence: Evidence) -> list[Deliverable]:
        reason = "`megatron.bridge` comes from /opt, not from /src: the run is void"
        return [
            Deliverable("Local import", Status.BLOCKED, reason=reason, settled=True),
            Deliverable("Training", Status.FAIL, reason="NaN"),
        ]


def test_other_checkout_that_only_a_log_shows_voids_as_well(tmp_path: Path) -> None:
    verdict = judge(read_evidence(passing_run(tmp_path).root), OtherCheckout())
    assert verdict.result is Result.BLOCKED


def test_folder_with_the_same_beginning_is_another_checkout(tmp_path: Path) -> None:
    plan = replace(PLAN, proofs=(ImportProof("m", "/src/repo"),))
    run = passing_run(tmp_path, plan)
    run.results(imports={"m": {"n1": "/src/repo-old/m.py"}})
    assert verdict_of(run).result is Result.BLOCKED


def test_import_not_seen_on_every_node_is_not_proved(tmp_path: Path) -> None:
    run = passing_run(tmp_path, replace(PLAN, nodes=2))
    assert status(verdict_of(run), "Import proof") is Status.BLOCKED


def test_unmet_requirement_fails_with_its_value(tmp_path: Path) -> None:
    run = passing_run(tmp_path)
    run.metrics([{**row, "reward": 0.1} for row in learning_rows()])
    verdict = verdict_of(run)
    assert verdict.result is Result.FAIL
    item = verdict.deliverable("Required metrics")
    assert item is not None and (item.evidence[0].metric, item.evidence[0].value) == ("reward", 0.1)


def test_nan_in_a_metric_of_the_framework_fails_unasked(tmp_path: Path) -> None:
    run = passing_run(tmp_path)
    rows = learning_rows()
    rows[30]["grad_norm"] = None
    run.metrics(rows)
    verdict = verdict_of(run)
    assert verdict.result is Result.FAIL
    item = verdict.deliverable("Required metrics")
    assert item is not None and "1 of 60 values of `grad_norm` are not finite" in item.reason


def test_skipped_update_fails_what_asks_for_every_value_and_stays_a_finding(tmp_path: Path) -> None:
    """A gradient norm that is a number again, beside a loss that always is one."""
    run = passing_run(tmp_path)
    rows = learning_rows()
    rows[0]["grad_norm"] = rows[30]["grad_norm"] = None
    run.metrics(rows)
    verdict = verdict_of(run)
    assert (verdict.result, status(verdict, "Required metrics")) == (Result.FAIL, Status.FAIL)
    assert any("at 2 of 60 logged steps" in finding.what for finding in verdict.findings)


def test_expected_file_that_is_missing_fails(tmp_path: Path) -> None:
    expect = replace(PLAN.expect, files=("*.txt", "dumped_evals/**"))
    verdict = verdict_of(passing_run(tmp_path, replace(PLAN, expect=expect)))
    assert verdict.result is Result.FAIL
    assert status(verdict, "Artifacts") is Status.FAIL


def test_collected_file_that_is_gone_blocks(tmp_path: Path) -> None:
    run = passing_run(tmp_path, replace(PLAN, expect=replace(PLAN.expect, files=())))
    (run.root / "artifacts" / "notes.txt").unlink()
    assert status(verdict_of(run), "Artifacts") is Status.BLOCKED


@pytest.mark.parametrize(
    ("state", "result"),
    [
        ("TIMEOUT", Result.BLOCKED),
        ("OUT_OF_MEMORY", Result.BLOCKED),
        ("PREEMPTED", Result.BLOCKED),
        ("NODE_FAIL", Result.BLOCKED),
        ("CANCELLED by 1000", Result.BLOCKED),
    ],
)
def test_scheduler_state_is_reported_for_what_it_is(tmp_path: Path, state: str, result: Result) -> None:
    run = RunFolder(tmp_path)
    for phase in PHASES[:5]:
        run.phase(phase)
    run.event("driver", "start")
    run.log("[Rank 3] Watchdog caught collective operation timeout\n")
    run.write()
    run.scheduler(state)
    verdict = verdict_of(run)
    assert verdict.result is result
    assert verdict.first_cause is not None and verdict.first_cause.kind == state.split(" ")[0]


def test_out_of_memory_names_the_limit_of_the_spec(tmp_path: Path) -> None:
    run = failing_run(tmp_path)
    run.plan = replace(PLAN, slurm=SlurmPlan(memory="4G"))
    run.write()
    run.scheduler("OUT_OF_MEMORY")
    verdict = verdict_of(run)
    assert verdict.result is Result.BLOCKED
    assert verdict.first_cause is not None and "limits it to 4G" in verdict.first_cause.why


def test_specific_line_explains_a_timeout_but_not_a_preemption(tmp_path: Path) -> None:
    run = failing_run(tmp_path, OOM)
    run.scheduler("TIMEOUT")
    explained = verdict_of(run).first_cause
    assert explained is not None and explained.kind == "gpu-memory"
    run.scheduler("PREEMPTED")
    outside = verdict_of(run).first_cause
    assert outside is not None and outside.kind == "PREEMPTED"


@pytest.mark.parametrize("state", ["TIMEOUT", "CANCELLED by 1000"])
def test_run_that_stood_still_is_a_stall_whatever_ended_it(tmp_path: Path, state: str) -> None:
    lines = [f"2026-11-28 10:{minute:02d}:00 step {minute} loss=0.5" for minute in range(1, 30)]
    end = "slurmstepd: error: *** JOB 7 ON n1 CANCELLED AT 2026-11-28T17:12:40 DUE TO TIME LIMIT ***"
    run = failing_run(tmp_path, "\n".join([*lines, end, ""]))
    run.scheduler(state)
    cause = verdict_of(run).first_cause
    assert cause is not None and (cause.kind, cause.verdict) == ("stall", Result.BLOCKED)
    assert cause.text == lines[-1]


@pytest.mark.parametrize(("outcome", "kind"), [("timeout", "TIMEOUT"), ("cancelled", "CANCELLED")])
def test_outcome_stands_in_where_no_scheduler_is(tmp_path: Path, outcome: str, kind: str) -> None:
    run = failing_run(tmp_path)
    run.results(outcome, 143)
    verdict = verdict_of(run)
    assert verdict.result is Result.BLOCKED
    assert verdict.first_cause is not None and verdict.first_cause.kind == kind


@pytest.mark.parametrize(
    ("state", "reason"),
    [("", "no attempt left"), ("PENDING", "is PENDING"), ("CANCELLED", "before anything ran")],
)
def test_nothing_ran_is_its_own_result(tmp_path: Path, state: str, reason: str) -> None:
    run = passing_run(tmp_path)
    (run.folder / "events.jsonl").unlink()
    (run.folder / "results.json").unlink()
    if state:
        run.scheduler(state)
    verdict = verdict_of(run)
    assert (verdict.result, verdict.exit_code) == (Result.NOTHING_RAN, 4)
    assert reason in verdict.reason


def test_container_that_does_not_start_is_blocked(tmp_path: Path) -> None:
    """The job got its nodes and no agent spoke: that says nothing about what is tested."""
    run = passing_run(tmp_path)
    (run.folder / "events.jsonl").unlink()
    (run.folder / "results.json").unlink()
    run.scheduler("FAILED", "NonZeroExitCode")
    (run.root / "job-8.log").write_text("slurmstepd: error: pyxis: couldn't execute enroot command\n")
    verdict = verdict_of(run)
    assert (verdict.result, verdict.exit_code) == (Result.BLOCKED, 3)
    assert "before its first phase" in verdict.reason


def test_last_attempt_decides_and_each_is_recorded(tmp_path: Path) -> None:
    first = RunFolder(tmp_path)
    first.phase("preflight")
    first.write()
    first.results("cancelled", 143, commands=[])
    second = first.next_attempt()
    for phase in PHASES:
        second.phase(phase)
    second.metrics(learning_rows())
    second.artifacts({"notes.txt": "abc"})
    second.write()
    second.results()
    verdict = verdict_of(second)
    assert verdict.result is Result.PASS
    assert [(item.number, item.outcome, item.exit_code) for item in verdict.attempts] == [
        (1, "cancelled", 143),
        (2, "ok", 0),
    ]
    assert "the run took 2 attempts; only the last one decides" in verdict.limitations


def test_limitations_say_what_was_not_proved(tmp_path: Path) -> None:
    limits = " ".join(verdict_of(passing_run(tmp_path)).limitations)
    for word in ("on other data", "no GPU took part", "one node", "uncommitted changes", "no convergence"):
        assert word in limits


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"expect": replace(PLAN.expect, checkpoint=False)}, "checkpointing was off"),
        ({"expect": replace(PLAN.expect, options={"ep": 1})}, "no expert parallelism is proved"),
        ({"proofs": ()}, "no checkout was named"),
        ({"expect": replace(PLAN.expect, level="smoke")}, "proves no learning"),
        ({"expect": replace(PLAN.expect, limitations=("random weights",))}, "random weights"),
    ],
)
def test_limitation_follows_from_the_plan(tmp_path: Path, change: dict[str, object], word: str) -> None:
    plan = replace(PLAN, **change)  # type: ignore[arg-type]  # field names are checked by replace
    assert word in " ".join(verdict_of(passing_run(tmp_path, plan)).limitations)


def test_level_of_the_plan_outlives_the_adapter_that_had_it(tmp_path: Path) -> None:
    level = Level("flight", 7, "it flies", ("nothing is proved about landing",))
    plan = replace(PLAN, expect=level.stated_in(PLAN.expect))
    run = passing_run(tmp_path, plan)
    verdict = verdict_of(run)
    assert (verdict.level, verdict.number, verdict.proves) == ("flight", 7, "it flies")
    assert verdict.limitations[0] == "nothing is proved about landing"
    summary = render_report(verdict, read_evidence(run.root), "summary")
    assert "Level 7 (flight)" in summary and "it flies" in summary


def test_claim_of_the_plan_is_not_reworded_by_a_newer_adapter(tmp_path: Path) -> None:
    plan = replace(PLAN, expect=Level("learning", 3, "as it was then").stated_in(PLAN.expect))
    verdict = verdict_of(passing_run(tmp_path, plan))
    assert (verdict.number, verdict.proves) == (3, "as it was then")
    assert "what was learned on other data" not in verdict.limitations


def test_folder_of_an_older_jobspec_is_told_of_its_level_by_the_adapter(tmp_path: Path) -> None:
    run = passing_run(tmp_path)
    old = json.loads((tmp_path / "plan.json").read_text())
    assert (old["expect"].pop("number"), old["expect"].pop("proves")) == (None, "")
    (tmp_path / "plan.json").write_text(json.dumps(old))
    verdict = verdict_of(run)
    assert (verdict.level, verdict.number, verdict.proves) == ("learning", 1, "it learns")
    assert verdict.limitations[0] == "what was learned on other data"


def test_resume_and_gpus_take_their_limitations_away(tmp_path: Path) -> None:
    plan = replace(PLAN, gpus_per_node=8, nodes=2, expect=replace(PLAN.expect, resume=True))
    limits = " ".join(verdict_of(passing_run(tmp_path, plan)).limitations)
    for word in ("no GPU took part", "one node", "no resume"):
        assert word not in limits


@pytest.mark.parametrize(
    ("statuses", "expected"),
    [
        (("Pass", "Pass"), "Pass"),
        (("Pass", "Blocked"), "Blocked"),
        (("Blocked", "Fail"), "Fail"),
        (("Pass", "Skipped"), "Fail"),
    ],
)
def test_worst_status_decides_without_a_cause(statuses: tuple[str, ...], expected: str) -> None:
    assert decide(tuple(Deliverable(name, Status(name)) for name in statuses), None) == expected


def test_deliverable_that_is_not_required_decides_nothing(tmp_path: Path) -> None:
    class Lenient(StandInFramework):
        def judge(self, evidence: object) -> tuple[Deliverable, ...]:  # type: ignore[override]
            return (Deliverable("Bonus", Status.FAIL, required=False),)

    run = passing_run(tmp_path)
    assert judge(read_evidence(run.root), Lenient()).result is Result.PASS


def test_required_deliverable_that_was_skipped_is_no_pass(tmp_path: Path) -> None:
    class Shy(StandInFramework):
        def judge(self, evidence: object) -> tuple[Deliverable, ...]:  # type: ignore[override]
            return (Deliverable("Resume", Status.SKIPPED, reason="no checkpoint"),)

    run = passing_run(tmp_path)
    verdict = judge(read_evidence(run.root), Shy())
    assert (verdict.result, verdict.reason) == (Result.FAIL, "Resume: no checkpoint")


def test_framework_without_an_adapter_is_no_pass(tmp_path: Path) -> None:
    verdict = judge(read_evidence(passing_run(tmp_path).root))
    assert verdict.result is Result.BLOCKED
    assert [finding.rule for finding in verdict.findings] == ["framework.unknown"]


def lost_node(root: Path, log: str, node: str) -> Verdict:
    """A run whose node n2 left while the driver ran; `node` logged `log`."""
    run = RunFolder(root)
    for phase in PHASES[:5]:
        run.phase(phase)
    run.event("driver", "start")
    run.clock = T0 + 60
    run.finding("driver", "node.lost", "node `n2` left during `driver`", node="n2")
    run.log(log, node=node)
    run.write()
    run.results("failed", 1)
    return verdict_of(run)


def test_lost_node_explains_what_the_others_complain_about(tmp_path: Path) -> None:
    verdict = lost_node(tmp_path, "RuntimeError: Failed to connect to GCS within 60 seconds\n", "n1")
    assert verdict.result is Result.BLOCKED
    assert verdict.first_cause is not None and verdict.first_cause.kind == "node.lost"


def test_log_of_the_lost_node_explains_its_loss(tmp_path: Path) -> None:
    verdict = lost_node(tmp_path, "NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus\n", "n2")
    assert verdict.first_cause is not None and verdict.first_cause.signature == "gpu.bad-node"


def test_earlier_line_of_another_node_explains_the_loss(tmp_path: Path) -> None:
    verdict = lost_node(tmp_path, f"2026-11-20 00:00:00 {DISK}\n", "n1")
    assert verdict.first_cause is not None and verdict.first_cause.kind == "disk"


def test_failed_node_is_named_where_the_runtime_saw_it(tmp_path: Path) -> None:
    lost_node(tmp_path, "nothing known\n", "n1")
    (tmp_path / "scheduler.json").write_text('{"state": "NODE_FAIL", "reason": "NodeDown"}')
    cause = judge(read_evidence(tmp_path), StandInFramework()).first_cause
    assert cause is not None and (cause.kind, cause.node) == ("NODE_FAIL", "n2")
    assert cause.text == "NODE_FAIL (NodeDown): node `n2` left during `driver`"


def test_run_that_goes_on_is_said_to(tmp_path: Path) -> None:
    run = passing_run(tmp_path)
    (run.folder / "results.json").unlink()
    run.scheduler("RUNNING")
    verdict = verdict_of(run)
    assert (verdict.result, verdict.reason) == (Result.BLOCKED, "the job has not ended: it is RUNNING")


def test_exit_code_is_the_last_thing_to_blame(tmp_path: Path) -> None:
    run = failing_run(tmp_path, "Traceback (most recent call last):\nValueError: no such column\n")
    run.finding("driver", "driver.exit-code", "command `train` exited with 1", file="logs/n1/train.log")
    run.write()
    cause = verdict_of(run).first_cause
    assert cause is not None and (cause.text, cause.line) == ("ValueError: no such column", 2)


def test_exit_code_alone_points_to_the_log(tmp_path: Path) -> None:
    run = failing_run(tmp_path, "nothing known\n")
    run.finding("driver", "driver.exit-code", "command `train` exited with 7", file="logs/n1/train.log")
    run.write()
    verdict = verdict_of(run)
    assert verdict.result is Result.FAIL
    assert verdict.first_cause is not None and verdict.first_cause.file == "attempts/1/logs/n1/train.log"
