"""`coverage.not_applicable`: variants that the framework blocks, each with what shows it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from jobspec.disk import is_file
from jobspec.finding import Finding, error
from jobspec.frameworks.base import Framework, Level
from jobspec.plan import NotApplicablePlan
from jobspec.planning.assemble import Resolution
from jobspec.planning.paths import absolute
from jobspec.runtime.base.run_files import read_lines
from jobspec.words import did_you_mean, one_of

URL = re.compile(r"https?://\S+")
WITH_LINE = re.compile(r"(.+):([1-9][0-9]{0,8})")
MAX_TEXT = 200


def not_applicable(
    resolution: Resolution, framework: Framework, level: Level
) -> Iterator[NotApplicablePlan | Finding]:
    """One entry each; an error for a variant that is unknown or trained, and for missing evidence."""
    trained = () if resolution.spec.coverage.variants else level.variants[:1]
    known = [name for level in framework.levels for name in level.variants]
    for index, entry in enumerate(resolution.spec.coverage.not_applicable):
        path = f"coverage.not_applicable[{index}]"
        if entry.variant not in known:
            what = f"no level of `{framework.name}` has a variant `{entry.variant}`"
            fix = did_you_mean(entry.variant, known) or f"see `jobspec framework show {framework.name}`"
            yield error("coverage.not-applicable", what, fix=fix, path=f"{path}.variant")
        elif entry.variant in trained:
            what = (
                f"`{entry.variant}` is what level `{level.name}` trains where `coverage.variants` names none"
            )
            why = "a variant that the framework blocks cannot be trained"
            others = one_of(level.variants[1:])
            fix = f"name another in `coverage.variants`: {others}" if others else "remove the entry"
            yield error("coverage.not-applicable", what, why, fix, path=f"{path}.variant")
        elif URL.fullmatch(entry.evidence):
            yield NotApplicablePlan(entry.variant, entry.why, entry.evidence)
        else:
            yield _from_file(resolution, NotApplicablePlan(entry.variant, entry.why, entry.evidence), path)


def _from_file(resolution: Resolution, entry: NotApplicablePlan, path: str) -> NotApplicablePlan | Finding:
    """The entry with its absolute file and the line's text; an error where one of the two is not there."""
    given = absolute(entry.evidence, resolution.base, resolution.env)
    match = WITH_LINE.fullmatch(given)
    file, line = (match.group(1), int(match.group(2))) if match and not is_file(given) else (given, 0)
    if not is_file(file):
        what, fix = f"there is no file `{file}`", "name a file, a file and its line, or a URL"
        return error("coverage.not-applicable", what, fix=fix, path=f"{path}.evidence")
    try:
        lines = islice(read_lines(Path(file)), line - 1, line) if line else iter(())
        text = next(iter(lines), b"" if not line else None)
    except OSError as problem:
        what = f"`{file}` cannot be read: {problem.strerror}"
        return error("coverage.not-applicable", what, fix="check its permissions", path=f"{path}.evidence")
    if text is None:
        what = f"`{file}` has no line {line}"
        return error("coverage.not-applicable", what, fix="correct the line", path=f"{path}.evidence")
    shown = text.decode("utf-8", "replace").strip()[:MAX_TEXT]
    return NotApplicablePlan(entry.variant, entry.why, file, line, shown)
