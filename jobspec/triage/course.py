"""How far a run had come, by the landmarks of its logs, and what that says of a failure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple, cast

from jobspec.triage.landmarks import Landmark
from jobspec.triage.match import Match
from jobspec.triage.signatures import BLOCKED, FAIL

CRASHED = "host.sigsegv"  # before a step the set-up's or the node's, not the training's
# Fields of `Course`, and what they say: those that show less first.
MARKS_SAY = {
    "construction": "the construction of a model began",
    "built": "the trainer was built",
    "done": "the trainer said that it was at its end",
    "bar": "a bar of the training had moved",
    "first_step": "a training step was done",
}
MARKS = tuple(MARKS_SAY)
FIRST_MARK = {"construction": "construction", "rollout": "built", "step": "done"}
UNKNOWN_PLACE = {
    "construction": "",
    "rollout": "",
    "step": "triage knows no line before it as one of a finished training step",
}


@dataclass(frozen=True)
class Course:
    """How far the run had come, by the landmarks of one log."""

    managed: bool = False
    construction: Landmark | None = None
    built: Landmark | None = None
    bar: Landmark | None = None
    first_step: Landmark | None = None
    last_step: Landmark | None = None
    finite: Landmark | None = None  # the last gradient norm that is a number
    done: Landmark | None = None
    closed: Landmark | None = None
    stated_end: Landmark | None = None
    trained: Landmark | None = None  # the end of a training, of this stage or of one before
    wrote: Landmark | None = None
    good_before: Landmark | None = None  # a good end that was stated in a stage before

    @property
    def ended_well(self) -> bool:
        """Whether a good end is stated after the last train step, or after the trainer's own end."""
        last = max((mark.line for mark in (self.last_step, self.done) if mark is not None), default=0)
        return self.stated_end is not None and 0 < last < self.stated_end.line

    @property
    def finished(self) -> bool:
        """Whether the trainer reached its end, after a train step."""
        steps = self.last_step is not None and self.done is not None and self.last_step.line < self.done.line
        return steps or self.ended_well


def at_boundary(match: Match, courses: Mapping[str, Course]) -> Match:
    """The match, with its verdict by the position of the run where the signature has a boundary.

    Before Megatron-Bridge builds the model, a failure is about the surroundings. Before the first step, no
    fabric has proved to work. Later landmarks imply the earlier ones. Without Megatron-Bridge the
    boundary changes no verdict, and without a landmark nothing is said about it.
    """
    if not match.boundary:
        return match
    begun = max(
        (mark for mark in _marks(match, courses) if _before(mark.landmark, match, mark.file)),
        key=lambda mark: MARKS.index(mark.name),
        default=None,
    )
    verdict = match.verdict
    if match.signature == CRASHED and not any(_trained(course) for course in courses.values()):
        verdict = BLOCKED
    if any(course.managed for course in courses.values()):
        verdict = FAIL if begun and match.boundary != "rollout" else BLOCKED
    where = _where(begun, match) if begun else UNKNOWN_PLACE[match.boundary]
    return replace(match, verdict=verdict, facts=(*match.facts, where) if where else match.facts)


def _trained(course: Course) -> bool:
    return any((course.first_step, course.bar, course.done))


class _Mark(NamedTuple):
    name: str
    file: str
    landmark: Landmark


def _marks(match: Match, courses: Mapping[str, Course]) -> Iterator[_Mark]:
    """The landmarks that show the match's boundary passed: its own and all later ones."""
    for file, course in courses.items():
        for name in MARKS[MARKS.index(FIRST_MARK[match.boundary]) :]:
            landmark = getattr(course, name)
            if landmark is not None:
                yield _Mark(name, file, _latest(course, match, file) if name == "first_step" else landmark)


def _latest(course: Course, match: Match, file: str) -> Landmark:
    """The last step that the log shows before the match; where that is not known, the first."""
    first, last = cast(Landmark, course.first_step), course.last_step
    return last if last is not None and _before(last, match, file) else first


def _where(mark: _Mark, match: Match) -> str:
    timed = mark.landmark.time is not None and match.time is not None
    seen = f"{MARKS_SAY[mark.name]} ({mark.file}:{mark.landmark.line})"
    if mark.file == match.file:
        return f"it came after {seen}"
    return f"before it, by another log, {seen}" if timed else f"inferred: before it, by another log, {seen}"


def _before(mark: Landmark, match: Match, file: str) -> bool:
    """Whether the landmark came before the match; in another log without times it counts as before."""
    if file == match.file:
        return mark.line < match.line
    return mark.time is None or match.time is None or mark.time < match.time
