"""A file that the head writes and each node answers: proof that both see one run directory."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Sequence, Tuple

from jobspec.runtime.base.full_disk import refusal

CANARY_S = 20.0  # shared file systems show a new file late: NFS caches a listing up to 60 s, a look-up less


def write_canary(attempt: Path, nonce: str) -> None:
    """The head's half of the canary. Raises: OSError."""
    folder = attempt / "canary"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "head").write_text(nonce)


def read_answers(attempt: Path, names: Sequence[str], nonce: str) -> Tuple[str, ...]:
    """The nodes whose answer the head does not see within `CANARY_S`."""
    missing = list(names)
    end = time.monotonic() + CANARY_S
    while True:
        missing = [name for name in missing if _read(attempt / "canary" / f"node-{name}") != nonce]
        if not missing or time.monotonic() > end:
            return tuple(missing)
        time.sleep(0.05)


def answer_canary(attempt: Path, name: str, nonce: str) -> str:
    """Read the head's nonce and write it back; what went wrong, or nothing."""
    head = attempt / "canary" / "head"
    end = time.monotonic() + CANARY_S
    while _read(head) != nonce:
        if time.monotonic() > end or not attempt.parent.parent.is_dir():
            content = _read(head)
            return f"`{head}` {'has other content' if content else 'is not there'}"
        time.sleep(0.05)
    try:
        (head.parent / f"node-{name}").write_text(nonce)
    except OSError as failure:
        return f"`{head.parent}` cannot be written: {refusal(failure, head.parent)[0]}"
    return ""


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except (OSError, ValueError):
        return ""
