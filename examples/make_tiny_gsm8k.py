"""Make a tiny data set of GSM8K's shape for verl, offline: addition tasks in words, as two parquet files.

    python examples/make_tiny_gsm8k.py [FOLDER] [--rows 512] [--test-rows 32] [--seed 1]

Needs pyarrow. verl's own columns: `data_source` says `openai/gsm8k`, so that verl's rule for GSM8K gives the
reward; the answer is what follows `#### `. A step of verl 0.8.0 or newer takes 16 rows, before that 32 rows a
GPU: 512 rows are one step of 16 GPUs there, and 32 steps here. The same arguments give the same rows.
"""

from __future__ import annotations

import argparse
import random
import sys
from pathlib import Path
from typing import Any

HINT = 'Let\'s think step by step and output the final answer after "####".'
THINGS = ("apples", "books", "coins", "stones", "stamps", "marbles")
NAMES = ("Ada", "Ben", "Cleo", "Dan", "Eva", "Finn")


def row(split: str, index: int, source: random.Random) -> dict[str, Any]:
    """One task with the columns of verl's `examples/data_preprocess/gsm8k.py`."""
    first, second = source.randrange(2, 50), source.randrange(2, 50)
    name, thing = source.choice(NAMES), source.choice(THINGS)
    question = f"{name} has {first} {thing} and gets {second} more. How many {thing} does {name} have now?"
    answer = f"{name} has {first} + {second} = {first + second} {thing}.\n#### {first + second}"
    return {
        "data_source": "openai/gsm8k",
        "prompt": [{"role": "user", "content": f"{question} {HINT}"}],
        "ability": "math",
        "reward_model": {"style": "rule", "ground_truth": str(first + second)},
        "extra_info": {"split": split, "index": index, "answer": answer, "question": question},
    }


def rows(split: str, count: int, seed: int) -> list[dict[str, Any]]:
    """`count` tasks of one split; each split has a seed of its own."""
    source = random.Random(f"{split} {seed}")
    return [row(split, index, source) for index in range(count)]


def write(folder: Path, train: int, test: int, seed: int) -> tuple[Path, Path]:
    """Write `train.parquet` and `test.parquet`."""
    import pyarrow
    import pyarrow.parquet

    folder.mkdir(parents=True, exist_ok=True)
    made = folder / "train.parquet", folder / "test.parquet"
    for path, count in zip(made, (train, test), strict=True):
        table = pyarrow.Table.from_pylist(rows(path.stem, count, seed))
        pyarrow.parquet.write_table(table, path)
    return made


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", nargs="?", type=Path, default=Path(__file__).parent / ".cache/tiny-gsm8k")
    parser.add_argument("--rows", type=int, default=512, help="training tasks (512)")
    parser.add_argument("--test-rows", type=int, default=32, help="validation tasks (32)")
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args(argv)
    if args.rows < 1 or args.test_rows < 1:
        parser.error("at least one row of each is needed")
    try:
        made = write(args.folder, args.rows, args.test_rows, args.seed)
    except ImportError:
        print("pyarrow is needed: pip install 'jobspec-rl[data]', or pip install pyarrow", file=sys.stderr)
        return 2
    for path in made:
        print(f"{path}: {path.stat().st_size} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
