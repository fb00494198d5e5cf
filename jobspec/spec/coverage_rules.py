"""Rules over what a run has to prove: `coverage` and `metrics`. One function per rule."""

from __future__ import annotations

from collections.abc import Iterator

from jobspec.finding import JobspecError
from jobspec.spec.broken import Broken
from jobspec.spec.job import Check, JobSpec, Metrics
from jobspec.spec.paths import Path
from jobspec.words import did_you_mean, one_of


def checks(spec: JobSpec) -> Iterator[Broken]:
    names, coverage = [repo.name for repo in spec.repos], spec.coverage
    adding = [check.repo for check in coverage.checks]
    for key, entries in (("checks", coverage.checks), ("checks_only", coverage.checks_only)):
        for index, check in enumerate(entries):
            at: Path = ("coverage", key, index, "repo")
            if check.repo not in names:
                fix = did_you_mean(check.repo, names) or (
                    f"use one of {one_of(names)}" if names else "add the repo to `repos`"
                )
                yield Broken("spec.checks", at, f"`repos` has no `{check.repo}`", fix=fix)
            elif key == "checks_only":
                yield from _replaces(check, check.repo in adding, at)
            elif adding.index(check.repo) < index and not (check.tests or check.command):
                what = f"the second entry for `{check.repo}` adds no test"
                yield Broken("spec.checks", at, what, "the first one runs the guide's tests", "give `tests`")


def _replaces(check: Check, adds_too: bool, at: Path) -> Iterator[Broken]:
    if adds_too:
        what = f"`{check.repo}` is in `coverage.checks` and in `coverage.checks_only`"
        why = "one adds to the guide's tests, the other replaces them"
        yield Broken("spec.checks", at, what, why, "put its tests into one of them")
    elif not (check.tests or check.command):
        what = f"the guide's tests of `{check.repo}` are replaced by none"
        yield Broken("spec.checks", at, what, fix="give `tests`, or use `coverage.checks`")


def levels(spec: JobSpec) -> Iterator[Broken]:
    asked, at = spec.coverage.levels, ("coverage", "levels")
    if asked and spec.sweep is not None:
        why = "each level is a point of one allocation, and so is each point of a sweep"
        yield Broken(
            "coverage.levels", at, "a spec with a `sweep` has one level", why, "remove one of the two"
        )
    if spec.coverage.split == "jobs" and not asked:
        what = "`coverage.split` has no levels to split"
        yield Broken(
            "coverage.levels", ("coverage", "split"), what, fix="give `coverage.levels`, or remove it"
        )
    for index, level in enumerate(asked):
        if level in asked[:index]:
            what = f"level `{level}` is there twice"
            yield Broken("coverage.levels", (*at, index), what, fix="remove one")


def not_applicable(spec: JobSpec) -> Iterator[Broken]:
    entries, asked = spec.coverage.not_applicable, spec.coverage.variants
    named = [entry.variant for entry in entries]
    for index, entry in enumerate(entries):
        at: Path = ("coverage", "not_applicable", index)
        if any(entry.variant in item.split("+") for item in asked):
            what = f"`{entry.variant}` is asked for in `coverage.variants` and is not applicable"
            yield Broken("coverage.not-applicable", (*at, "variant"), what, fix="remove one of the two")
        elif entry.variant in named[:index]:
            what = f"`{entry.variant}` is there twice"
            yield Broken("coverage.not-applicable", (*at, "variant"), what, fix="remove one")
        for key in ("why", "evidence"):
            if not getattr(entry, key).strip():
                what = f"`{key}` is empty: without it the variant was merely left out"
                yield Broken("coverage.not-applicable", (*at, key), what, fix=f"give `{key}`")


def metrics(spec: JobSpec) -> Iterator[Broken]:
    yield from _conditions(("metrics",), spec.metrics)
    yield from _tolerances(spec.metrics)
    for index, pipeline in enumerate(spec.pipelines):
        yield from _conditions(("pipelines", index, "metrics"), pipeline.metrics)
        for key in ("baseline", "tolerances"):
            if getattr(pipeline.metrics, key):
                at = ("pipelines", index, "metrics", key)
                what = "one pipeline of several is not compared with a baseline"
                yield Broken("metrics.baseline", at, what, fix="remove it")


def _tolerances(given: Metrics) -> Iterator[Broken]:
    asked = given.tolerances
    if asked and not given.baseline:
        what = "`metrics.tolerances` has nothing to compare with"
        yield Broken("metrics.baseline", ("metrics", "tolerances"), what, fix="give `metrics.baseline`")
    for index, item in enumerate(asked):
        at: Path = ("metrics", "tolerances", index)
        if item.from_step and item.to_step and item.from_step > item.to_step:
            what = f"`from_step` {item.from_step} is behind `to_step` {item.to_step}"
            yield Broken("metrics.baseline", (*at, "from_step"), what, fix="exchange the two")
        steps = [(other.metric, other.from_step, other.to_step) for other in asked[: index + 1]]
        if steps[-1] in steps[:-1]:
            what = f"`{item.metric}` is there twice for the same steps"
            yield Broken("metrics.baseline", (*at, "metric"), what, fix="remove one")


def _conditions(at: Path, conditions: Metrics) -> Iterator[Broken]:
    if not (conditions.require or conditions.abort_when):
        return
    from jobspec.metrics.requirements import parse_condition, parse_requirement

    parts = (
        ("require", conditions.require, parse_requirement),
        ("abort_when", conditions.abort_when, parse_condition),
    )
    for key, texts, parse in parts:
        for index, text in enumerate(texts):
            try:
                parse(text)
            except JobspecError as problem:
                first = problem.findings[0]
                yield Broken("metrics.require", (*at, key, index), first.what, first.why, first.fix)
