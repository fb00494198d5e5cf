"""Which keys each adapter does nothing with: every key of `train` and `checkpoint`, in every mode.

The table is what a person read in the adapters. A key that an adapter stops reading, and a new key that it
never reads, change it.
"""

from __future__ import annotations

from typing import Any

import pytest

from jobspec import frameworks, pipeline
from jobspec.finding import Finding
from jobspec.planning.no_effect import without_effect
from jobspec.spec.paths import Path, format_path
from jobspec.spec.schema import Shape, root_shape
from tests.kits.framework_kit import MINIMAL, context

PARALLEL = {f"train.parallel.{key}" for key in ("tp", "pp", "ep", "etp", "cp", "vpp")}
ROLLOUT = {f"train.rollout.{key}" for key in ("engines", "tp", "pp", "ep")}
SAVING = {"checkpoint.every", "checkpoint.keep", "checkpoint.resume"}
TASKS = {"launch.tasks_per_node"}  # told by `command` itself in mode `ray`, and read in mode `srun`
IDLE: dict[str, set[str]] = {
    "command": PARALLEL | ROLLOUT | SAVING,
    "nemo_rl": set(TASKS),
    "rlix": TASKS | {"train.algorithm", "train.workers", "train.reward", "train.rollout.engines"},
    "skyrl": TASKS | {"train.workers", "train.reward"},
    "trl": TASKS | ROLLOUT | {"train.parallel.vpp"},
    "verl": TASKS | {"train.workers", *(ROLLOUT - {"train.rollout.tp"})},
}
CASES = [
    (name, mode)
    for name in frameworks.BUILT_IN
    for mode in getattr(frameworks.get(name), "modes", ("ray", "srun"))
]
VALUES = {"train.parallel.etp": 2, "train.parallel.cp": 2, "checkpoint.resume": "never"}
REFUSED_BEFORE = {"train.recipe", "train.command", "train.shell"}  # for adapters that have none


def given() -> dict[str, Any]:
    """A value for each key of the two sections, from its example."""
    root = root_shape("job")
    keys = {
        format_path((section, *path)): shape
        for section in ("train", "checkpoint")
        for path, shape in leaf_shapes(root.at((section,)))
    }
    keys = {key: shape for key, shape in keys.items() if key not in REFUSED_BEFORE}
    values = {key: VALUES.get(key) or shape.node["examples"][0] for key, shape in keys.items()}
    assert len(values) >= 20
    return {**values, "launch.tasks_per_node": 2}


def leaf_shapes(shape: Shape) -> list[tuple[Path, Shape]]:
    found: list[tuple[Path, Shape]] = []
    for key, child in (shape.properties or {}).items():
        found += (
            [((key, *path), one) for path, one in leaf_shapes(child)]
            if child.properties
            else [((key,), child)]
        )
    return found


def idle(name: str, mode: str, level: int, key: str, value: Any) -> list[Finding]:
    data: dict[str, Any] = {"launch": {"mode": mode}, "train": dict(MINIMAL[name].get("train", {}))}
    section, *parts = key.split(".")
    inner = data.setdefault(section, {})
    for part in parts[:-1]:
        inner = inner.setdefault(part, {})
    inner[parts[-1]] = value
    asked = context(name, level, **data)
    told = [finding.path for finding in frameworks.get(name).validate(asked)]
    return [item for item in without_effect(frameworks.get(name), asked, data, told) if item.path == key]


@pytest.mark.parametrize(("name", "mode"), CASES)
def test_keys_that_do_nothing_are_told_and_no_others(name: str, mode: str) -> None:
    found = {key for key, value in given().items() if idle(name, mode, 0, key, value)}
    wanted = IDLE[name] | (TASKS if (name, mode) == ("command", "upstream") else set())
    assert found == wanted


def test_a_level_that_trains_nothing_reads_no_key_of_training() -> None:
    found = {key for key, value in given().items() if idle("rlix", "ray", 3, key, value)}
    assert found >= IDLE["rlix"] | PARALLEL | ROLLOUT | SAVING | {"train.steps", "train.seed"}


def test_a_default_in_words_asks_for_nothing() -> None:
    assert idle("command", "srun", 0, "checkpoint.resume", "auto") == []
    (told,) = idle("command", "srun", 0, "checkpoint.resume", "never")
    assert (told.rule, told.is_error) == ("spec.no-effect", False)
    assert "framework `command` in mode `srun`" in told.what


def test_it_is_told_with_its_place_in_the_file(tmp_path: Any) -> None:
    spec = tmp_path / "s.yaml"
    spec.write_text(
        "version: 1\nname: x\nframework: command\ntrain:\n  command: ['true']\n  parallel: {tp: 2}\n"
        "sweep: {grid: {train.rollout.tp: [1, 2]}}\n"
    )
    told = [item for item in pipeline.check(pipeline.Request(spec)) if item.rule == "spec.no-effect"]
    assert [(item.path, item.line) for item in told] == [("train.parallel.tp", 6)]
