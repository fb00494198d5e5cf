"""What a rule over a spec finds, before the loader gives it a place in the file."""

from __future__ import annotations

from dataclasses import dataclass

from jobspec.spec.paths import Path


@dataclass(frozen=True)
class Broken:
    """A broken rule at a path; the loader adds file and line."""

    rule: str
    path: Path
    what: str
    why: str = ""
    fix: str = ""
