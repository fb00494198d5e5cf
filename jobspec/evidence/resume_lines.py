"""The line of a log that says that its process goes on from a checkpoint, whatever program prints it."""

from __future__ import annotations

import re
from pathlib import Path

from jobspec.log_search import Hints, find_lines
from jobspec.log_text import clean
from jobspec.verdict import EvidenceItem

HINTS = Hints(("resum", "Resum", "ontinuing training"))
# Neither that none was found, nor how one may resume, nor an option that was left empty.
SAYS = re.compile(
    r"(?i)^(?!.*(?:\b(?:no|not|none|null|false|without|cannot|failed|can|could|may|to resume|if)\b"
    r"|=['\"]{2})).*\b(?:resum\w+|continuing training)\b.*\b(?:checkpoint\b|step \d)"
)


def resume_line(root: Path, name: str) -> EvidenceItem | None:
    """The first such line of the log `name` below `root`."""
    hits = ((hit, clean(hit.text).strip()) for hit in find_lines(root / name, HINTS))
    return next((EvidenceItem(name, hit.number, text[:300]) for hit, text in hits if SAYS.search(text)), None)
