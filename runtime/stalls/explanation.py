"""The first cause of a stall, as the dumps show it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Optional, Tuple

from jobspec.runtime.stalls.cohorts import Cohort
from jobspec.runtime.stalls.stacks import Frame, Process


@dataclass(frozen=True)
class Explanation:
    """The first cause of a stall as far as the dumps show it. `named` are the processes that it blames."""

    kind: str
    what: str
    why: str = ""
    fix: str = ""
    blocked: bool = True
    inferred: bool = False
    named: Tuple[Process, ...] = ()
    frame: Optional[Frame] = None
    cohorts: Tuple[Cohort, ...] = ()
    frozen: Optional[bool] = None  # whether nothing moved between the two samples; None with one
    node: str = ""
