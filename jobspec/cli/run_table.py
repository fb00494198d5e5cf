"""The table of runs: one row from the data of a run, and the columns that a terminal has room for."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

from jobspec.units import duration, figure, is_date

HEADER = (
    "RUN", "NAME", "CLUSTER", "JOB", "STATE", "VERDICT", "STEP", "REWARD", "LOSS", "GRAD NORM", "TOKENS/S",
    "ATTEMPT", "AGE", "REASON",
)  # fmt: skip
FIGURES = ("loss", "grad norm", "tokens/s")
_OPTIONAL = frozenset({"LOSS", "GRAD NORM", "TOKENS/S"})
# The first to go where the terminal is too narrow.
_LEAST = (
    "ATTEMPT",
    "GRAD NORM",
    "LOSS",
    "TOKENS/S",
    "JOB",
    "CLUSTER",
    "REWARD",
    "AGE",
    "REASON",
    "STEP",
    "NAME",
)
GAP, MIN_REASON = 2, 16


def row(data: Mapping[str, Any], stage: str = "") -> tuple[str, ...]:
    """A run's row. `stage` is the progress of staging while nodes stage."""
    name = data["name"] + (f" ({data['points']} points)" if data["points"] else "")
    scheduler = data["scheduler"]
    if scheduler is None:
        state = "damaged" if data["damaged"] else "not started"
        return (data["run_id"], name, "", "", state, *[""] * (len(HEADER) - 5))
    said = str(scheduler.get("reason") or "")
    if not data["verdict"] and data["verdict_reason"]:
        said = "; ".join(filter(None, (said, data["verdict_reason"])))
    waits = not data["final"] and not scheduler.get("nodes") and scheduler.get("start")
    said += f", start expected {scheduler['start']}" if waits else ""
    said += _maintenance(data)
    return (
        data["run_id"],
        name,
        data["cluster"],
        data["job_id"],
        data["state"],
        data["verdict"],
        *progress(data),
        str(int(scheduler.get("restarts") or 0) + 1),
        duration(max(0.0, time.time() - (data["submit_time"] or data["intent_time"] or 0.0))),
        "; ".join(words for words in (said, f"staging: {stage}" if stage else "") if words),
    )


def _maintenance(data: Mapping[str, Any]) -> str:
    """The maintenance that a waiting run's time limit reaches."""
    ahead = (data.get("forecast") or {}).get("maintenance")
    if not isinstance(ahead, dict) or not isinstance(ahead.get("start"), int) or not is_date(ahead["start"]):
        return ""
    when = time.strftime("%Y-%m-%d %H:%M", time.localtime(ahead["start"]))
    return f", its time limit reaches the maintenance `{ahead.get('name')}` of {when}"


def progress(data: Mapping[str, Any]) -> tuple[str, ...]:
    """The columns from STEP to TOKENS/S."""
    step, steps, figures = data["step"], data["steps"], data["figures"]
    text = f"{step or 0} of {steps}" if steps else "" if step is None else str(step)
    values = (data["value"], *(figures.get(name) for name in FIGURES))
    return (text, *("" if value is None else figure(value) for value in values))


def fitted(rows: Sequence[tuple[str, ...]], width: int = 0) -> tuple[list[str], list[list[str]]]:
    """Header and rows without figures that no run has, and without columns that `width` has no room for.

    `width` 0 has room for all. REASON, the last column, needs little: its text may wrap.
    """
    columns = list(zip(*rows, strict=True)) or [()] * len(HEADER)
    kept = [at for at, name in enumerate(HEADER) if name not in _OPTIONAL or any(columns[at])]
    widths = {at: max(map(len, (HEADER[at], *columns[at]))) for at in kept}
    last = len(HEADER) - 1
    widths[last] = min(widths[last], MIN_REASON)
    for name in _LEAST:
        if not width or sum(widths[at] for at in kept) + GAP * (len(kept) - 1) <= width:
            break
        kept = [at for at in kept if HEADER[at] != name]
    shown = zip(*(columns[at] for at in kept), strict=True)
    return [HEADER[at] for at in kept], [list(row) for row in shown]
