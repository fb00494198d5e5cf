"""Make easy sums as training and validation data for SkyRL, offline: two JSON-lines files.

    python examples/make_sums.py [FOLDER] [--rows 1024] [--test-rows 64] [--seed 0]

SkyRL's own columns: `env_class` says `gsm8k`, whose reward is 1 when the answer's `#### NUMBER` is right. An
example in each prompt shows a small model the form. The same arguments give the same rows.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
from pathlib import Path
from typing import Any

LARGEST = 9  # of the two numbers: the model is right now and then, so there is something to reinforce
QUESTION = 'What is {} + {}? Answer with "#### " and the number.'


def row(source: random.Random) -> dict[str, Any]:
    """One task with the columns of SkyRL's `examples/train/gsm8k/gsm8k_dataset.py`."""
    first, second = source.randint(0, LARGEST), source.randint(0, LARGEST)
    shown = source.randint(0, LARGEST), source.randint(0, LARGEST)
    return {
        "data_source": "jobspec/easy-sums",
        "prompt": [
            {"role": "user", "content": QUESTION.format(*shown)},
            {"role": "assistant", "content": f"#### {sum(shown)}"},
            {"role": "user", "content": QUESTION.format(first, second)},
        ],
        "env_class": "gsm8k",
        "reward_spec": {"method": "rule", "ground_truth": str(first + second)},
    }


def write(file: Path, count: int, seed: str) -> None:
    source = random.Random(seed)
    file.write_text("".join(json.dumps(row(source)) + "\n" for _ in range(count)), encoding="utf-8")


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", nargs="?", type=Path, default=Path(__file__).parent / ".cache/sums")
    parser.add_argument("--rows", type=int, default=1024, help="training tasks (1024)")
    parser.add_argument("--test-rows", type=int, default=64, help="validation tasks (64)")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args(argv)
    if args.rows < 1 or args.test_rows < 1:
        parser.error("at least one row of each is needed")
    args.folder.mkdir(parents=True, exist_ok=True)
    for name, count in (("train", args.rows), ("validation", args.test_rows)):
        file = args.folder / f"{name}.jsonl"
        write(file, count, f"{name} {args.seed}")
        print(f"{file}: {count} rows")
    return 0


if __name__ == "__main__":
    sys.exit(main())
