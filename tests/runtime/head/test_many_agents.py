"""One head and many agents, by the benchmark: all join, and those of a killed process alone are lost."""

from pathlib import Path

import pytest

from tests.kits.script_module import load_script

BENCHMARK = load_script(Path(__file__).parents[3] / "benchmarks/coordinator.py")


@pytest.mark.parametrize("agents", [32, pytest.param(512, marks=pytest.mark.nightly)])
def test_agents_of_a_killed_process_are_lost_and_no_others(agents: int) -> None:
    measured = BENCHMARK.measure(agents, 4)
    assert (measured.agents, measured.lost) == (agents, agents // 4)
    assert measured.descriptors >= agents
    assert measured.threads > agents  # a reader each, and who accepts
