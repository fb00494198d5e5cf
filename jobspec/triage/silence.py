"""The silence before a run's end: whether it worked until its time was up, or had stood still for long."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from jobspec.triage.match import Match
from jobspec.triage.signatures import BLOCKED
from jobspec.triage.work import Sign, Work

STALL = "stall"  # the class of such an end
LEAST_S = 1800.0  # no shorter silence is one
LEAST_GUESSED_S = 3600.0  # where the time of the last sign is inferred, or no pause is known to compare with
PAUSES = 5  # times the longest pause between two signs of work
FEW_SIGNS = 3
FEW_LINES = 20  # without a time, which a run that does nothing may print
# Slurm's clock may show another zone than the program's: whole hours, and those of zones between.
ZONES_S = tuple(3600.0 * hours for hours in (*range(1, 15), 3.5, 4.5, 5.5, 5.75, 9.5))
FIX = (
    "find what it waited for from that line on, in the logs of the other workers and servers; if it stands"
    " still again, take stacks (`py-spy dump`) before it ends"
)


def stalled(end: Match, works: Mapping[str, Work]) -> Match | None:
    """The end as a stall, at the last sign of work; None where the run worked on, or nothing is known."""
    file, last, work = _last_sign(works) or _last_line(end, works) or ("", None, Work())
    if last is None or last.time is None or (file == end.file and last.line > end.line):
        return None
    seconds = _silence(end, last, work, works)
    few = work.count < FEW_SIGNS
    least = max(LEAST_GUESSED_S if few or not last.timed else LEAST_S, PAUSES * work.longest)
    if seconds is None or seconds <= least:
        return None
    return replace(
        end,
        signature="run.stall",
        kind=STALL,
        verdict=BLOCKED,
        file=file,
        line=last.line,
        text=last.text,
        time=last.time,
        context=(),
        generic=False,
        wrapper=False,
        place="",
        title=f"nothing shows work for {_span(seconds)} before the end",
        why=_why(end, file, last, work, seconds),
        fix=FIX,
        source="",
    )


def _last_sign(works: Mapping[str, Work]) -> tuple[str, Sign, Work] | None:
    """The last sign of work over all logs; None where there is none, or one may have come later."""
    found = [(file, work.last, work) for file, work in works.items() if work.last is not None]
    if not found or not all(work.known for _, _, work in found):
        return ("", Sign(0, ""), Work()) if found else None
    return max(found, key=lambda item: item[1].time or 0.0)


def _last_line(end: Match, works: Mapping[str, Work]) -> tuple[str, Sign, Work] | None:
    """The last line that says anything; None where lines without a time may be later."""
    found = [(file, work.said, work) for file, work in works.items() if work.said is not None]
    if not found or any(work.untimed > FEW_LINES for work in works.values()):
        return None
    return max(found, key=lambda item: item[1].time or 0.0)


def _silence(end: Match, last: Sign, work: Work, works: Mapping[str, Work]) -> float | None:
    """The seconds from the last sign to the end; None where clocks of two zones may explain them."""
    start = last.time or 0.0
    heard = max((item.until for item in works.values() if item.until is not None), default=start) - start
    slurm = (end.time or 0.0) - start
    if heard > 0:
        return min(heard, slurm) if slurm > 0 else heard
    usual = max(work.longest, 300.0)
    return None if any(-60 <= slurm - zone <= usual for zone in ZONES_S) else slurm


def _why(end: Match, file: str, last: Sign, work: Work, seconds: float) -> str:
    sign = "the last sign of work" if work.last is not None else "the last line with a time"
    parts = [f"{sign} is {file}:{last.line}, {_span(seconds)} before {end.file}:{end.line}"]
    if work.count >= FEW_SIGNS and work.longest:
        parts.append(f"no pause before it was longer than {_span(work.longest)}")
    if work.phase is not None and work.phase.line != last.line:
        parts.append(f"the last phase that began is `{work.phase.text}` ({file}:{work.phase.line})")
    if not last.timed:
        parts.append("its time is inferred from the lines above it")
    return "; ".join([*parts, f"inferred: the run stood still, and the end ({end.title}) is an effect"])


def _span(seconds: float) -> str:
    minutes = round(seconds / 60)
    return f"{minutes // 60} h {minutes % 60} min" if minutes >= 60 else f"{max(minutes, 1)} min"
