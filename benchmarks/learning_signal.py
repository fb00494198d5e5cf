"""How often series of each kind pass the learning test, and how often healthy runs raise a false alarm.

    python benchmarks/learning_signal.py [--share F] [--workers N]

It prints the two tables of docs/verdict.md as Markdown. `--share 0.1` draws a tenth of the series. Each cell
has its own seed, so the same code prints the same tables, however many workers there are.
"""

from __future__ import annotations

import argparse
import math
import os
import random
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from functools import partial

from jobspec.metrics import Row, Table
from jobspec.metrics.learning_signal import assess
from jobspec.metrics.training_health import troubles

Make = Callable[[random.Random, int], list[float]]

# Points -> series that are drawn of each kind: where nothing may pass, and where all should.
COUNTS = {
    12: (4000, 1000),
    24: (4000, 1000),
    40: (3000, 500),
    60: (2000, 500),
    100: (1000, 200),
    300: (400, 100),
}


def memory(keep: float, draw: random.Random, count: int) -> list[float]:
    """AR(1) noise of any scale; a random walk for 1."""
    value = draw.gauss(0, 1) / math.sqrt(1 - keep**2) if keep < 1 else 0.0
    values = []
    for _ in range(count):
        value = keep * value + draw.gauss(0, 1)
        values.append(value)
    return values


def noisy_walk(draw: random.Random, count: int) -> list[float]:
    return [0.3 * value + draw.gauss(0, 1) for value in memory(1.0, draw, count)]


def saturating(noise: float, draw: random.Random, count: int) -> list[float]:
    """From 0.15 to 0.9; three quarters of the rise in the first third."""
    return [0.9 - 0.75 * math.exp(-4 * step / count) + draw.gauss(0, noise) for step in range(count)]


def sigmoid(begin: float, noise: float, draw: random.Random, count: int) -> list[float]:
    """From 0.05 to 0.9; the middle nine tenths of the rise take 30 % of the run, from `begin` on."""
    places = [step / (count - 1) for step in range(count)]
    return [0.05 + 0.85 / (1 + math.exp((begin + 0.15 - x) / 0.05)) + draw.gauss(0, noise) for x in places]


def stages(noise: float, draw: random.Random, count: int) -> list[float]:
    """Two sigmoids of half the height, from 10 % and from 60 % of the run on."""
    low, high = sigmoid(0.1, 0.0, draw, count), sigmoid(0.6, 0.0, draw, count)
    return [(a + b) / 2 + draw.gauss(0, noise) for a, b in zip(low, high, strict=True)]


def staircase(jumps: int, noise: float, draw: random.Random, count: int) -> list[float]:
    """From 0.05 to 0.9 by equal jumps."""
    steps = [step * (jumps + 1) // count for step in range(count)]
    return [0.05 + 0.85 * step / jumps + draw.gauss(0, noise) for step in steps]


def jumping(draw: random.Random, count: int) -> list[float]:
    """A walk that stands still and jumps, up or down, once in 20 steps."""
    value, values = 0.0, []
    for _ in range(count):
        value += draw.gauss(0, 1) * (draw.random() < 0.05)
        values.append(value + draw.gauss(0, 0.1))
    return values


def answers(make: Make, answers: int, draw: random.Random, count: int) -> list[float]:
    """The shares of right answers among so many, where `make` says how likely a right one is."""
    return [sum(draw.random() < chance for _ in range(answers)) / answers for chance in make(draw, count)]


def wandering(draw: random.Random, count: int) -> list[float]:
    """A policy that learns nothing, and whose share of right answers wanders by 0.01 a step."""
    return [min(0.95, max(0.05, 0.4 + 0.01 * value)) for value in memory(1.0, draw, count)]


def learning(draw: random.Random, count: int) -> list[float]:
    return [0.23 + 0.36 * step / count for step in range(count)]


def line(height: float, draw: random.Random, count: int) -> list[float]:
    return [height * step / count + draw.gauss(0, 1) for step in range(count)]


NOISE: dict[str, Make] = {
    "white noise": partial(memory, 0.0),
    "AR(1), 0.6": partial(memory, 0.6),
    "AR(1), 0.9": partial(memory, 0.9),
    "AR(1), 0.95": partial(memory, 0.95),
    "random walk": partial(memory, 1.0),
    "random walk (steps 0.3) under white noise (1)": noisy_walk,
    "random jumps (1), one in 20 steps, noise 0.1": jumping,
    "128 answers, right with a chance that wanders by 0.01 a step": partial(answers, wandering, 128),
}
RISES: dict[str, Make] = {
    "0.15 to 0.9, saturating, noise 0.02": partial(saturating, 0.02),
    "the same, noise 0.05": partial(saturating, 0.05),
    "straight rise of 10 times the noise": partial(line, 10.0),
    "straight rise of 5 times the noise": partial(line, 5.0),
}
for begin in (30, 50, 70):
    for noise in (0.02, 0.05):
        name = f"sigmoid, 0.05 to 0.9, rising from {begin} % on, noise {noise}"
        RISES[name] = partial(sigmoid, begin / 100, noise)
RISES["two stages, 0.05 to 0.9, noise 0.08"] = partial(stages, 0.08)
RISES["128 answers, right with a chance from 0.23 to 0.59"] = partial(answers, learning, 128)
for jumps in (2, 4, 8):
    RISES[f"staircase, 0.05 to 0.9 in {jumps} jumps, noise 0.05"] = partial(staircase, jumps, 0.05)


Run = dict[str, list[float]]


def run(reward: list[float], **metrics: list[float]) -> Run:
    """A run's metrics under TRL's and verl's names; `__` stands for a slash."""
    return {"reward": reward} | {name.replace("__", "/"): values for name, values in metrics.items()}


def slow(first: float, last: float, noise: float, draw: random.Random, count: int) -> list[float]:
    """From `first` to `last`, evenly on a logarithmic scale, with noise in proportion."""
    rate = math.log(last / first) / count
    return [first * math.exp(rate * step + draw.gauss(0, noise)) for step in range(count)]


def ordinary(draw: random.Random, count: int) -> Run:
    """Warm-up of KL, entropy that halves, longer answers, heavy-tailed gradients."""
    kl = [0.05 * step / count * math.exp(draw.gauss(0, 0.3)) for step in range(count)]
    held_out = [value + draw.gauss(0, 0.03) for value in saturating(0, draw, count)[:: max(1, count // 8)]]
    return run(
        saturating(0.04, draw, count), kl=kl, eval_reward=held_out, entropy=slow(0.5, 0.25, 0.1, draw, count),
        completion_length=slow(300, 600, 0.1, draw, count), grad_norm=slow(0.3, 0.3, 0.6, draw, count),
    )  # fmt: skip


def small_rewards(draw: random.Random, count: int) -> Run:
    """A hard task: few of 64 answers are right, and held-out scores of 30 questions scatter."""
    shares = [
        sum(draw.random() < 0.02 + 0.05 * step / count for _ in range(64)) / 64 for step in range(count)
    ]
    held_out = [sum(draw.random() < 0.1 for _ in range(30)) / 30 for _ in range(9)]
    return run(shares, eval_reward=held_out, kl=slow(1e-4, 0.3, 0.5, draw, count))


def plateau(draw: random.Random, count: int) -> Run:
    """A reward that neither rises nor falls, and what falls a lot in healthy runs: entropy and length."""
    rewards = [0.6 + draw.gauss(0, 0.08) for _ in range(count)]
    return run(
        rewards,
        entropy=slow(0.6, 0.12, 0.1, draw, count),
        response_length__mean=slow(900, 250, 0.1, draw, count),
    )


def harder_data(draw: random.Random, count: int) -> Run:
    """A curriculum: the reward drops by half twice and rises again."""
    rewards = [0.3 + 0.5 * (3 * step / count % 1) + draw.gauss(0, 0.05) for step in range(count)]
    return run(rewards, completions__clipped_ratio=[0.5 * 0.98**step for step in range(count)])


def spikes(draw: random.Random, count: int) -> Run:
    """One step in 20 has a gradient, a KL and a gap of the engines a hundred times the usual."""
    rare = [100 if draw.random() < 0.05 else 1 for _ in range(count)]
    return run(
        saturating(0.05, draw, count),
        grad_norm=[0.4 * spike * math.exp(draw.gauss(0, 0.3)) for spike in rare],
        kl=[0.03 * spike * step / count for step, spike in enumerate(rare)],
        training__rollout_probs_diff_mean=[0.002 * spike * math.exp(draw.gauss(0, 0.3)) for spike in rare],
    )


def solved(draw: random.Random, count: int) -> Run:
    """A task that is solved in the first third of the run and keeps its score."""
    rewards = [min(1.0, max(0.1, 3 * step / count + draw.gauss(0, 0.03))) for step in range(count)]
    held_out = [min(1.0, 0.1 + 0.3 * place) for place in range(8)]
    return run(rewards, entropy=slow(0.5, 0.06, 0.1, draw, count), eval_reward=held_out)


def r1_zero(draw: random.Random, count: int) -> Run:
    """Answers five times as long, entropy that doubles, rewards of -1 and 1, a slow drift of the engines."""
    rewards = [2 * value - 1 for value in saturating(0.05, draw, count)]
    return run(
        rewards, response_length__mean=slow(700, 3500, 0.1, draw, count),
        actor__entropy=slow(0.4, 0.9, 0.1, draw, count),
        training__rollout_probs_diff_mean=slow(0.003, 0.009, 0.2, draw, count),
    )  # fmt: skip


HEALTHY: dict[str, Callable[[random.Random, int], Run]] = {
    "ordinary: KL from 0 to 0.05, entropy halves, length doubles": ordinary,
    "few right answers, noisy held-out score, KL to 0.3": small_rewards,
    "reward without a trend, entropy to a fifth, length to a quarter": plateau,
    "curriculum: the reward halves twice": harder_data,
    "spikes of 100 times in 5 % of the steps": spikes,
    "answers 5 times as long, entropy doubles": r1_zero,
    "solved in a third of the run, entropy to an eighth": solved,
}


def passes(name: str, count: int, times: int) -> tuple[int, int]:
    """How many of `times` series pass, and how many of them with a random walk ruled out."""
    draw = random.Random(f"{name}/{count}")
    make = (NOISE | RISES)[name]
    signals = [assess(list(enumerate(make(draw, count)))) for _ in range(times)]
    moved = [signal for signal in signals if signal.moved]
    return len(moved), sum(not signal.possible_walk for signal in moved)


def alarms(name: str, count: int, times: int) -> tuple[int, int]:
    """How many of `times` healthy runs have a finding, and how many one that contradicts learning."""
    draw = random.Random(f"{name}/{count}")
    found = [troubles(as_table(HEALTHY[name](draw, count))) for _ in range(times)]
    return sum(map(bool, found)), sum(any(one.fatal for one in run) for run in found)


def as_table(metrics: Run) -> Table:
    rows = [
        Row(name, step, value, None, "", 0)
        for name, values in metrics.items()
        for step, value in enumerate(values, 1)
    ]
    return Table(tuple(rows))


def cells(
    pool: ProcessPoolExecutor,
    count_of: Callable[..., tuple[int, int]],
    names: list[str],
    times: dict[int, int],
) -> list[list[str]]:
    waiting = {(name, n): pool.submit(count_of, name, n, times[n]) for name in names for n in times}
    rates = {key: [100 * part / times[key[1]] for part in future.result()] for key, future in waiting.items()}
    return [[name, *(pair(*rates[name, n]) for n in times)] for name in names]


def pair(rate: float, part: float) -> str:
    return f"{percent(rate)} ({percent(part)})" if percent(rate) != percent(part) else percent(rate)


def percent(rate: float) -> str:
    return f"{rate:.1f} %" if rate < 10 or 99 < rate < 100 else f"{rate:.0f} %"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--share", type=float, default=1.0, help="of the series, to be drawn")
    parser.add_argument("--workers", type=int, default=os.cpu_count())
    options = parser.parse_args()

    def times(place: int) -> dict[int, int]:
        return {count: max(1, round(drawn[place] * options.share)) for count, drawn in COUNTS.items()}

    sections = (
        ("Series", "must not pass", passes, list(NOISE), times(0)),
        ("", "must pass", passes, list(RISES), times(1)),
        ("Healthy runs", "", alarms, list(HEALTHY), times(1)),
    )
    with ProcessPoolExecutor(options.workers) as pool:
        for head, title, count_of, names, drawn in sections:
            if head:
                first, *others = COUNTS
                print(f"\n| {head} | {first} points | " + " | ".join(map(str, others)) + " |")
                print("| --- |" + " --- |" * len(COUNTS))
            if title:
                print(f"| *{title}* |" + " |" * len(COUNTS))
            for row in cells(pool, count_of, names, drawn):
                print("| " + " | ".join(row) + " |", flush=True)


if __name__ == "__main__":
    main()
