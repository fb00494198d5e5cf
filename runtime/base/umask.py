"""What this process makes, no stranger may write."""

from __future__ import annotations

import os

OTHERS_WRITE, SAFE = 0o002, 0o022


def keep_others_out() -> None:
    """Add 022 to a umask that lets others write; one that only shares with a group is a choice."""
    before = os.umask(SAFE)
    os.umask(before if before & OTHERS_WRITE else before | SAFE)
