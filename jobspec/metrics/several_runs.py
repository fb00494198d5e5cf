"""Tells whether files of one folder are of several runs: the same steps, and other values."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import combinations

from jobspec.finding import Finding, warning
from jobspec.metrics.names import LIKELY, plain_name
from jobspec.metrics.table import Table
from jobspec.runtime.base.metric_files import Row

KNOWN = frozenset(plain_name(name) for names in LIKELY.values() for name in names)
MIN_COMMON = 5
CLOSE = 0.01  # a console prints four digits
MAX_SOURCES = 20
SAME_STEPS = 0.9
Series = Mapping[int, float]


def several_runs(tables: Iterable[Table]) -> tuple[Finding, ...]:
    """A warning for the first metric that two files hold with other values at the same steps.

    A resumed run repeats a few steps, so most steps of the shorter file must be in both. Steps that are
    inferred prove nothing by themselves: a resumed process may be counted from 1 on (`comparable`).
    """
    rows: dict[str, list[Row]] = {}
    inferred: set[str] = set()
    for table in tables:
        inferred.update(table.inferred)
        for row in table:
            if plain_name(row.metric) in KNOWN:
                rows.setdefault(plain_name(row.metric), []).append(row)
    found = {metric: numberings(own) for metric, own in rows.items()}
    return tuple(_warnings(found, inferred))[:1]


def _warnings(found: Mapping[str, Mapping[str, Series]], inferred: Collection[str]) -> Iterator[Finding]:
    for metric, sources in found.items():
        for one, other in combinations(list(sources)[:MAX_SOURCES], 2):
            counted = sum(name in inferred for name in (one, other))
            if counted == 2 or (counted and not comparable(sources[one], sources[other])):
                continue
            if differ(sources[one], sources[other]):
                yield warning(
                    "metrics.several-runs",
                    f"`{one}` and `{other}` hold other values of `{metric}` for the same steps",
                    "they may be of two runs, or of two parts of one",
                    "judge the folder of one run",
                    file=other.partition(" from line ")[0],
                )


def comparable(one: Series, other: Series) -> bool:
    """Whether both hold nearly the same steps, as of one whole run each, however they were counted."""
    return len(one.keys() & other.keys()) >= SAME_STEPS * max(len(one), len(other))


def numberings(rows: Iterable[Row]) -> dict[str, dict[int, float]]:
    """The values by step of each source; of one that numbers its steps anew, and ends earlier, by part.

    A process that resumes goes on near the last step. One that begins at the first step again is another run,
    or an epoch that counts for itself; where it ends earlier, the later steps are of the one before.
    """
    parts: dict[str, list[tuple[int, int, dict[int, float]]]] = {}
    for row in rows:
        if row.step is None:
            continue
        known = parts.setdefault(row.source, [])
        if not known or (len(known[-1][2]) >= MIN_COMMON and row.step <= known[-1][1]):
            known.append((row.line or 0, row.step, {}))
        known[-1][2][row.step] = row.value
    found: dict[str, dict[int, float]] = {}
    for source, known in parts.items():
        line, _, last = known[-1]
        earlier = [(at, part) for at, _, part in known[:-1] if max(part) > max(last) and differ(part, last)]
        if earlier:
            found |= {f"{source} from line {at} on": part for at, part in (earlier[-1], (line, last))}
        else:
            found[source] = {step: value for _, _, part in known for step, value in part.items()}
    return found


def differ(one: Series, other: Series) -> bool:
    """Whether both hold the same steps, and mostly other values.

    Steps of a console's lines may be counted one too low: the same values in the same order, from the first
    on or up to the last, are of the same run.
    """
    common = one.keys() & other.keys()
    if len(common) < MIN_COMMON or 2 * len(common) <= min(len(one), len(other)):
        return False
    short, long = sorted(([of[step] for step in sorted(of)] for of in (one, other)), key=len)
    pairs = ([(one[step], other[step]) for step in common], zip(short, long, strict=False),
             zip(reversed(short), reversed(long), strict=False))  # fmt: skip
    return all(_mostly_other(list(values)) for values in pairs)


def _mostly_other(pairs: Sequence[tuple[float, float]]) -> bool:
    return 2 * sum(not alike(*pair) for pair in pairs) > len(pairs)


def alike(one: float, other: float) -> bool:
    both_nan = math.isnan(one) and math.isnan(other)
    return both_nan or math.isclose(one, other, rel_tol=CLOSE, abs_tol=1e-4)
