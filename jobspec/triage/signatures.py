"""The table of failure signatures (`signatures.yaml`), typed."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property, lru_cache
from importlib.resources import files
from typing import Any

import yaml

_COUNTS = re.compile(r"\{\d*,?\d*\}")  # how often something comes, in a pattern
BLOCKED, FAIL, NOTE = "Blocked", "Fail", "Note"


@dataclass(frozen=True)
class Signature:
    """One entry of `signatures.yaml`; its head explains the fields."""

    id: str
    kind: str
    verdict: str
    title: str
    hints: tuple[str, ...]
    pattern: re.Pattern[str]
    fix: str
    why: str = ""
    source: str = ""
    generic: bool = False
    wrapper: bool = False
    trend: bool = False
    boundary: str = ""
    frames: re.Pattern[str] | None = None
    near: re.Pattern[str] | None = None

    def shows(self, text: str) -> bool:
        """Whether the pattern matches, and the number in its group `more` exceeds the one in `less`."""
        match = self.pattern.search(text)
        groups = match.groupdict() if match is not None else {}
        return match is not None and int(groups.get("more", 1)) > int(groups.get("less", 0))

    @cached_property
    def numbered(self) -> bool:
        """Whether the pattern matches digits: then two lines of one shape may differ in their match."""
        return re.search(r"\d|\\d", _COUNTS.sub("", self.pattern.pattern)) is not None


@lru_cache(maxsize=1)
def load_signatures() -> tuple[Signature, ...]:
    """All signatures in order of precedence."""
    text = files("jobspec.triage").joinpath("signatures.yaml").read_text("utf-8")
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    return tuple(_signature(item) for item in yaml.load(text, Loader=loader))


def _signature(item: dict[str, Any]) -> Signature:
    compiled: dict[str, Any] = {
        name: re.compile(item[name]) for name in ("pattern", "frames", "near") if name in item
    }
    generic = bool(item.get("generic") or item.get("wrapper"))
    return Signature(**{**item, **compiled, "hints": tuple(item["hints"]), "generic": generic})
