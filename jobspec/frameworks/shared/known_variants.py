"""Whether a level has the variants that the spec asks for. Each adapter has its own rule id."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from jobspec.finding import Finding, error
from jobspec.frameworks.base import Context, Level
from jobspec.words import did_you_mean, one_of


def unknown_variants(
    context: Context, rule: str, levels: Sequence[Level] = (), refused: Mapping[str, str] | None = None
) -> Iterator[Finding]:
    """An error for each variant that the level does not have, at its place in the list.

    `refused` gives the reason for a variant that the framework leaves out on purpose. For any other variant
    the error names those of `levels` that have it.
    """
    level, reasons = context.level, refused or {}
    for index, name in enumerate(context.spec.coverage.variants):
        if name in level.variants:
            continue
        others = [other.name for other in levels if name in other.variants]
        why = reasons.get(name, "") or (f"it belongs to level {one_of(others)}" if others else "")
        fix = did_you_mean(name, level.variants) or f"use {one_of(level.variants)}"
        if not level.variants:
            fix = "remove it: the level has no variants"
        what = f"level `{level.name}` has no variant `{name}`"
        yield error(rule, what, why, fix, path=f"coverage.variants[{index}]")
