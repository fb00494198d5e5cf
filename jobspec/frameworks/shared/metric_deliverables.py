"""Deliverables that several frameworks share: what the logged metrics prove, whoever logged them."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import combinations, pairwise
from typing import TYPE_CHECKING

from jobspec.evidence.deliverables import not_found
from jobspec.evidence.lost_answers import most
from jobspec.frameworks.shared.answer import unseen
from jobspec.metrics import names
from jobspec.metrics.finite import all_finite, first_not_finite
from jobspec.metrics.held_out import held_out_rise, trained_rise
from jobspec.metrics.learning_signal import MIN_POINTS, Direction, Signal, assess
from jobspec.metrics.several_runs import MAX_SOURCES, comparable, differ, numberings
from jobspec.metrics.trackers import LOGS_EVERY
from jobspec.metrics.training_health import troubles
from jobspec.metrics.trouble import Trouble
from jobspec.metrics.untrained import untrained
from jobspec.triage.signatures import NOTE
from jobspec.verdict import Deliverable, EvidenceItem, Status

if TYPE_CHECKING:
    from jobspec.evidence.evidence import Evidence
    from jobspec.metrics import Row
    from jobspec.plan import LearningPlan

TRAINER_END = "train_runtime"  # the Hugging Face Trainer logs it when it has done what it was to do
TRAINING, CHECKPOINT, RESUME, LEARNING = "Training", "Checkpoint", "Resume", "Learning"
UNPLACED = (
    "several logs name no step, and each is counted from the start: the order of their values is not known"
)
MAX_TOLD = 3  # patterns that a reason names beside the first; the findings name all


def row_item(row: Row, text: str = "") -> EvidenceItem:
    """A row of the metrics as evidence."""
    return EvidenceItem(row.source, row.line, text or f"step {row.step}", row.metric, row.value)


def not_logged(name: str, evidence: Evidence, metric: str) -> Deliverable:
    """`Fail` for a run of ours, which was to log it; files of another origin may lack what the run logged."""
    if not evidence.foreign:
        return Deliverable(name, Status.FAIL, reason=f"no train step logged `{metric}`")
    asked = metric if name != TRAINING or evidence.metrics.metrics else ""  # a step may log another one
    return Deliverable(name, Status.BLOCKED, reason=not_found(evidence, asked))


def learning_deliverable(evidence: Evidence) -> Deliverable:
    """`Pass` when the asked metric moved in the asked direction beyond its noise (`metrics.signal`).

    Where a random walk stays possible, the reason says so. `Fail` when enough steps show no such move, or a
    pattern contradicts it; `Blocked` when values are too few to tell, or somebody else's run is not whole.
    """
    expected = evidence.plan.expect.learning
    if expected is None:
        return Deliverable(LEARNING, Status.NOT_REQUESTED, required=False)
    rows = _learnt_rows(evidence)
    if not rows:
        return not_logged(LEARNING, evidence, expected.metric)
    signal = _signal(evidence)
    if unlike := _unlike_files(evidence):
        return Deliverable(
            LEARNING, Status.BLOCKED, (row_item(rows[0]),), unlike, fix="judge one of them alone"
        )
    if evidence.metrics.is_unplaced(expected.metric):
        return Deliverable(LEARNING, Status.BLOCKED, (row_item(rows[0]),), f"`{expected.metric}`: {UNPLACED}")
    # What is wrong with the asked metric itself comes first.
    problems = sorted(metric_troubles(evidence), key=lambda one: one.row.metric != expected.metric)
    ends: tuple[EvidenceItem, ...] = (row_item(rows[0]), row_item(rows[-1]))
    reasons = [f"`{expected.metric}` {signal.reason}: {signal.figures()}"]
    if not signal.moved:
        turn, told = _turn(rows, _direction(expected))
        ends = tuple(dict.fromkeys((row_item(turn), *ends)))
        reasons += told
    fatal = [trouble for trouble in problems if trouble.fatal]
    if fatal:
        others = [trouble.what for trouble in problems if trouble not in fatal[:1]][:MAX_TOLD]
        reasons = [f"{fatal[0].what}: {fatal[0].why}", *others]
        return Deliverable(LEARNING, Status.FAIL, (row_item(fatal[0].row), *ends), "; ".join(reasons))
    beside = trained_rise(evidence.metrics, expected.metric, _direction(expected)) if signal.unclear else ""
    beside = beside or held_out_rise(evidence.metrics, but=expected.metric)
    shown_elsewhere = signal.unclear and len(rows) >= MIN_POINTS and beside
    if gone := most(evidence.lost):
        reasons.insert(0, f"{gone}: the reward is not that of the run")
        item = EvidenceItem(gone.file, gone.line, gone.text)
        return Deliverable(LEARNING, Status.BLOCKED, (item, *ends), "; ".join(reasons))
    if signal.moved or shown_elsewhere:
        reasons += filter(None, (beside, signal.limitation()))
        reasons += [one.what for one in problems if names.REWARD_PART.search(one.row.metric)][:MAX_TOLD]
        return Deliverable(LEARNING, Status.PASS, ends, "; ".join(reasons))
    reasons += [trouble.what for trouble in problems][:MAX_TOLD]
    last, planned = evidence.metrics.steps_done(), evidence.plan.expect.steps
    if evidence.foreign and last < planned:  # what the other steps would have shown is not known
        reasons.insert(0, f"not shown: the metrics that were read end at step {last:g} of {planned}")
        return Deliverable(LEARNING, Status.BLOCKED, ends, "; ".join(reasons))
    return Deliverable(LEARNING, Status.BLOCKED if signal.unclear else Status.FAIL, ends, "; ".join(reasons))


def _turn(rows: Sequence[Row], direction: Direction) -> tuple[Row, list[str]]:
    """The row that a series which did not move stands for, and facts that say what became of it.

    A jump the wrong way that is most of the whole spread, and more than twice any other step: its row. Else
    the last one. The best value is told where it came before.
    """
    if len(rows) < MIN_POINTS or not all(math.isfinite(row.value) for row in rows):
        return rows[-1], []
    sign = 1.0 if direction == "up" else -1.0
    best = max(rows, key=lambda row: sign * row.value)
    word = "highest" if direction == "up" else "lowest"
    first = "first " if sum(row.value == best.value for row in rows) > 1 else ""
    told = [f"its {word} value is {best.value:.4g}, {first}at step {best.step}"]
    told = told if best.value != rows[-1].value else []
    falls = sorted(((sign * (a.value - b.value), a, b) for a, b in pairwise(rows)), key=lambda fall: -fall[0])
    (fell, before, after), (next_fall, *_) = falls[:2]
    spread = abs(best.value - min(rows, key=lambda row: sign * row.value).value)
    if fell > spread / 2 and fell > 2 * next_fall:
        told.append(
            f"it went from {before.value:.4g} at step {before.step} to {after.value:.4g} at {after.step}"
        )
        return after, told
    return rows[-1], told


def learning_limitation(evidence: Evidence) -> str:
    """What a learning signal leaves possible; empty where the values rule it out, or show no signal."""
    if evidence.plan.expect.learning is None or learning_deliverable(evidence).status is not Status.PASS:
        return ""
    limitation = _signal(evidence).limitation()
    return f"`{evidence.plan.expect.learning.metric}`: {limitation}" if limitation else ""


def _learnt_rows(evidence: Evidence) -> Sequence[Row]:
    learning = evidence.plan.expect.learning
    series = evidence.metrics.series(learning.metric) if learning is not None else ()
    return [row for row in series if row.step is not None]


def _signal(evidence: Evidence) -> Signal:
    learning = evidence.plan.expect.learning
    points = [(row.step or 0, row.value) for row in _learnt_rows(evidence)]
    return assess(points, _direction(learning), learning.min_change if learning is not None else 0.0)


def _direction(learning: LearningPlan | None) -> Direction:
    return "down" if learning is not None and learning.direction == "down" else "up"


def _unlike_files(evidence: Evidence) -> str:
    """Files that hold other values of the learnt metric for the same steps, where not all show the same."""
    learning = evidence.plan.expect.learning
    if learning is None or not evidence.foreign:
        return ""
    table, asked = evidence.metrics, names.plain_name(learning.metric)
    own = (row for row in (*table.rows, *table.aside) if names.plain_name(row.metric) == asked)
    files = numberings(own)
    counted = {row.source for row in table.aside}.intersection(table.inferred)

    def moved(name: str) -> bool:
        return assess(files[name].items(), _direction(learning)).moved

    pairs = combinations(list(files)[:MAX_SOURCES], 2)
    pair = next(
        (
            pair
            for pair in pairs
            if (comparable(*(files[name] for name in pair)) or not counted.intersection(pair))
            and differ(*(files[name] for name in pair))
            and len({moved(name) for name in pair}) == 2
        ),
        None,
    )
    if pair is None:
        return ""
    yes, no = sorted(pair, key=moved, reverse=True)
    what = f"`{yes}` and `{no}` hold other values of `{learning.metric}` for the same steps"
    return f"{what}, as two runs do, and it moves {learning.direction} in the first alone"


def metric_troubles(evidence: Evidence) -> tuple[Trouble, ...]:
    """Patterns of the run's metrics that rule out learning: zero gradients, a frozen policy …"""
    return troubles(evidence.metrics, evidence.plan.expect.metric_keys)


def training_deliverable(evidence: Evidence, metric: str, finite: Iterable[str] = ()) -> Deliverable:
    """`Pass` when every planned train step logged `metric`, and metrics are numbers throughout.

    That goes for the watched ones (`jobspec.metrics.finite`) and for `finite`, whatever their names say.

    A resumed run need not have the steps before its resume: another run logged them.
    """
    planned = evidence.plan.expect.steps
    rows = [row for row in evidence.metrics.series(metric) if row.step is not None]
    if not rows:
        return not_logged(TRAINING, evidence, metric)
    resumed = evidence.metrics.values("resume/from_step", finite=True)
    first = 1 + int(min(resumed, default=0))
    logged = sorted({row.step or 0 for row in rows})
    first = min(first, max(0, logged[0]))
    every = _distance(logged, _stated_distance(evidence, rows)) if evidence.foreign else 1
    if evidence.foreign and {0, 1} <= set(logged) and logged[-1] < planned:
        planned -= 1  # it counts from 0
    gaps = _gaps(logged, first, planned, every)
    if evidence.foreign and not gaps and logged[-1] < planned and _broke_off(evidence):
        gaps = [range(logged[-1] + 1, planned + 1)]
    ends = (row_item(rows[0]), row_item(rows[-1]))
    due = planned - first + 1
    announced = not evidence.foreign or _announced(evidence)
    kind = "planned train steps" if announced else "train steps"
    # Files of others may end before their run did.
    ran = "were read" if evidence.foreign and gaps else "ran"
    done = f"{due - sum(gap.stop - gap.start for gap in gaps)} of {due} {kind} {ran}"
    counted = evidence.foreign and _only_counted(evidence, rows)
    if counted:
        done = f"{len(rows)} records of train steps were read, and no step's number beside them"
    if evidence.foreign and gaps and gaps[0].start == first:
        reason = f"jobspec read the train steps from {gaps[0].stop} on: those before are not proved"
        return Deliverable(TRAINING, Status.BLOCKED, ends, reason)
    if gaps and evidence.metrics.is_unplaced(metric):
        return Deliverable(TRAINING, Status.BLOCKED, ends, f"not shown: {UNPLACED}")
    if gaps and _miscounted(evidence, rows):
        reason = (
            f"{len(rows)} records were read and no step's number beside them, and a checkpoint is of a later"
        )
        reason += " step than their count: the step of the last one is not proved"
        return Deliverable(TRAINING, Status.BLOCKED, ends, reason)
    if gaps:
        kept_in_part = evidence.foreign and not failure_shown(evidence)
        if gaps[0].start > logged[-1]:
            ends = ends[::-1]  # what is missing is missing behind the last one
        source = max(rows, key=lambda row: row.step or 0).source
        lack = _missing(gaps[0], logged, every, done, f"{planned} {kind}", metric, source)
        lost = unseen(kept_in_part, lack, ends)
        return Deliverable(TRAINING, lost.status, lost.items, lost.reason)
    spoilt = _spoilt(evidence, finite)
    if spoilt is not None:
        row, what = spoilt
        return Deliverable(TRAINING, Status.FAIL, (row_item(row),), f"{done}, but {what}")
    done += f", logged every {every} steps" if every > 1 and len(logged) > 1 and not counted else ""
    if not announced and failure_shown(evidence):
        unknown = "no number of planned steps was read with them: give `--steps`"
        reason = f"{done}; the log shows a failure, or an end from outside, and {unknown}"
        return Deliverable(TRAINING, Status.BLOCKED, ends, reason)
    last = "" if counted else " up to the last logged one"
    done += "" if announced else f"{last}, and no number of planned steps was read with them"
    return Deliverable(TRAINING, Status.PASS, ends, f"{done}; {all_finite(evidence.metrics.as_logged())}")


def _missing(
    gap: range, logged: Sequence[int], every: int, done: str, due: str, metric: str, source: str
) -> str:
    """Where the steps end or are missing; behind the last logged one some may have run."""
    if gap.start > logged[-1] and every > 1:
        return f"step {logged[-1]} of {due} is the last one with a `{metric}` in {source}"
    counted = " (counted from 0)" if logged[0] == 0 else ""
    return f"{done}; step {gap.start}{counted} is the first missing one"


def _spoilt(evidence: Evidence, finite: Iterable[str]) -> tuple[Row, str] | None:
    """What shows that steps were lost though they ran: no number, or nothing that was trained."""
    bad = first_not_finite(evidence.metrics, finite)
    if bad is not None:
        values = evidence.metrics.values(bad.metric)
        many = sum(not math.isfinite(value) for value in values)
        name = evidence.metrics.logged_name(bad.metric)
        what = f"`{name}` of step {bad.step} is {bad.value}, not a finite number"
        return bad, what + (f", like {many - 1} more of its {len(values)} values" if many > 1 else "")
    idle = next(
        (one for one in untrained(evidence.metrics, evidence.plan.expect.metric_keys) if one.fatal), None
    )
    return None if idle is None else (idle.row, f"{idle.what}: {idle.why}")


def _only_counted(evidence: Evidence, rows: Sequence[Row]) -> bool:
    """Whether these rows' steps are their places in a log, and nothing says how many steps there are."""
    known = evidence.plan.expect.options.get("steps") or evidence.metrics.planned
    return not known and {row.source for row in rows} <= set(evidence.metrics.inferred)


def _miscounted(evidence: Evidence, rows: Sequence[Row]) -> bool:
    """Whether these rows' steps are their places in a log, and a checkpoint shows that others are missing."""
    inferred = {row.source for row in rows} <= set(evidence.metrics.inferred)
    last = max(row.step or 0 for row in rows)
    return evidence.foreign and inferred and any(item.step > last for item in evidence.checkpoints)


def _announced(evidence: Evidence) -> bool:
    """Whether the user or the trainer said how many steps there are, or the trainer that it did them."""
    table, options = evidence.metrics, evidence.plan.expect.options
    return bool(options.get("steps") or table.planned or table.series(TRAINER_END))


def missing_status(evidence: Evidence) -> Status:
    """What is missing from a run of ours failed; others may have kept a part, where no failure is shown."""
    return Status.BLOCKED if evidence.foreign and not failure_shown(evidence) else Status.FAIL


def failure_shown(evidence: Evidence) -> bool:
    """Whether a log holds a failure that the run did not survive."""
    matches = () if evidence.last is None else evidence.last.matches
    failures = (match for match in matches if match.verdict != NOTE and not match.survived)
    return any(match.kind != "learning" for match in failures)  # a value of a metric ends no run


def _broke_off(evidence: Evidence) -> bool:
    """Whether a failure is shown, and no word of the trainer that it was at its end."""
    return failure_shown(evidence) and not evidence.metrics.series(TRAINER_END)


def _stated_distance(evidence: Evidence, rows: Sequence[Row]) -> int:
    """How far a single record reaches back: what the trainer's state says, or as far as the bar that gives it
    its step had moved in the same log."""
    stated = evidence.metrics.series(LOGS_EVERY)
    if stated:
        return int(stated[-1].value)
    counted = len(rows) == 1 and rows[0].source in evidence.metrics.inferred
    return max(1, rows[0].step or 1) if counted else 1


def _distance(steps: Sequence[int], alone: int = 1) -> int:
    """The commonest distance between logged steps: a trainer may log each tenth alone. `alone` is that of
    a single one."""
    gaps = Counter(later - earlier for earlier, later in pairwise(steps))
    return max(gaps, key=gaps.__getitem__, default=alone)


def _gaps(logged: Sequence[int], first: int, planned: int, every: int) -> list[range]:
    """Steps from `first` to `planned` that no logged one stands for: itself and the `every - 1` before it."""
    gaps, due = [], first
    for step in logged:
        if due < min(step - every, planned) + 1:
            gaps.append(range(due, min(step - every, planned) + 1))
        due = max(due, step + 1)
    if planned - due + 1 >= every:
        gaps.append(range(due, planned + 1))
    return gaps
