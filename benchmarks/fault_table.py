"""The table of `faults.py`: how each row ended, kept in a file, and put into a page of the documentation."""

from __future__ import annotations

import json
import re
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

HEADS = ("fault", "moment", "noticed s", "ended s", "state", "first cause", "artifacts", "left-overs")
_TABLE = re.compile(r"\| fault \|.*?\n\n[^\n]* as they should be[^\n]*\n", re.DOTALL)


@dataclass(frozen=True)
class Seen:
    """How a row ended. Seconds are from the fault on; None where it never was so."""

    name: str
    noticed: float | None = None
    ended: float | None = None
    state: str = ""
    cause: str = ""
    right: bool = False
    kept: str = ""
    left: str = ""
    attempts: int = 0
    digests: tuple[str, ...] = ()
    broken: str = ""  # the row itself could not be done
    day: str = ""
    jobs: int = 1  # of Slurm, with this run's name

    @property
    def good(self) -> bool:
        return self.right and self.kept != "no" and not self.broken and self.jobs == 1


def today() -> str:
    return time.strftime("%Y-%m-%d")


def keep(file: Path, seen: Sequence[Seen]) -> list[Seen]:
    """Write the rows to `file`; those of an earlier call stay where they were not run again. Returns all."""
    found: dict[str, Seen] = {}
    if file.exists():
        found = {row["name"]: Seen(**row) for row in json.loads(file.read_text())}
    found |= {row.name: row for row in seen}
    file.write_text(json.dumps([asdict(row) for row in found.values()], indent=1) + "\n")
    return list(found.values())


def cells(row: Seen) -> list[str]:
    def seconds(value: float | None) -> str:
        return "-" if value is None else f"{value:.1f}"

    verdict = "right" if row.right else f"WRONG: {row.broken or row.cause}"
    fault, _, moment = row.name.partition(" / ")
    left = counted(row.left.split(", "))
    return [fault, moment, seconds(row.noticed), seconds(row.ended), row.state, verdict, row.kept, left]


def counted(left: Sequence[str]) -> str:
    """`folders on n5, folders on n6` as `folders on 2 nodes`: which ones they were is chance."""
    places = Counter(what.rpartition(" on ")[0] for what in left if " on " in what)
    rows = [f"{what} on {count} node{'s'[: count > 1]}" for what, count in places.items()]
    return ", ".join(rows) or ", ".join(left)


def table(seen: Sequence[Seen], order: Sequence[str], left: Sequence[str]) -> Iterator[str]:
    """Markdown, in the order of all rows' names; it says which of them were not run."""
    yield "| " + " | ".join(HEADS) + " |"
    yield "|" + "---|" * len(HEADS)
    found = {row.name: row for row in seen}
    for row in (found[name] for name in order if name in found):
        yield "| " + " | ".join(cell.replace("|", "\\|") for cell in cells(row)) + " |"
    yield ""
    good, days = sum(row.good for row in seen), sorted({row.day for row in seen})
    missing = [name for name in order if name not in found]
    absent = ", ".join(missing) if len(missing) < 10 else f"{len(missing)} rows"
    rest = ", ".join(left) or "nothing is left"
    yield (
        f"{len(seen)} rows of {' and '.join(days)}, {good} as they should be, "
        f"{sum(row.jobs != 1 for row in seen)} with more than one job; after the next job {rest}; "
        f"not run: {absent or 'none'}"
    )


def into_page(page: Path, lines: Sequence[str]) -> None:
    """Put the table in place of the page's."""
    text, count = _TABLE.subn(lambda _: "\n".join(lines) + "\n", page.read_text())
    assert count == 1, f"{page} has {count} tables of faults"
    page.write_text(text)
