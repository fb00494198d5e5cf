"""Logs as RLix's driver prints them, and the evidence of runs that left them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from jobspec.evidence.evidence import Attempt, Evidence, LogFile
from jobspec.frameworks.rlix.judge import judge
from jobspec.metrics import Row, Table
from jobspec.plan import Plan
from jobspec.verdict import Deliverable, Status
from tests.kits.framework_kit import context, plan_of

IDS = {"one": "ft_0a1b2c3d4e5f", "two": "ft_a0b1c2d3e4f5"}
STEPS = 3
P, F = Status.PASS, Status.FAIL
PARTS = ("Run", "Training", "Weight version", "GPU time-sharing")
Lines = list[str]


def actor(name: str, text: str) -> str:
    number = 100 + list(IDS).index(name)
    return f"\x1b[36m(NemoRLFullFinetunePipeline pid={number})\x1b[0m {text}"


def step_lines(name: str, step: int, version: int) -> Lines:
    hook, ppl = f"[RLIX_HOOK {IDS[name]}]", f"[RLIX_PPL {IDS[name]}]"
    return [actor(name, text) for text in (
        f"{hook} before_training step={step} — requesting actor_train GPUs",
        f"{ppl} _shrink_workers START dp_ranks=[0] active_before=[0, 1]",
        f"{hook} before_training step={step} — actor_train GPUs granted",
        f"{hook} before_weight_sync step={step} — building CPU bucket cache",
        f"{hook} after_training step={step} — syncing active base weights",
        f"{hook} after_training step={step} — version={version}, actor_train released",
        f"{ppl} _expand_workers START dp_ranks=[0]",
        f"{ppl} _expand_workers DONE dp_ranks=[0] now active; active_dp_ranks=[0, 1] "
        f"weight_version={version}",
    )]  # fmt: skip


def healthy(names: Iterable[str] = ("one", "two"), ahead: int = 1) -> Lines:
    """The driver's log of a run in which the second pipeline begins after the first one's first step."""
    first, *rest = names
    lines = [f"pair-init barrier armed on {IDS[first]} before run.remote()"] if rest else []
    lines += step_lines(first, 0, ahead)
    for step in range(1, STEPS + 1):
        for name, now in ((first, step), *((other, step - 1) for other in rest)):
            lines += step_lines(name, now, now + ahead) if now < STEPS else []
    for name in (first, *rest):
        lines += [f"pipeline {IDS[name]} run() returned successfully", f"pipeline {IDS[name]} unregistered"]
    return [*lines, f"done!!! successes={1 + len(rest)} failures=0"]


def without(lines: Lines, *texts: str) -> Lines:
    """The lines that do not hold all of `texts`."""
    return [line for line in lines if not all(text in line for text in texts)]


def line_with(lines: Lines, *texts: str) -> str:
    return next(line for line in lines if all(text in line for text in texts))


def changed(lines: Lines, old: str, new: str) -> Lines:
    assert any(old in line for line in lines), old
    return [line.replace(old, new) for line in lines]


def metrics(steps: dict[str, int] | None = None, bad: str = "") -> Table:
    rows = []
    for name, last in (steps or {"one": STEPS, "two": STEPS}).items():
        for step in range(1, last + 1):
            loss = float("nan") if name == bad and step == last else 0.1
            for key, value in (("reward", step / 10), ("loss", loss), ("grad_norm", 0.2)):
                rows.append(Row(f"{name}/train/{key}", step, value, source="m"))
    return Table(tuple(rows))


def plan(level: str = "multi", names: tuple[str, ...] = ("one", "two"), **expect: object) -> Plan:
    asked = plan_of(context("rlix", level, train={"steps": STEPS if level != "learning" else 30}))
    parts = tuple(part for part in asked.expect.parts if part.name in names)
    return replace(asked, expect=replace(asked.expect, parts=parts, **expect))  # type: ignore[arg-type]


def evidence(root: Path, lines: Lines, table: Table | None = None, asked: Plan | None = None) -> Evidence:
    (root / "rlix.log").write_text("\n".join(lines) + "\n")
    table = metrics() if table is None else table
    attempt = Attempt(1, "attempts/1", logs=(LogFile("rlix.log", "n1", 1),), metrics=table)
    return Evidence(root, asked or plan(), attempts=(attempt,))


def judged(
    root: Path, lines: Lines, table: Table | None = None, asked: Plan | None = None
) -> dict[str, Deliverable]:
    return {item.name: item for item in judge(evidence(root, lines, table, asked))}


def failed(found: dict[str, Deliverable]) -> set[str]:
    return {name for name, item in found.items() if item.status is not P}
