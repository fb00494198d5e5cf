"""Evidence from files: whole, torn at any byte, missing, and of the wrong shape."""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobspec.evidence.evidence import Checkpoint, SchedulerState
from jobspec.evidence.read import read_checkpoints, read_evidence
from jobspec.judging.judge import judge
from jobspec.verdict import Result
from tests.kits.verdict_kit import PLAN, RunFolder, StandInFramework, learning_rows, passing_run


@pytest.fixture
def run(tmp_path: Path) -> RunFolder:
    root = tmp_path / "20261128-010203-ab12cd"
    root.mkdir()
    return passing_run(root)


def test_whole_run_is_read_without_a_problem(run: RunFolder) -> None:
    evidence = read_evidence(run.root)
    assert (evidence.run_id, evidence.plan, evidence.problems) == (run.root.name, PLAN, ())
    attempt = evidence.last
    assert attempt is not None and attempt.results is not None
    assert attempt.outcome("stage") == "ok"
    assert attempt.log("train") is not None
    assert evidence.metrics.last_step() == 60
    assert [(item.path, item.present) for item in evidence.artifacts] == [("notes.txt", True)]
    assert evidence.expected_files == {"*.txt": ("artifacts/notes.txt",)}


def test_events_carry_file_and_line(run: RunFolder) -> None:
    attempt = read_evidence(run.root).last
    assert attempt is not None
    event = attempt.ended("preflight")
    assert event is not None and (event.file, event.line) == ("attempts/1/events.jsonl", 4)


def test_empty_folder_holds_nothing_and_says_so(tmp_path: Path) -> None:
    evidence = read_evidence(tmp_path)
    assert not evidence.plan_read and evidence.attempts == ()
    assert [finding.rule for finding in evidence.problems] == ["evidence.plan"]


@pytest.mark.skipif(os.geteuid() != 0, reason="acts as another user")
@pytest.mark.parametrize("mode", [0o000, 0o111, 0o444])
@pytest.mark.parametrize("name", ["attempts", "attempts/1", "artifacts", ".", "checkpoints"])
def test_a_folder_that_is_closed_to_me_is_no_error(name: str, mode: int) -> None:
    with tempfile.TemporaryDirectory() as base:
        Path(base).chmod(0o755)
        run = passing_run(Path(base))
        (Path(base) / "checkpoints/global_step_5").mkdir(parents=True)
        read_evidence(run.root)  # imports what it needs: the other user may not read this Python
        closed = Path(base) / name
        closed.chmod(mode)
        os.seteuid(65534)
        try:
            evidence, _ = read_evidence(run.root), read_checkpoints(Path(base) / "checkpoints")
        finally:
            os.seteuid(0)
            closed.chmod(0o755)
        verdict = judge(evidence, StandInFramework())
        untold = evidence.plan_read and not any(item.events for item in evidence.attempts)
        assert untold == ((name, mode) in CLOSED_ATTEMPTS)
        if untold:
            said = "what the attempts left cannot be read: permission denied"
            assert (verdict.result, verdict.reason) == (Result.BLOCKED, said)


CLOSED_ATTEMPTS = {
    *(("attempts", mode) for mode in (0o000, 0o111, 0o444)),
    *(("attempts/1", mode) for mode in (0o000, 0o444)),
}


def test_plan_of_another_version_is_not_read(run: RunFolder) -> None:
    data = json.loads((run.root / "plan.json").read_text())
    (run.root / "plan.json").write_text(json.dumps({**data, "version": 99}))
    assert not read_evidence(run.root).plan_read


@pytest.mark.parametrize(
    "name", ["plan.json", "attempts/1/results.json", "artifacts/manifest.json", "scheduler.json"]
)
@pytest.mark.parametrize(
    "text", ["", "[]", "null", '"x"', "{}", '{"outcome": 3}', '{"files": [3]}', "[" * 5000]
)
def test_file_of_another_shape_is_a_problem_or_nothing(run: RunFolder, name: str, text: str) -> None:
    (run.root / name).write_text(text)
    judge(read_evidence(run.root), StandInFramework())


@pytest.mark.parametrize("value", ["true", "[]", "NaN", "1e999", "1" + "0" * 400])
@pytest.mark.parametrize("key", ["t", "seconds"])
def test_event_without_a_true_time_is_a_problem(run: RunFolder, key: str, value: str) -> None:
    """Python's JSON has NaN and numbers without a bound; one of 400 digits was a traceback."""
    path = run.folder / "events.jsonl"
    whole = path.read_text()
    for last, rules in ((value, ["evidence.events"]), ("3", [])):
        line = f'{{"t": 1, "seconds": 1, "phase": "x", "event": "end", "{key}": {last}}}\n'
        path.write_text(whole + line)
        assert [problem.rule for problem in read_evidence(run.root).problems] == rules


def test_null_counts_as_missing_and_facts_keep_it(run: RunFolder) -> None:
    path = run.folder / "results.json"
    data = json.loads(path.read_text())
    data["commands"][0] |= {"exit_code": None, "signal": None, "log": None}
    data["nodes"] = [{"name": "n1", "ip": None, "facts": {"processes": None}}]
    path.write_text(json.dumps(data))
    attempt = read_evidence(run.root).last
    assert attempt is not None and attempt.results is not None
    command, node = attempt.results.commands[0], attempt.results.nodes[0]
    assert (command.exit_code, command.signal, command.log) == (None, "", "")
    assert (node.ip, node.facts) == ("", {"processes": None})


@pytest.mark.parametrize(
    ("name", "key", "rule"),
    [
        ("attempts/1/results.json", "nodes", "evidence.results"),
        ("artifacts/manifest.json", "files", "evidence.manifest"),
    ],
)
def test_value_of_another_type_is_named_with_its_place(
    run: RunFolder, name: str, key: str, rule: str
) -> None:
    path = run.root / name
    data = json.loads(path.read_text())
    data[key] = [{**data[key][0], "ip": 7, "sha256": 7}]
    path.write_text(json.dumps(data))
    (problem,) = read_evidence(run.root).problems
    assert problem.rule == rule
    assert problem.why.startswith("ValidationError: Expected `str`, got `int`")


def test_artifact_of_another_size_is_not_present(run: RunFolder) -> None:
    (run.root / "artifacts" / "notes.txt").write_text("longer than collected")
    assert not read_evidence(run.root).artifacts[0].present


def test_scheduler_state_is_read(run: RunFolder) -> None:
    run.scheduler("TIMEOUT", "TimeLimit")
    assert read_evidence(run.root).scheduler == SchedulerState("TIMEOUT", "TimeLimit", "0:0", 0)


def test_batch_log_belongs_to_no_node(run: RunFolder) -> None:
    (run.root / "job-17.log").write_text("slurmstepd: error: Detected 1 oom_kill event in StepId=17.0\n")
    attempt = read_evidence(run.root).last
    assert attempt is not None
    assert [(match.file, match.node, match.signature) for match in attempt.matches] == [
        ("job-17.log", "", "slurm.oom-kill")
    ]


def test_checkpoints_are_listed_by_step(tmp_path: Path) -> None:
    for name in ("checkpoint-10", "global_step_2", "iter_0000030", "step_7", "logs", "checkpoint-x"):
        (tmp_path / name / "rank0").mkdir(parents=True)
        (tmp_path / name / "rank0" / "weights.bin").write_bytes(b"1234")
    (tmp_path / "checkpoint-99").write_text("a file, no folder")
    found = read_checkpoints(tmp_path)
    assert [item.step for item in found] == [2, 7, 10, 30]
    assert isinstance(found[0], Checkpoint) and (found[0].files, found[0].bytes) == (
        ("rank0/weights.bin",),
        4,
    )


def test_absent_checkpoint_folder_holds_none(tmp_path: Path) -> None:
    assert read_checkpoints(tmp_path / "no") == ()


def test_metrics_of_a_resumed_run_continue(tmp_path: Path) -> None:
    first = RunFolder(tmp_path)
    first.phase("preflight")
    first.metrics(learning_rows(30))
    first.write()
    second = first.next_attempt()
    second.phase("preflight")
    second.metrics(learning_rows(60, start=21))
    second.write()
    evidence = read_evidence(tmp_path)
    assert [attempt.number for attempt in evidence.attempts] == [1, 2]
    assert [row.step for row in evidence.metrics.series("reward")] == list(range(1, 61))


TORN = ("attempts/1/events.jsonl", "attempts/1/results.json", "plan.json", "artifacts/manifest.json")


@given(name=st.sampled_from(TORN), share=st.floats(0, 0.999))
def test_torn_file_never_raises_and_never_passes(
    tmp_path_factory: pytest.TempPathFactory, name: str, share: float
) -> None:
    """A cut takes away at least what the last line proves."""
    run = passing_run(tmp_path_factory.mktemp("run"))
    path = run.root / name
    data = path.read_bytes().rstrip()
    path.write_bytes(data[: int(len(data) * share)])
    verdict = judge(read_evidence(run.root), StandInFramework())
    assert verdict.result is not Result.PASS


@given(cut=st.integers(0, 10_000))
def test_metrics_torn_at_any_byte_prove_only_what_is_left(
    tmp_path_factory: pytest.TempPathFactory, cut: int
) -> None:
    run = passing_run(tmp_path_factory.mktemp("run"))
    path = run.folder / "metrics" / "metrics.jsonl"
    data = path.read_bytes()
    path.write_bytes(data[:cut])
    evidence = read_evidence(run.root)
    verdict = judge(evidence, StandInFramework())
    assert (verdict.result is Result.PASS) == (evidence.metrics.last_step() == 60)
