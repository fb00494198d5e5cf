"""Tells whether a metric rises, or falls, beyond its own noise. Pure statistics over (step, value) pairs.

The metric moved if the answer to three questions is yes:

1. Is there a trend? A one-sided Mann-Kendall test decides. It uses ranks only, so neither an outlier nor a
   scale fakes a trend. Its variance is corrected for ties.
2. Is the change large against the noise? The change is the mean of the last fifth minus the mean of the first
   fifth. The noise is the spread of the values around a curve (`jobspec.metrics.curve_fit`).
3. Does a rise explain the values better than noise with a memory does, of which a random walk is the extreme?
   The difference of the log-likelihoods decides. From `MIN_EVIDENCE` on the metric moved; below `RULED_OUT` a
   random walk stays possible and is told with its figure. Noise that is no more than the sampling of the
   answers leaves nothing for a walk to explain: the mean of N answers that are right or wrong scatters by
   sqrt(p (1 - p) / N), and N shows in the values, which are all multiples of 1 / N.

A pass says that the metric moved and that noise does not explain the change. It never says "converged".
docs/verdict.md says how often several kinds of noise pass and how often a real rise is missed.
Source: H. B. Mann, Econometrica 13 (1945), and M. G. Kendall, Rank Correlation Methods (1948), for the test.
P. K. Sen, J. American Statistical Association 63 (1968) 1379, for the slope. D. R. Cox, Proc. 4th Berkeley
Symposium 1 (1961) 105, for the comparison of two families by their likelihoods.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import pairwise
from typing import Literal

from jobspec.metrics.curve_fit import MIN_BROKEN, Curve, broken_rise, memory_evidence, rises

Direction = Literal["up", "down"]

MIN_POINTS = 8  # with fewer, no rank test can reach ALPHA with a margin
ALPHA = 0.01  # one-sided; flat noise passes less often than this, since the other questions must pass too
MIN_EFFECT = 3.5  # change between the windows, in standard errors of that change
# In natural logarithms. Chosen by simulation: docs/verdict.md has the table of benchmarks/learning_signal.py.
MIN_EVIDENCE, RULED_OUT = 5.0, 11.0
WINDOW_SHARE = 5  # first and last window are a fifth of the points each
MIN_WINDOW = 3
SIGNIFICANT = 1.645  # standard errors: one-sided 5 %
FEW_POINTS, MAY_BE = 20, 0.2  # of a rise that came early and stays the ranks of few points show little
MAX_POINTS = 120  # longer series are averaged in blocks: the tests look at all pairs of points
MAX_ANSWERS = 8192
TOO_LARGE = 1e100  # a float does not hold the sums of squares of much larger values


@dataclass(frozen=True)
class Signal:
    """The figures of a series, and whether it moved.

    `start`, `end`, `change`, `slope` and `noise` do not depend on `direction`.
    `start` and `end` are the means of the first and the last `window` points; `change` is their difference.
    `slope` is the median slope per step (Theil-Sen). `noise` is the standard deviation around a smooth curve.
    `effect` is the change in `direction` in standard errors. `p_value` is one-sided. `evidence` is for a rise
    and against noise with a memory. `walks` is the share of random walks with steps as large that get as far.
    `possible_walk`: no walk is ruled out. `unclear`: the values show too little to say that nothing moved.
    """

    moved: bool
    reason: str
    count: int
    direction: Direction = "up"
    start: float = math.nan
    end: float = math.nan
    change: float = math.nan
    slope: float = math.nan
    noise: float = math.nan
    effect: float = math.nan
    p_value: float = math.nan
    window: int = 0
    evidence: float = math.nan
    walks: float = math.nan
    possible_walk: bool = False
    unclear: bool = False

    def figures(self) -> str:
        """The figures on one line, for a report: only such as bear out where the ends lie.

        Most pairs of points may fall while the end lies above the start, as of a loss that jumped once.
        """
        if not self.window:
            return "1 point was read" if self.count == 1 else f"{self.count} points were read"
        averaged = -(-self.count // MAX_POINTS)  # points that one of a window stands for
        left = self.count % averaged
        of_all = f"{self.count}" + (f" without the first {left}" if left else "")
        slope = f"median slope {self.slope:+.3g} a step, " if self.slope * self.change > 0 else ""
        in_means = f"in means of {averaged} values: " if averaged > 1 else ""
        size = f", change of {abs(self.effect):.1f} standard errors by that noise" if self.noise else ""
        asked = self.change if self.direction == "up" else -self.change
        chance = f", trend by Mann-Kendall: one-sided p = {self.p_value:.2g}" if asked > 0 else ""
        return (
            f"{self.start:.4g} -> {self.end:.4g} (means of {self.window * averaged} values at each end of"
            f" {of_all}), {in_means}{slope}noise {self.noise:.2g} about its best smooth curve{size}{chance}"
        )

    def limitation(self) -> str:
        """What the values leave possible; empty where they rule a random walk out."""
        if not self.possible_walk:
            return ""
        return (
            f"a random walk with steps as large gets as far in {100 * self.walks:.2g} % of runs: "
            "the values alone do not rule it out"
        )


def assess(
    points: Iterable[tuple[int, float]], direction: Direction = "up", min_change: float = 0.0
) -> Signal:
    """Whether `points` (train step, value) move in `direction` beyond their noise.

    The last value of a step counts. `min_change` is in the metric's own unit.
    """
    series = sorted(dict(points).items())
    bad = next(((step, value) for step, value in series if not abs(value) < TOO_LARGE), None)
    if bad is not None:
        what = f"{bad[1]:.3g}, too large to tell a trend" if math.isfinite(bad[1]) else "not a finite number"
        return Signal(False, f"is {what}, at step {bad[0]}", len(series), direction)
    if len(series) < MIN_POINTS:
        reason = f"has too few points to tell a trend from noise: {MIN_POINTS} are needed"
        return Signal(False, reason, len(series), direction, unclear=True)
    blocks = thin(series, MAX_POINTS)
    answers = answers_per_value([value for _, value in series])
    signal = _measure(blocks, direction, answers * -(-len(series) // MAX_POINTS))
    signal = _decide(replace(signal, count=len(series)), min_change)
    rest = "" if signal.moved else _at_rest(series)
    return Signal(False, rest, len(series), direction) if rest else signal


def _at_rest(series: Sequence[tuple[int, float]]) -> str:
    """What is to be said of values that are equal from one of the first on: no test tells more of them."""
    last = series[-1][1]
    first = next((at for at in range(len(series), 0, -1) if series[at - 1][1] != last), 0)
    if not 0 < first < MIN_WINDOW or len(series) - first < MIN_POINTS:
        return ""
    step, value = series[first - 1]
    equal = f"{len(series) - first} of {len(series)} values"
    return (
        f"was {value:.4g} at step {step} and is exactly {last:.6g} from step {series[first][0]} on ({equal})"
    )


def thin(series: Sequence[tuple[float, float]], limit: int) -> Sequence[tuple[float, float]]:
    """At most `limit` points: means of blocks of equal size, each at the last step of its block.

    Points that fill no block are dropped from the front, where they matter least.
    """
    size = -(-len(series) // limit)
    if size == 1:
        return series
    rest = series[len(series) % size :]
    blocks = [rest[i : i + size] for i in range(0, len(rest), size)]
    return [(block[-1][0], math.fsum(value for _, value in block) / size) for block in blocks]


def _measure(series: Sequence[tuple[float, float]], direction: Direction, answers: int) -> Signal:
    values = [value for _, value in series]
    window = max(MIN_WINDOW, len(values) // WINDOW_SHARE)
    start, end = math.fsum(values[:window]) / window, math.fsum(values[-window:]) / window
    sign = 1.0 if direction == "up" else -1.0
    if min(values) == max(values):
        return Signal(False, "", 0, direction, start, end, 0.0, 0.0, 0.0, 0.0, 1.0, window, 0.0, 1.0)
    ordered = [sign * value for value in values]
    line, sigmoid, steps = rises(ordered)
    smooth = max(line, sigmoid, key=lambda curve: curve.evidence)
    noise = math.sqrt(smooth.variance)
    evidence = max(smooth.evidence, steps.evidence) - memory_evidence(ordered)
    if evidence < RULED_OUT and len(values) >= MIN_BROKEN:
        evidence = max(evidence, broken_rise(ordered).evidence - memory_evidence(ordered))
    effect = sign * (end - start) / (noise * math.sqrt(2 / window))
    sampled = _is_sampling(smooth, values, answers)
    return Signal(
        False, "", 0, direction, start, end, end - start, theil_sen(series), noise, effect,
        trend_p_value(ordered), window, math.inf if sampled else evidence,
        _share_of_walks(ordered, sign * (end - start), window), not sampled and evidence < RULED_OUT,
    )  # fmt: skip


def _decide(signal: Signal, min_change: float) -> Signal:
    change = signal.change if signal.direction == "up" else -signal.change
    verb, noun = ("rose", "rise") if signal.direction == "up" else ("fell", "fall")
    moved, unclear = False, False
    if change == 0:
        reason = "has the same mean at both ends" if signal.noise else "did not change"
    elif change < 0 and signal.effect <= -MIN_EFFECT:
        reason = (
            "fell from its start to its end" if signal.direction == "up" else "rose from its start to its end"
        )
        if (
            signal.slope * signal.change < 0
        ):  # it moved the asked way for the most part, and lost that at once
            reason = f"ends {'lower' if signal.direction == 'up' else 'higher'} than it began"
    elif change < 0:
        reason = f"shows no {noun}: the change is within its noise"
    elif signal.p_value >= ALPHA:
        reason = f"shows no trend beyond chance: p = {signal.p_value:.2g}, {ALPHA:g} or less is needed"
        unclear = signal.count < FEW_POINTS and signal.effect >= MIN_EFFECT and signal.p_value < MAY_BE
        if unclear:
            rise = f"{verb} by {signal.effect:.1f} standard errors"
            few = f"{signal.count} values are few to tell a trend from chance"
            reason = f"{rise}, and {few}: p = {signal.p_value:.2g}"
    elif signal.effect < MIN_EFFECT:
        reason = f"{verb} by {signal.effect:.1f} standard errors, {MIN_EFFECT:g} are needed"
    elif change < min_change:
        reason = f"{verb} by {change:.4g}, {min_change:g} is asked for"
    elif signal.evidence < MIN_EVIDENCE:
        reason, unclear = (
            f"{verb}, and noise with a memory explains that as well: more steps would tell",
            True,
        )
    else:
        reason, moved = f"{verb} beyond its noise", True
    return replace(signal, moved=moved, reason=reason, unclear=unclear)


# -- trend -------------------------------------------------------------------------------------------


def trend_p_value(values: Sequence[float]) -> float:
    """One-sided p-value of the Mann-Kendall test for an upward trend; 1 for a constant."""
    n = len(values)
    score = sum((b > a) - (b < a) for i, a in enumerate(values) for b in values[i + 1 :])
    ties = sum(t * (t - 1) * (2 * t + 5) for t in Counter(values).values())
    variance = (n * (n - 1) * (2 * n + 5) - ties) / 18
    if variance <= 0 or score == 0:
        return 1.0 if variance <= 0 else 0.5
    z = (score - math.copysign(1, score)) / math.sqrt(variance)  # continuity correction
    return _upper_tail(z)


def theil_sen(series: Sequence[tuple[float, float]]) -> float:
    """Median slope per step over all pairs of points."""
    slopes = sorted(
        (later - earlier) / (step_b - step_a)
        for i, (step_a, earlier) in enumerate(series)
        for step_b, later in series[i + 1 :]
    )
    middle = len(slopes) // 2
    return slopes[middle] if len(slopes) % 2 else (slopes[middle - 1] + slopes[middle]) / 2


def _upper_tail(z: float) -> float:
    return 0.5 * math.erfc(z / math.sqrt(2))


# -- noise -------------------------------------------------------------------------------------------


def _share_of_walks(values: Sequence[float], change: float, window: int) -> float:
    """The share of random walks with the steps of `values` whose windows differ by `change` or more."""
    steps = [later - earlier for earlier, later in pairwise(values)]
    variance = math.fsum(step * step for step in steps) / len(steps)
    # A step inside a window counts only for the values after it.
    weight = len(steps) - 2 * (window - 1) + 2 * math.fsum((i / window) ** 2 for i in range(1, window))
    return _upper_tail(change / math.sqrt(variance * weight)) if variance else 0.0


def answers_per_value(values: Sequence[float]) -> int:
    """The N of which all values are multiples of 1 / N, as shares of N answers are; 0 where there is none.

    Shares that were rounded for display, to 0.01 say, tell nothing.
    """
    answers = 1
    for value in values:
        part = Fraction(value).limit_denominator(MAX_ANSWERS)
        answers = math.lcm(answers, part.denominator)
        if not 0 <= value <= 1 or abs(part - value) > 1e-7 or answers > MAX_ANSWERS:
            return 0
    return answers if 10**4 % answers else 0


def _is_sampling(curve: Curve, values: Sequence[float], answers: int) -> bool:
    """Whether the scatter around the curve is no more than that of `answers` right or wrong answers."""
    if not answers:
        return False
    sampling = math.fsum(value * (1 - value) for value in values) / len(values) / answers
    return curve.variance <= sampling * (1 + SIGNIFICANT * math.sqrt(2 / curve.freedom))
