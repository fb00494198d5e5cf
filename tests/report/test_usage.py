"""What GPUs did over time, below the phases on their scale."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from jobspec.evidence.read import read_evidence
from jobspec.judging.judge import judge
from jobspec.report import build_report, render_report
from jobspec.report.content import Report
from jobspec.report.usage import MAX_LINES
from tests.kits.verdict_kit import T0, RunFolder, StandInFramework, learning_rows

if TYPE_CHECKING:
    from playwright.sync_api import Page

BUSY, MEMORY, SPEED = 0, 1, 2  # the order of the plots


def sampled(run: RunFolder, node: str, samples: Mapping[float, Sequence[tuple[float, float]]]) -> None:
    """Files as the runtime's sampler writes them: at each second, memory and load of each GPU."""
    lines = []
    for second, gpus in samples.items():
        line = {"time": T0 + second}
        for index, (memory, busy) in enumerate(gpus):
            line |= {f"gpu/{index}/memory_gib": memory, f"gpu/{index}/busy_percent": busy}
        lines.append(json.dumps(line) + "\n")
    folder = run.folder / "metrics"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"gpu-{node}.jsonl").write_text("".join(lines))


def report_of(run: RunFolder) -> Report:
    evidence = read_evidence(run.root)
    return build_report(judge(evidence, StandInFramework()), evidence)


def test_each_node_has_a_line_of_its_gpus(tmp_path: Path) -> None:
    run = RunFolder(tmp_path)
    run.phase("driver", seconds=60, nodes=("n1", "n2"))
    sampled(run, "n1", {5: [(10.0, 100.0), (30.0, 50.0)], 10: [(11.0, 0.0), (5.0, 0.0)], 99: [(1.0, 1.0)]})
    sampled(run, "n2", {5: [(2.0, 8.0)]})
    run.write()
    usage = report_of(run).usage
    assert {line.name: line.points for line in usage[BUSY].lines} == {
        "n1": ((5, 75), (10, 0)), "n2": ((5, 8),)
    }  # fmt: skip
    assert {line.name: line.points for line in usage[MEMORY].lines} == {
        "n1": ((5, 30), (10, 11)), "n2": ((5, 2),)
    }  # fmt: skip
    assert usage[BUSY].span == usage[MEMORY].span == (0, 60)
    assert len(usage) == 2, "no speed was logged"


def test_attempts_are_told_apart_and_speed_follows_the_clock(tmp_path: Path) -> None:
    run = RunFolder(tmp_path)
    run.phase("driver", seconds=20)
    sampled(run, "n1", {5: [(1.0, 10.0)]})
    run.metrics(learning_rows(3))
    run.write()
    again = run.next_attempt()  # 30 s later
    again.phase("driver", seconds=20)
    sampled(again, "n1", {55: [(1.0, 20.0)]})
    again.write()
    usage = report_of(run).usage
    assert {line.name: line.points for line in usage[BUSY].lines} == {
        "1. n1": ((5, 10),), "2. n1": ((55, 20),)
    }  # fmt: skip
    (speed,) = usage[SPEED].lines
    assert (speed.name, [time for time, _ in speed.points]) == ("1. tokens/s", [1, 2, 3])


def test_of_many_nodes_the_idlest_are_shown(tmp_path: Path) -> None:
    run = RunFolder(tmp_path)
    nodes = [f"n{index:02d}" for index in range(40)]
    run.phase("driver", seconds=60, nodes=nodes)
    for index, node in enumerate(nodes):
        sampled(run, node, {5: [(1.0, 99.0 - index)]})
    run.write()
    assert [line.name for line in report_of(run).usage[BUSY].lines] == nodes[-MAX_LINES:]


def test_plots_stand_below_the_phases_on_their_scale(tmp_path: Path, opened: Callable[..., Page]) -> None:
    run = RunFolder(tmp_path / "run")
    run.phase("stage", seconds=20)
    run.phase("driver", seconds=20)
    sampled(run, "n1", {25: [(1.0, 10.0)], 30: [(1.0, 20.0)]})
    run.write()
    evidence = read_evidence(run.root)
    page = opened(render_report(judge(evidence, StandInFramework()), evidence, "html"))
    page.locator("#phases").scroll_into_view_if_needed()
    figure = page.locator("figure.drawn").first
    assert figure.evaluate("figure => [figure.chart.scales.x.min, figure.chart.scales.x.max]") == [0, 40]
    plot, bar = figure.locator(".u-over").bounding_box(), page.locator("rect.bar").nth(0).bounding_box()
    assert plot is not None and bar is not None
    assert plot["x"] == pytest.approx(bar["x"], abs=2)
    assert plot["width"] == pytest.approx(2 * bar["width"], abs=4)
