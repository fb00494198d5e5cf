"""Finds patterns of metrics that show a training that goes wrong or learns nothing. Pure.

`jobspec.metrics.names` has the names of NeMo-RL, verl, SkyRL, TRL and OpenRLHF; the plan adds a framework's
own. The limits lie outside of what healthy runs do: `benchmarks/learning_signal.py` counts the false alarms.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import accumulate, takewhile
from statistics import median

from jobspec.metrics import names
from jobspec.metrics.course import MIN_ROWS, SURE, since_row, usual_step
from jobspec.metrics.finite import passing
from jobspec.metrics.held_out import held_out, held_out_loss
from jobspec.metrics.table import Table
from jobspec.metrics.trouble import Rows, Trouble, series_named
from jobspec.metrics.untrained import NO_GRADIENT, REWARDED, UNTRAINED, untrained
from jobspec.runtime.base.metric_files import Row

GO_BACK = "go back to a checkpoint before that step, where there is one"
MIN_CONSTANT = 8
MIN_COURSE = 10  # fewer values have no beginning and end to compare
MIN_END = 5  # values of an end, at least: two spikes among them do not move its median
HIGH = 0.95
LOST, LOST_ALL = 0.5, 0.9  # shares of what a reward had gained
FEW = 1 / 8  # of the first length
KL_GROWTH, KL_MOST = 100, 1.0  # in nats a token: healthy runs stay below
ENTROPY_LEAST, ENTROPY_MOST = 0.05, 2.0
GRADIENT_GROWTH, GRADIENT_MOST = 30, 10.0
GAP_GROWTH = 5
FROZEN_SAMPLES = "mostly the sampled policy never changes, or the value is not computed anew"
FROM_THE_START = "look at what the training starts from: data, loss mask, weights, precision"
CONSTANT = "a reward that never moves shows no learning: every answer earns the same, or none gets a value"


Check = Callable[[Rows], Iterator[Trouble]]


def troubles(table: Table, keys: Mapping[str, str] | None = None) -> tuple[Trouble, ...]:
    """Every pattern that the metrics show; `keys` are the framework's own names, such as `reward`."""
    return tuple(_troubles(table, keys or {}))


def _troubles(table: Table, keys: Mapping[str, str]) -> Iterator[Trouble]:
    plan_names = names.own_names(keys)
    rated = any(REWARDED.search(name) for name in table.metrics)
    for pattern, figure, checks in CHECKS:
        for rows in series_named(table, pattern, plan_names.get(figure)):
            for trouble in (one for check in checks for one in check(rows)):
                unrated = trouble.kind == "zero-gradient" and not rated
                yield replace(trouble, why=NO_GRADIENT, fix=UNTRAINED) if unrated else trouble
    # Beside a margin that is no number what is counted of it says nothing.
    spoilt = not all(map(math.isfinite, table.values("rewards/margins")))
    for rows in series_named(table, names.REWARD_PART, None):  # one of several that make the reward
        lost = () if spoilt else _lost(rows)
        yield from (replace(trouble, fatal=False) for trouble in (*lost, *_zero_part(rows)))
    # `zero-gradient` stands above.
    yield from (one for one in untrained(table, keys) if one.kind != "no-gradient")
    yield from held_out(list(series_named(table, names.HELD_OUT, None)))
    yield from held_out_loss(table)


# -- values that never change, or are no numbers -----------------------------------------------------


def _not_finite(rows: Rows) -> Iterator[Trouble]:
    lost = [row for row in rows if not math.isfinite(row.value)]
    if lost:
        bad, later = lost[0], [row for row in rows if (row.step or 0) > (lost[-1].step or 0)]
        what = f"`{bad.metric}` of step {bad.step} is {bad.value}"
        why = "such a value spoils every parameter that it reaches, unless its update is skipped"
        fix = FROM_THE_START if bad is rows[0] else "lower the learning rate"
        if len(later) >= MIN_ROWS:
            what += (
                f", at {len(lost)} of {len(rows)} logged steps in all" if len(lost) > 1 else ", there alone"
            )
            why = f"from step {later[0].step} on it is a number again: the value was lost, or its update"
            fix = "see in the log whether the trainer skipped that update"
        elif len(lost) > 1:
            what += f", the first of {len(lost)} such values of {len(rows)}"
        fatal = not passing(bad.metric, rows)
        yield Trouble("not-finite", bad, what, why, f"look for the first such value; {fix}", fatal)


def _lost_loss(rows: Rows) -> Iterator[Trouble]:
    """A loss that is no number any more, up to the end; a single such value may be of a skipped update."""
    kept = [row for row in rows if math.isfinite(row.value)]
    lost = [row for row in rows if not kept or (row.step or 0) > (kept[-1].step or 0)]
    if len(lost) >= MIN_ROWS:
        what = f"`{lost[0].metric}` is {lost[0].value} from step {lost[0].step} to the end"
        why, fix = "no update since then is known to be sound", "look for the first such value in the log"
        then = FROM_THE_START if lost[0] is rows[0] else "lower the learning rate"
        yield Trouble("not-finite", lost[0], what, why, f"{fix}; {then}")


def _no_gradient(rows: Rows) -> Iterator[Trouble]:
    zero = [row for row in rows if row.value == 0]
    if 2 * len(zero) > len(rows):
        what = f"`{rows[0].metric}` is exactly 0 in {len(zero)} of {len(rows)} logged steps"
        why = "if the logged value is true, such a step trains nothing, "
        why += "as where the rewards of each group are equal or no parameter takes part"
        fix = "check that rewards differ within a group, and which parameters require gradients"
        # A task that is solved early leaves no gradients either.
        early = rows[: -(-len(rows) // 2)]
        fatal = 2 * sum(row.value == 0 for row in early) > len(early)
        yield Trouble("zero-gradient", zero[0], what, why, fix, fatal)


def _no_advantage(rows: Rows) -> Iterator[Trouble]:
    share = "frac" in rows[0].metric  # of the groups whose answers all have one reward
    equal = [row for row in rows if (row.value >= HIGH if share else row.value == 0)]
    if len(rows) >= MIN_ROWS and 2 * len(equal) > len(rows):
        value = f"{HIGH:g} or more" if share else "0"
        what = f"`{rows[0].metric}` is {value} in {len(equal)} of {len(rows)} logged steps"
        why = "where all answers of a group have the same reward, their advantages are 0"
        fix = "look at samples and rewards of a group; where those are right, use easier or harder data"
        yield Trouble("zero-advantage", equal[0], what, why, fix, fatal=False)


def _frozen(rows: Rows) -> Iterator[Trouble]:
    # The first step's value is 0 by itself: policy and reference are then the same.
    later = rows[1:]
    if len(later) >= MIN_ROWS and all(row.value == 0 for row in later):
        what = f"`{rows[0].metric}` is exactly 0 at all {len(later)} logged steps after the first"
        why = "no KL is computed, or the policy never leaves its reference, as where an adapter is frozen"
        fix = "check that the adapter is trainable and that its weights reach the measured policy"
        yield Trouble("frozen-policy", later[0], what, why, fix)


def _constant(rows: Rows, kind: str, why: str) -> Iterator[Trouble]:
    if len(rows) >= MIN_CONSTANT and len({row.value for row in rows}) == 1:
        what = f"`{rows[0].metric}` is {rows[0].value:.6g} at all {len(rows)} logged steps"
        yield Trouble(kind, rows[0], what, why, "look at some samples and at their values", fatal=False)


def _zero_part(rows: Rows) -> Iterator[Trouble]:
    if not any(row.value for row in rows):
        yield from _constant(rows, "constant-reward", "a value that never moves shows no learning")


def _constant_logprobs(rows: Rows) -> Iterator[Trouble]:
    yield from _constant(rows, "constant-logprobs", FROZEN_SAMPLES)


def _flat_reward(rows: Rows) -> Iterator[Trouble]:
    yield from _saturated(rows) or _constant(rows, "constant-reward", CONSTANT)


def _saturated(rows: Rows) -> list[Trouble]:
    """A share that starts at its ceiling."""
    values = [row.value for row in rows]
    first = values[: max(MIN_ROWS, len(values) // 5)]
    share = all(0 <= value <= 1 for value in values)
    if len(values) < MIN_CONSTANT or not share or math.fsum(first) / len(first) < HIGH:
        return []
    what = f"`{rows[0].metric}` starts at {values[0]:.3g}, and stays at most 1"
    why = "where 1 is the most that it can be, there is next to nothing left to learn on this data"
    return [Trouble("saturated-reward", rows[0], what, why, "use harder data to show learning", fatal=False)]


# -- the course of one metric ------------------------------------------------------------------------


def _fifth(values: Sequence[float]) -> int:
    return max(MIN_END, len(values) // 5)


def _ends(rows: Rows) -> tuple[float, float]:
    """The medians of the first and of the last fifth, NaN for too few values: single spikes do not count."""
    values = [row.value for row in rows if math.isfinite(row.value)]
    if len(values) < MIN_COURSE:
        return math.nan, math.nan
    return median(values[: _fifth(values)]), median(values[-_fifth(values) :])


def _change(rows: Rows, since: Row, bound: str) -> str:
    start, end = _ends(rows)
    kept = "" if all(math.isfinite(row.value) for row in rows) else " of its numbers"
    ends = f"a median of {start:.3g} in the first fifth{kept} and of {end:.3g} in the last"
    began = "" if since is rows[-1] else f", and is mostly {bound} from about step {since.step} on"
    return f"`{rows[0].metric}` had {ends}{began}"


def _capped(rows: Rows) -> Iterator[Trouble]:
    values = [row.value for row in rows if math.isfinite(row.value)]
    if names.LENGTH_CUT.search(rows[0].metric) and len(values) >= MIN_ROWS:
        end = median(values[-_fifth(values) :])
        if end >= HIGH:
            since = since_row(rows, lambda value: value >= HIGH)
            when = "at the end" if since is rows[-1] else f"from about step {since.step} on"
            what = f"`{rows[0].metric}` is about {end:.2g} {when}: most answers are cut at their length limit"
            why = "an answer that is cut off seldom earns its reward"
            fix = (
                "read some late answers: where they were to end, raise the response length; where they go on"
            )
            fix += " without an end, look at what spoiled the model, or take one that ends its answers"
            yield Trouble("length-cap", since, what, why, fix, fatal=False)


def _kl(rows: Rows) -> Iterator[Trouble]:
    start, end = _ends(rows)
    level = max(KL_MOST, KL_GROWTH * max(start, 1e-4))
    if end >= level:
        since = since_row(rows, lambda value: value >= KL_MOST)
        why = "a KL that grew by orders of magnitude: what a policy learns so far away is seldom wanted"
        fix = f"lower the learning rate or raise the KL coefficient; {GO_BACK}"
        yield Trouble(
            "kl-explosion", since, _change(rows, since, f"{KL_MOST:g} or more"), why, fix, fatal=False
        )


def _entropy(rows: Rows) -> Iterator[Trouble]:
    start, end = _ends(rows)
    least, most = min(ENTROPY_LEAST, start / 10), max(ENTROPY_MOST, 4 * start)
    if start > 0 and end <= least:
        since = since_row(rows, lambda value: value <= least)
        what = _change(rows, since, f"{least:.3g} or less")
        why = "the answers to a prompt mostly become alike then, and little is left to learn from"
        fix = "raise the upper clip or the entropy coefficient, or the sampling temperature"
        yield Trouble("entropy-collapse", since, what, why, fix, fatal=False)
    if start > 0 and end >= most:
        since = since_row(rows, lambda value: value >= most / 2)
        what = _change(rows, since, f"{most / 2:.3g} or more")
        why = "the probabilities of the next tokens become more even"
        fix = "lower the learning rate or the entropy coefficient; look at late samples"
        yield Trouble("entropy-explosion", since, what, why, fix, fatal=False)


def _length(rows: Rows) -> Iterator[Trouble]:
    start, end = _ends(rows)
    if start > 0 and end <= FEW * start:
        since = since_row(rows, lambda value: value <= 2 * FEW * start)
        why = "where the task needs reasoning, such short answers seldom hold it"
        fix = "look at late samples: which short answer earns the reward?"
        what = _change(rows, since, f"{2 * FEW * start:.3g} or less")
        yield Trouble("length-collapse", since, what, why, fix, fatal=False)


def _gradient(rows: Rows) -> Iterator[Trouble]:
    start, end = _ends(rows)
    if start > 0 and end >= max(GRADIENT_MOST, GRADIENT_GROWTH * start):
        half = max(GRADIENT_MOST, GRADIENT_GROWTH * start) / 2
        since = since_row(rows, lambda value: value >= half)
        why = "gradients that stay that large mostly mean that training has become unstable"
        fix = f"lower the learning rate, clip gradients, and {GO_BACK}"
        what = _change(rows, since, f"{half:.3g} or more")
        yield Trouble("gradient-explosion", since, what, why, fix, fatal=False)


def _gap(rows: Rows) -> Iterator[Trouble]:
    """The distance of training and sampling policy, of which a ratio has none at 1."""
    healthy, limit = next(value for pattern, value in names.GAPS.items() if pattern.search(rows[0].metric))
    start, end = (abs(value - healthy) for value in _ends(rows))
    level = max(limit, GAP_GROWTH * start)
    if end >= level:
        since = since_row(rows, lambda value: abs(value - healthy) >= level)
        why = "the policy that sampled and the one that is trained give the same answer other probabilities"
        fix = "compare precision, kernels, weights and age of both; correct by importance sampling"
        what = _change(rows, since, f"{level:.3g} or more away from {healthy:g}")
        yield Trouble("off-policy-gap", since, what, why, fix, fatal=False)


def lost_at(rows: Rows, step: int, falls: bool) -> str:
    """What a metric that `falls`, or rises, lost from `step` to the next one; empty where it goes on.

    That is half or more of what it had gained since its first values, beyond its noise.
    """
    values = [(row.step or 0, -row.value if falls else row.value) for row in rows if math.isfinite(row.value)]
    before, after = (
        [value for at, value in values if at <= step],
        [value for at, value in values if at > step],
    )
    width = min(MIN_COURSE, len(after), len(before) // 2)
    if width < MIN_END:
        return ""
    parts = before[:width], before[-width:], after[:width]
    start, end, anew = (math.fsum(part) / width for part in parts)
    noise = max(usual_step(before), usual_step(after))
    if end - anew < max(LOST * (end - start), SURE * noise / math.sqrt(width)) or end <= start:
        return ""
    # A walk gets as far in several steps, and elsewhere as well.
    own = [value for _, value in values]
    drops = [math.fsum(own[at - 3 : at]) - math.fsum(own[at : at + 3]) for at in range(3, len(own) - 2)]
    at = len(before) - 3
    others = [drop for place, drop in enumerate(drops) if abs(place - at) >= 3]
    if drops[at] / 3 < LOST * (end - start) or drops[at] < 2 * max(others, default=0.0):
        return ""
    sign = -1 if falls else 1
    means = f"{sign * end:.3g} before it to {sign * anew:.3g} behind it"
    return f"`{rows[0].metric}` went from {means} (means of {width} values; at the start {sign * start:.3g})"


# -- a reward that is lost ---------------------------------------------------------------------------


def _lost(rows: Rows) -> Iterator[Trouble]:
    """A reward that had risen, or stood above 0, and lost that again beyond its noise."""
    rows = [row for row in rows if math.isfinite(row.value)]
    values = [row.value for row in rows]
    if len(values) < MIN_COURSE:
        yield from _gone(rows)
        return
    width = max(MIN_ROWS, len(values) // 20)
    sums = list(accumulate(values, initial=0.0))
    course = [(after - before) / width for before, after in zip(sums, sums[width:], strict=False)]
    at = max(range(len(course)), key=course.__getitem__)
    start, peak = _ends(rows)[0], course[at]
    last = max(width, len(values) // 10)
    end = median(values[-last:])
    # Means of equal values differ in their last digits.
    sure = max(SURE * usual_step(values) / math.sqrt(width), 1e-9 * max(map(abs, values)))
    rose = peak - min(course[: at + 1]) > sure  # before its peak: a fall from the first step on lost nothing
    gained = rose and peak - start > sure
    base = start if gained else 0.0 if min(values) >= 0 else -math.inf
    share = (peak - end) / (peak - base) if peak > base else 0.0
    if peak - end <= sure or share < LOST or median(values[at : at + width]) <= end:
        return  # by the median nothing was lost of a few single hits
    tail = rows[at:]
    since = since_row(tail, lambda value: value < (peak + end) / 2)
    top = f"a mean of {peak:.3g} in steps {tail[0].step} to {tail[width - 1].step}"
    what = f"`{rows[0].metric}` had {top} and fell to {end:.3g} (median of the last {last} values)"
    if since not in tail[:width]:  # the top itself
        what += f", mostly below the middle of the two from about step {since.step} on"
    part = "nine tenths" if share >= LOST_ALL else "half"
    why = f"{part} or more of what it had gained is lost" if gained else "it is far below what it was before"
    fix = "look at samples before and after the fall, and at KL, entropy and gradient norm where they are"
    fix += " logged; go back to a checkpoint before it, where there is one"
    kind = "reward-collapse" if share >= LOST_ALL else "reward-fell"
    yield Trouble(kind, since, what, why, fix, fatal=share >= LOST_ALL)


def _gone(rows: Rows) -> Iterator[Trouble]:
    """Rewards of a short run that are all 0 from some step on, and never were before."""
    kept = list(takewhile(lambda row: row.value != 0, rows))
    if kept and len(rows) - len(kept) >= MIN_ROWS and not any(row.value for row in rows[len(kept) :]):
        since = rows[len(kept)]
        what = f"`{since.metric}` was {kept[-1].value:.3g} at step {kept[-1].step} and is exactly 0 from"
        why = "where no answer earns anything any more, the sampling engine may have damaged weights"
        fix = "look at samples of that step; compare the engine's weights with the trainer's"
        yield Trouble("reward-gone", since, f"{what} step {since.step} on", why, fix, fatal=False)


CHECKS: Sequence[tuple[re.Pattern[str], str, tuple[Check, ...]]] = (
    (names.GRADIENT_NAME, names.GRAD_NORM, (_not_finite, _no_gradient, _gradient)),
    (names.LOSS_NAME, names.LOSS, (_lost_loss,)),
    (names.KL_NAME, "", (_not_finite, _frozen)),
    (names.KL_PER_TOKEN, "", (_kl,)),
    (names.LOG_PROB_NAME, "", (_constant_logprobs,)),
    (names.REWARD_NAME, names.REWARD, (_not_finite, _flat_reward, _lost)),
    (names.SPREAD_NAME, "", (_no_advantage,)),
    (names.ENTROPY_NAME, "", (_entropy,)),
    (names.LENGTH_NAME, "", (_length,)),
    (names.CUT_NAME, "", (_capped,)),
    (re.compile("|".join(pattern.pattern for pattern in names.GAPS)), "", (_gap,)),
)
