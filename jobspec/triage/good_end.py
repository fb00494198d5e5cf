"""What a program outlived that ended well without a train step, and what failed after a training was done."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from jobspec.triage.attempts import Attempt
from jobspec.triage.course import CRASHED
from jobspec.triage.landmarks import Landmark
from jobspec.triage.match import Match
from jobspec.triage.ranking import (
    DEADLY,
    ENDED_WITH_IT,
    NEVER_SURVIVED,
    NOT_SUBMITTED,
    PARTING,
    STEP_ENDED,
    is_end,
)
from jobspec.triage.shell_trace import last_command
from jobspec.triage.signatures import NOTE, RAISED
from jobspec.triage.traceback import Traceback

_FULL = re.compile(r"100%\||\b(\d+)/\1 \[")  # a bar that came to its end
# Calls by which a trainer's script ends, the outermost first.
_LATER = re.compile(
    r":(push_to_hub|upload_\w+|log_artifact\w*|create_(?:commit|repo)|save_model|save_pretrained|save_state\w*"
    r"|\w*save_checkpoint\w*|merge_and_unload|export_\w+|evaluate|evaluation_loop|predict|validate|save)$"
)
EFFECTS = "effect."  # how their names begin
LASTING = (EFFECTS, CRASHED)
AGAIN = "; where the result of that training was saved, what it trained need not be repeated"


def later_step(above: Traceback, since: Sequence[bytes]) -> str:
    """What the program, or the script that traces itself, was doing after the lines since the end of the
    training; "" if not shown."""
    call = next((found[1] for frame in above.frames if (found := _LATER.search(frame))), "")
    command = "" if call else last_command(since)
    return f"in `{call}`" if call else f"after `+ {command}`" if command else ""


def with_good_end(matches: Sequence[Match], attempt: Attempt) -> list[Match]:
    """The matches of one log; as survived where the program worked on to the end of its work after them, and
    stated a good end. An exception is none of them: a pipe or a script may state the end of another."""
    course, last = attempt.course, attempt.work.last
    worked = [course.wrote] if course.wrote is not None else []
    if last is not None and _FULL.search(last.text):
        worked.append(Landmark(last.line))
    end = max((mark.line for mark in worked), default=0)
    good = course.stated_end or course.good_before
    stated = good.line if good is not None else 0
    if not end or (stated < end and not _nothing_failed(matches, end, attempt)):
        return list(matches)
    return [
        replace(match, survived=True, generic=True) if _outlived(match, end, stated) else match
        for match in matches
    ]


def _outlived(match: Match, end: int, stated: int) -> bool:
    if match.verdict == NOTE or match.main or is_end(match) or RAISED.search(match.text):
        return False
    if NOT_SUBMITTED in match.text:
        return False
    if match.line < end:
        return match.kind not in NEVER_SURVIVED | DEADLY and not match.signature.startswith(LASTING)
    ended_with_it = match.signature in PARTING or match.kind in ENDED_WITH_IT or match.wrapper
    return match.line < stated and ended_with_it and match.signature != STEP_ENDED


def _nothing_failed(matches: Sequence[Match], end: int, attempt: Attempt) -> bool:
    """Whether a program that wrote what it was to write, and says no exit code, shows no failure after that,
    and none that may be of its own."""
    if attempt.course.wrote is None or attempt.course.wrote.line < end:
        return False
    return not any(
        match.verdict != NOTE
        and (match.line > end or match.signature.startswith(EFFECTS) or RAISED.search(match.text))
        for match in matches
    )


def after_training(match: Match, attempt: Attempt) -> Match:
    """The match; with the line that shows the training done before it, and the later step that failed."""
    done = attempt.course.trained or attempt.course.done
    if done is None or done.line >= match.line or match.verdict == NOTE or match.survived or is_end(match):
        return match
    again = "" if match.kind in NEVER_SURVIVED - {"checkpoint"} else AGAIN
    where = f", which came {match.doing}" if match.doing else ""
    fact = f"{match.file}:{done.line} shows the end of a training before this failure{where}"
    return replace(match, facts=(*match.facts, fact), fix=f"{match.fix}{again}")
