"""A run's own pace, and how long its silence may last before it is looked at. Pure: a clock is handed in.

Each phase has a clock of its own: a checkpoint takes other times than a step. What has not been met yet gets
the long limit; what has been met gets five times its longest pause (the rule of NVRx), and never less than a
least one. Only counts of work end a silence; CPU and GPU load never do, since a wait may burn both.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Dict, List, Mapping, Optional

from jobspec.runtime.stalls.lines import EVAL, GENERATE, SAVE, START, STEP

START_S = 45 * 60.0  # before the first step: load, compile, the first generation
FIRST_S = 45 * 60.0  # the first of its kind
LEAST_S = {START: START_S, STEP: 15 * 60.0, SAVE: 30 * 60.0, EVAL: 30 * 60.0, GENERATE: 20 * 60.0}
TIMES = 5.0
WARM_UP = 5  # pauses of a phase before its own longest counts
IO_BYTES = 16 * 1024**2  # read or written between two looks: the run moves data


@dataclass(frozen=True)
class Signs:
    """One look. `counts` only grow while the run works; `load` (cores, GPU percent) tells kinds apart."""

    time: float
    phase: str
    counts: Mapping[str, float]
    load: Mapping[str, float] = field(default_factory=dict)


@dataclass
class Pace:
    """What was seen so far. `after` is the user's own limit, for every phase."""

    after: Optional[float] = None
    phase: str = START
    since: Optional[float] = None  # the last sign of work
    now: float = 0.0
    sign: str = ""
    longest: Dict[str, float] = field(default_factory=dict)
    pauses: Dict[str, int] = field(default_factory=dict)
    counts: Dict[str, float] = field(default_factory=dict)
    loads: List[Mapping[str, float]] = field(default_factory=list)

    def see(self, signs: Signs) -> bool:
        """Take a look; whether the run has worked since the last one."""
        moved = [name for name, count in signs.counts.items() if _grew(name, count, self.counts.get(name))]
        self.counts.update(signs.counts)
        self.now = signs.time
        if self.since is None:
            self.since = signs.time
        if moved:
            pause = signs.time - self.since
            self.longest[self.phase] = max(pause, self.longest.get(self.phase, 0.0))
            self.pauses[self.phase] = self.pauses.get(self.phase, 0) + 1
            self.since, self.sign, self.loads = signs.time, moved[0], []
        self.phase = signs.phase
        self.loads = [*self.loads[-9:], signs.load]
        return bool(moved)

    @property
    def silence(self) -> float:
        return self.now - (self.since if self.since is not None else self.now)

    @property
    def patience(self) -> float:
        """How long this phase may be silent."""
        if self.after is not None:
            return self.after
        own = TIMES * self.longest.get(self.phase, 0.0)
        if self.phase == START or self.pauses.get(self.phase, 0) < (WARM_UP if self.phase == STEP else 1):
            return max(FIRST_S, own)
        return max(LEAST_S[self.phase], own)

    @property
    def stands(self) -> bool:
        return self.silence >= self.patience


def ends(action: str, frozen: Optional[bool]) -> bool:
    """Whether a stall ends the run: on request, and only where the stacks have not moved either."""
    return action in ("end", "requeue") and frozen is True


def _grew(name: str, count: float, before: Optional[float]) -> bool:
    if before is None:
        return False
    return count - before >= IO_BYTES if name == "io" else count > before


def kind(pace: Pace, engine: str, lines: float) -> str:
    """What the silence looks like from outside, in words; what is behind it the stacks may show."""
    cores = _mean(pace.loads, "cores")
    gpu = _mean(pace.loads, "gpu")
    if engine:
        return f"an engine generates all the time: `{engine}`"
    if lines > 0:
        return f"it prints {lines:.0f} lines, none of them a sign of work"
    if gpu is not None and gpu >= 90 and (cores or 0) < 1:
        return f"its GPUs are busy ({gpu:.0f} %), its CPUs hardly: they may wait in a collective"
    if cores is not None and cores >= 0.5:
        return f"its CPUs are busy ({cores:.1f} cores)"
    if cores is not None:
        gpus = f", GPUs at {gpu:.0f} %" if gpu is not None else ""
        return f"no output, and hardly any CPU ({cores:.1f} cores){gpus}"
    return "no output"


def _mean(loads: List[Mapping[str, float]], name: str) -> Optional[float]:
    values = [load[name] for load in loads if name in load]
    return sum(values) / len(values) if values else None
