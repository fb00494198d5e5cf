"""Make a tiny Qwen2 for vLLM and Transformer Engine, and sums as verl reads them: nothing is downloaded.

    python examples/make_tiny_verl.py      # models--jobspec--tiny-qwen2-wide, .cache/tiny-sums/*.parquet
    python examples/make_tiny_verl.py --vocabulary 151936   # models--jobspec--tiny-qwen2-151936: large logits

Its heads are of 64, the smallest that the attention of both takes. Random weights solve no sum, but they can
learn to answer with digits (`rewards/verl_rewards.py`). Needs numpy and pyarrow; the same arguments give the
same files.
"""

from __future__ import annotations

import argparse
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

from make_tiny_model import (
    Shape,
    addition_problem,
    config_files,
    random_weights,
    safetensors_bytes,
    tokenizer_files,
    write_cache,
)

# 2.4 million parameters. verl knows Qwen by its class, and asks then for the end of a ChatML turn and for a
# newline as one token; \u0120 and \u010a are the blank and the newline of byte-level tokenizers.
WIDE = Shape(
    hidden=256,
    layers=4,
    heads=4,
    kv_heads=2,
    mlp=512,
    std=0.02,
    special=("<|im_end|>",),
    characters="\u0120\u010a",
)
NAME = "jobspec/tiny-qwen2-wide"
CACHE = Path(__file__).parent / ".cache"


def row(split: str, index: int, source: random.Random) -> dict[str, Any]:
    """One sum with the columns that verl reads."""
    question, answer = addition_problem(source)
    return {
        "data_source": "sums",
        "prompt": [{"role": "user", "content": question}],
        "ability": "math",
        "reward_model": {"style": "rule", "ground_truth": answer},
        "extra_info": {"split": split, "index": index},
    }


def write_data(folder: Path, counts: dict[str, int], seed: int) -> None:
    """Write one parquet file for each split."""
    import pyarrow
    import pyarrow.parquet

    folder.mkdir(parents=True, exist_ok=True)
    for split, count in counts.items():
        source = random.Random(f"{split} {seed}")
        rows = [row(split, index, source) for index in range(count)]
        pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), folder / f"{split}.parquet")


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--cache", type=Path, default=CACHE, help="folder of the model and the data")
    parser.add_argument("--rows", type=int, default=512, help="sums to train on (512)")
    parser.add_argument("--vocabulary", type=int, default=0, help="embeddings (as many as there are tokens)")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args(argv)
    shape = replace(WIDE, vocabulary=args.vocabulary)
    name = f"jobspec/tiny-qwen2-{args.vocabulary}" if args.vocabulary else NAME
    weights = safetensors_bytes(random_weights(shape, args.seed))
    files = config_files(shape) | tokenizer_files(shape) | {"model.safetensors": weights}
    print(write_cache(args.cache / "hf", "models", name, files))
    data = args.cache / "tiny-sums"
    write_data(data, {"train": args.rows, "test": 32}, args.seed)
    print(data)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
