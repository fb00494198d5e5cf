"""A stand-in for `tests/json_dump_tb_logs.py`: event files below a folder, merged into one JSON."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from tensorboard.backend.event_processing.event_file_loader import EventFileLoader
from tensorboard.util.tensor_util import make_ndarray


def main() -> int:
    folder, output = Path(sys.argv[1]), Path(sys.argv[sys.argv.index("--output_path") + 1])
    files = sorted(folder.rglob("events*tfevents*"), key=lambda path: path.stat().st_mtime)
    if not files:
        print(f"Error: No event files found in {folder}", file=sys.stderr)
        return 1
    data: dict[str, dict[str, float]] = {}
    for path in files:
        for event in EventFileLoader(str(path)).Load():
            for value in event.summary.value:
                number = float(make_ndarray(value.tensor))
                data.setdefault(value.tag, {})[str(event.step)] = number
    output.parent.mkdir(parents=True, exist_ok=True)
    output.write_text(json.dumps(dict(sorted(data.items())), indent=2))
    print(f"✓ Merged data written to {output}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
