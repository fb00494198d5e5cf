"""What RLix's logs tell where they are not whole, not alone, or full of odd text."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from jobspec import frameworks
from jobspec.evidence.evidence import LogFile
from jobspec.frameworks.rlix.judge import judge
from jobspec.metrics import Row, Table
from jobspec.plan import ExpectPlan
from jobspec.verdict import Status
from tests.frameworks.rlix.rlix_log_kit import (
    IDS,
    PARTS,
    STEPS,
    P,
    actor,
    evidence,
    failed,
    healthy,
    judged,
    metrics,
    plan,
    without,
)


def test_files_of_a_run_that_jobspec_did_not_launch(tmp_path: Path) -> None:
    level = frameworks.find_level(frameworks.get("rlix"), "multi")
    asked = replace(plan(), expect=frameworks.get("rlix").expect(level))
    assert isinstance(asked.expect, ExpectPlan)
    seen = replace(evidence(tmp_path, healthy(), Table(), asked), foreign=True)
    found = {item.name: item for item in judge(seen)}
    left = {name for name, item in found.items() if item.required and item.status is not Status.PASS}
    assert left == {f"{name}: Training" for name in ("ft_0a1b2c3d4e5f", "ft_a0b1c2d3e4f5")}
    assert all(found[name].status is Status.BLOCKED for name in left)
    assert f"{IDS['two']}: Weight version" in found


def test_metrics_of_others_are_a_pipeline_s_where_their_path_names_it(tmp_path: Path) -> None:
    level = frameworks.find_level(frameworks.get("rlix"), "multi")
    asked = replace(plan(), expect=frameworks.get("rlix").expect(level, steps=3))
    rows = [
        Row(name, step, 0.5, 0.0, f"logs/{IDS[one]}/metrics.json", step)
        for one in ("one", "two")
        for step in (1, 2, 3)
        for name in ("train/reward", "train/loss", "train/grad_norm")
    ]
    seen = replace(evidence(tmp_path, healthy(), Table(tuple(rows)), asked), foreign=True)
    found = {item.name: item for item in judge(seen)}
    assert found[f"{IDS['one']}: Training"].status is found[f"{IDS['two']}: Training"].status is Status.PASS


def test_progress_bars_move_no_line(tmp_path: Path) -> None:
    """Each line is the last state of a bar; only line feeds count."""
    plain = judged(tmp_path, healthy())
    barred = judged(tmp_path, [f" 10%|# \r 90%|### \r{line}" for line in healthy()])
    assert not failed(barred)
    assert barred == plain


def test_text_that_looks_like_an_id_makes_no_pipeline(tmp_path: Path) -> None:
    noise = actor("one", "ValueError: no adapter lora_0a1b in ft_ffff00001111")
    assert not failed(judged(tmp_path, [noise, *healthy()]))


HOSTILE = (
    f"pipeline {IDS['two']} run() returned successfully",
    "done!!! successes=2 failures=0",
    "pipeline ft_ffff00001111 run() raised: RuntimeError: none",
    "answer: [RLIX_HOOK ft_ffff00001111] before_training step=0 — actor_train GPUs granted",
    "waiting for ft_ffff00001111 first",
)


def test_what_an_actor_prints_is_never_the_driver_s_word(tmp_path: Path) -> None:
    """An answer of the model, printed by a worker, may hold any text."""
    noise = [actor("one", text) for text in HOSTILE]
    assert not failed(judged(tmp_path, [*noise, *healthy(), *noise]))
    cut = [line for line in healthy() if "done!!!" not in line and f"{IDS['two']} run()" not in line]
    found = judged(tmp_path, [*noise, *cut, *noise])
    assert failed(found) == {"two: Run", "Pipelines"}
    assert found["two: Run"].reason == "the pipeline's end is not in the log"


@pytest.mark.parametrize("part", range(15))
def test_log_that_ends_anywhere_is_no_pass(tmp_path: Path, part: int) -> None:
    text = "\n".join(healthy())
    found = judged(tmp_path, [text[: len(text) * part // 15]], metrics({"one": 1}))
    assert {"one: Run", "two: Run", "Pipelines", "two: Training"} <= failed(found)


@pytest.mark.parametrize("digits", [9, 20, 5000])
def test_absurd_numbers_are_no_load(tmp_path: Path, digits: int) -> None:
    """A log that jobspec did not make may hold any number; without a plan the last step counts."""
    level = frameworks.find_level(frameworks.get("rlix"), "multi")
    asked = replace(plan(), expect=frameworks.get("rlix").expect(level))
    absurd = "9" * digits
    noise = [actor("one", f"[RLIX_HOOK {IDS['one']}] after_training step={absurd} — version={absurd}, x"),
             f"done!!! successes={absurd} failures=0"]  # fmt: skip
    seen = replace(evidence(tmp_path, [*noise, *healthy()], Table(), asked), foreign=True)
    found = {item.name: item for item in judge(seen)}
    assert found[f"{IDS['two']}: Weight version"].status is P
    if digits == 9:
        assert "train step 3, counted from 0" in found[f"{IDS['one']}: Weight version"].reason


def test_nothing_in_the_log_names_no_pipeline(tmp_path: Path) -> None:
    level = frameworks.find_level(frameworks.get("rlix"), "multi")
    asked = replace(plan(), expect=frameworks.get("rlix").expect(level))
    found = {item.name: item for item in judge(replace(evidence(tmp_path, [], Table(), asked), foreign=True))}
    assert failed(found) == {"Pipelines", "GPUs shared between pipelines"}
    assert found["GPUs shared between pipelines"].reason == "jobspec read no pipeline in the logs"


def test_log_of_others_that_just_ends_is_not_shown_to_fail(tmp_path: Path) -> None:
    whole = evidence(tmp_path, healthy()[:-1])
    assert {item.status for item in judge(whole) if item.name == "Pipelines"} == {Status.FAIL}
    found = {item.status for item in judge(replace(whole, foreign=True)) if item.name == "Pipelines"}
    assert found == {Status.BLOCKED}


def test_log_that_is_there_twice_is_judged_once(tmp_path: Path) -> None:
    found = judged(tmp_path, [line for line in healthy() for _ in range(2)])
    assert not failed(found)
    assert len(found) == 2 * len(PARTS) + 2


def test_resumed_pipeline_begins_at_its_own_step(tmp_path: Path) -> None:
    lines = [line for line in healthy() if "step=0 " not in line]
    rows = [row for row in metrics() if row.step and row.step > 1]
    found = judged(tmp_path, lines, Table((*rows, Row("resume/from_step", 0, 1))))
    assert "versions 2 to 3" in found["one: Weight version"].reason
    assert found["one: Weight version"].status is P


@pytest.mark.parametrize("foreign", [False, True])
def test_steps_that_ray_did_not_repeat_are_in_the_worker_s_own_log(tmp_path: Path, foreign: bool) -> None:
    """The driver ends a moment after the last step: Ray has not yet repeated what the worker printed."""
    cut = without(healthy(), IDS["one"], "after_training step=2")
    assert "one: Weight version" in failed(judged(tmp_path, cut))
    seen = evidence(tmp_path, cut)
    for name, own in IDS.items():
        lines = [line.partition("\x1b[0m ")[2] for line in healthy() if own in line and "RLIX_" in line]
        (tmp_path / f"ray/{name}").mkdir(parents=True)
        (tmp_path / f"ray/{name}/worker-{name}.out").write_text("\n".join(lines) + "\n")
    logs = [LogFile(f"ray/{name}/worker-{name}.out", "n1", 1) for name in IDS]
    attempt = replace(seen.attempts[0], logs=(*logs, *seen.attempts[0].logs))
    found = {item.name: item for item in judge(replace(seen, attempts=(attempt,), foreign=foreign))}
    assert not failed(found), {name: item.reason for name, item in found.items()}
    assert "engines were told to sleep 3 times" in found["one: GPU time-sharing"].reason, (
        "no line counts twice"
    )


@pytest.mark.parametrize("serial", [False, True])
@pytest.mark.parametrize("lost", range(STEPS))
def test_workers_logs_do_not_change_the_order_of_the_driver_s(
    tmp_path: Path, lost: int, serial: bool
) -> None:
    """Files are read one after the other: a line of the second is no later than one of the first."""
    both = healthy()
    if serial:
        own = [[line for line in both if f" {name}]" in line] for name in IDS.values()]
        both = [f"pair-init barrier armed on {IDS['one']} before run", *own[0], *own[1], *both[-5:]]
    cut = without(both, IDS["one"], f"after_training step={lost} — version")
    seen = evidence(tmp_path, cut)
    (tmp_path / "ray").mkdir()
    lines = [line.partition("\x1b[0m ")[2] for line in both if IDS["one"] in line and "RLIX_" in line]
    (tmp_path / "ray/worker-one.out").write_text("\n".join(lines) + "\n")
    attempt = replace(seen.attempts[0], logs=(LogFile("ray/worker-one.out", "n1", 1), *seen.attempts[0].logs))
    found = {item.name: item for item in judge(replace(seen, attempts=(attempt,)))}
    assert failed(found) == ({"GPUs shared between pipelines"} if serial else set())
