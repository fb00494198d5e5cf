"""`coverage.levels`: the trainings of one validation as points of one allocation.

A point has a folder, a Ray and a verdict of its own. So one training that fails hides no other.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from jobspec import frameworks
from jobspec.finding import JobspecError, error, fail
from jobspec.frameworks.base import Framework, Level
from jobspec.spec.job import Coverage
from jobspec.spec.load import LoadedSpec, revised
from jobspec.spec.overrides import Setting
from jobspec.spec.paths import Path
from jobspec.words import did_you_mean, one_of

LEVEL, VARIANTS = "coverage.level", "coverage.variants"


def spread(loaded: LoadedSpec) -> LoadedSpec:
    """The spec as a sweep with a point for each level or, where variants of it are asked for, for each.

    Without `coverage.levels` the spec is as it was. Raises: JobspecError for a level or variant that is not.
    """
    coverage = loaded.spec.coverage
    if not coverage.levels:
        return loaded
    try:
        framework = frameworks.get(loaded.spec.framework)
    except JobspecError:  # planning tells it, at its place
        return loaded
    if "level" in loaded.data["coverage"]:
        place = loaded.place(("coverage", "level"))
        what, fix = "`coverage.level` and `coverage.levels` exclude each other", "remove one of the two"
        raise fail("coverage.levels", what, fix=fix, path="coverage.level", **place)
    points = [*_points(_levels(loaded, framework), coverage)]
    if not points:
        what, fix = "no level is left to train", "remove a level or an entry of `coverage.not_applicable`"
        why, place = "`coverage.not_applicable` has what they train", loaded.place(("coverage", "levels"))
        raise fail("coverage.levels", what, why, fix, path="coverage.levels", **place)
    _refuse_strays(loaded, framework)
    asked = f"[{', '.join(map(str, coverage.levels))}]"
    values: dict[Path, Any] = {
        ("sweep",): {"list": points, "mode": "array" if coverage.split == "jobs" else "one_allocation"},
        ("coverage", "level"): points[0][LEVEL],
        ("coverage", "variants"): points[0][VARIANTS],
    }
    settings = [Setting(path, value, asked, "coverage.levels") for path, value in values.items()]
    return revised(loaded, settings, [("coverage", "levels"), ("coverage", "split")])


def is_spread(points: Iterable[Mapping[str, Any]]) -> bool:
    """Whether a sweep's points differ in what they prove and in nothing else: one validation."""
    return all(LEVEL in sets and set(sets) <= {LEVEL, VARIANTS} for sets in points)


def _points(levels: list[Level], coverage: Coverage) -> Iterator[dict[str, Any]]:
    """A level without variants of its own trains its first, unless the framework blocks just that one."""
    blocked = {entry.variant for entry in coverage.not_applicable}
    for level in levels:
        own = [_together(entry) for entry in coverage.variants if _has(level, entry)]
        if own or not blocked.intersection(level.variants[:1]):
            yield from ({LEVEL: level.name, VARIANTS: names} for names in own or [[]])


def _together(entry: str) -> list[str]:
    """The variants of one training: `full+dummy` are two."""
    return entry.split("+")


def _has(level: Level, entry: str) -> bool:
    return set(_together(entry)) <= {*level.variants}


def _levels(loaded: LoadedSpec, framework: Framework) -> list[Level]:
    found: list[Level] = []
    for index, name in enumerate(loaded.spec.coverage.levels):
        path = ("coverage", "levels", index)
        dotted, place = f"coverage.levels[{index}]", loaded.place(path)
        try:
            level = frameworks.find_level(framework, name)
        except JobspecError as problem:
            findings = (replace(item, path=dotted, **place) for item in problem.findings)
            raise JobspecError(*findings) from problem
        if level in found:
            what = f"level `{name}` is there twice: it is level {level.number}, `{level.name}`"
            raise fail("coverage.levels", what, fix="remove one", path=dotted, **place)
        found.append(level)
    return found


def _refuse_strays(loaded: LoadedSpec, framework: Framework) -> None:
    """Raises: JobspecError for a variant that none of the levels has, and for one that is asked for twice."""
    findings, asked, seen = [], _levels(loaded, framework), set()
    for index, name in enumerate(loaded.spec.coverage.variants):
        twice, place = frozenset(_together(name)), loaded.place(("coverage", "variants", index))
        if twice in seen:
            what, path = f"`{name}` is there twice", f"coverage.variants[{index}]"
            findings.append(error("coverage.variant", what, fix="remove one", path=path, **place))
        seen.add(twice)
        if any(_has(level, name) for level in asked):
            continue
        others = [str(level.number) for level in framework.levels if _has(level, name)]
        known = [item for level in framework.levels for item in level.variants]
        fix = f"add {one_of(others)} to `coverage.levels`" if others else did_you_mean(name, known)
        findings.append(
            error(
                "coverage.variant",
                f"none of the levels has a variant `{name}`",
                f"it belongs to level {one_of(others)}" if others else "",
                fix or "`jobspec framework show` lists the variants of each level",
                path=f"coverage.variants[{index}]",
                **place,
            )
        )
    if findings:
        raise JobspecError(*findings)
