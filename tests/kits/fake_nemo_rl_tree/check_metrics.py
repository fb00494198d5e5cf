"""A stand-in for `tests/check_metrics.py`, with its hole: Python's `max` passes over a NaN."""

from __future__ import annotations

import json
import statistics
import sys
from pathlib import Path
from typing import Any

WIDTH = 100
NAMES: dict[str, Any] = {
    "max": lambda data: max(data.values()),
    "min": lambda data: min(data.values()),
    "mean": lambda data: statistics.fmean(data.values()),
    "median": lambda data: statistics.median(data.values()),
    "ratio_above": lambda data, limit: sum(value >= limit for value in data.values()) / len(data),
}


def main() -> int:
    if "--help" in sys.argv:
        return 0
    data = json.loads(Path(sys.argv[1]).read_text())
    print("Metric Checks".center(WIDTH))
    print(f"┏{'━' * 8}┳{'━' * WIDTH}┳{'━' * 18}┳{'━' * 18}┓")
    print(f"┃ Status ┃ {'Check':{WIDTH - 2}} ┃ {'Value':16} ┃ {'Message':16} ┃")
    print(f"┡{'━' * 8}╇{'━' * WIDTH}╇{'━' * 18}╇{'━' * 18}┩")
    results = [_row(check, data) for check in sys.argv[2:]]
    print(f"└{'─' * 8}┴{'─' * WIDTH}┴{'─' * 18}┴{'─' * 18}┘")
    return 0 if all(results) else 1


def _row(check: str, data: dict[str, dict[str, float]]) -> bool:
    try:
        holds = bool(eval(check, {"data": data, **NAMES}))
    except KeyError:
        holds = False
    print(f"│ {'PASS' if holds else 'FAIL':6} │ {check:{WIDTH - 2}} │ {'':16} │ {'':16} │")
    return holds


if __name__ == "__main__":
    sys.exit(main())
