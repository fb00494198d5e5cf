"""How often series of each kind pass the learning test: the table of docs/verdict.md, as Markdown.

    python benchmarks/learning_signal.py [--share F] [--workers N]

`--share 0.1` draws a tenth of the series. Each cell has its own seed, so the same code prints the same table,
however many workers there are; it takes about 10 CPU minutes.
"""

from __future__ import annotations

import argparse
import math
import os
import random
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from functools import partial

from jobspec.metrics.learning_signal import assess

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
for jumps in (2, 4, 8):
    RISES[f"staircase, 0.05 to 0.9 in {jumps} jumps, noise 0.05"] = partial(staircase, jumps, 0.05)


def passes(name: str, count: int, times: int) -> int:
    """How many of `times` series pass."""
    draw = random.Random(f"{name}/{count}")
    make = (NOISE | RISES)[name]
    return sum(assess(list(enumerate(make(draw, count)))).moved for _ in range(times))


def cells(pool: ProcessPoolExecutor, names: list[str], place: int, share: float) -> list[list[str]]:
    times = {count: max(1, round(pair[place] * share)) for count, pair in COUNTS.items()}
    waiting = {
        (name, count): pool.submit(passes, name, count, times[count]) for name in names for count in times
    }
    rates = {key: 100 * future.result() / times[key[1]] for key, future in waiting.items()}
    return [[name, *(percent(rates[name, count]) for count in times)] for name in names]


def percent(rate: float) -> str:
    return f"{rate:.1f} %" if rate < 10 or 99 < rate < 100 else f"{rate:.0f} %"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--share", type=float, default=1.0, help="of the series, to be drawn")
    parser.add_argument("--workers", type=int, default=os.cpu_count())
    options = parser.parse_args()
    head, *others = COUNTS
    print(f"| Series | {head} points | " + " | ".join(map(str, others)) + " |")
    print("| --- |" + " --- |" * len(COUNTS))
    with ProcessPoolExecutor(options.workers) as pool:
        for title, names, place in (("must not pass", NOISE, 0), ("must pass", RISES, 1)):
            print(f"| *{title}* |" + " |" * len(COUNTS))
            for row in cells(pool, list(names), place, options.share):
                print("| " + " | ".join(row) + " |", flush=True)


if __name__ == "__main__":
    main()
