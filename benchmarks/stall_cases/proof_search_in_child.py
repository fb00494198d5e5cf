"""Rank 2 has a proof checked in a process pool without a time limit; the search has billions of branches, and the others are in the all_reduce.
---
ranks: 3
expect:
  kind: [future, busy, waits, rank-differs]
  ranks: [2]
  says: ["check_proofs|search|count_models", all_reduce]
  never: ["rank [01]( on [^ ]+)?( pid [0-9]+,?)? (sleeps|is gone|computes)", "(?i)worker[^;.]* (died|is gone|was killed)", "[Aa]ll ranks[^;.]* same"]
"""

import concurrent.futures
import multiprocessing

import _kit
import torch

dist = _kit.gloo()


def count_models(
    row: int, size: int, columns: frozenset[int], up: frozenset[int], down: frozenset[int]
) -> int:
    if row == size:
        return 1
    return sum(
        count_models(row + 1, size, columns | {column}, up | {row + column}, down | {row - column})
        for column in range(size)
        if column not in columns and row + column not in up and row - column not in down
    )


def search(size: int) -> int:
    empty: frozenset[int] = frozenset()
    return count_models(0, size, empty, empty, empty)


def check_proofs(sizes: list[int]) -> list[float]:
    with concurrent.futures.ProcessPoolExecutor(2, multiprocessing.get_context("fork")) as pool:
        pending = [pool.submit(search, size) for size in sizes]
        if _kit.RANK == 2:
            _kit.here()
        return [float(future.result() > 0) for future in pending]


rewards = check_proofs([4, 5, 24] if _kit.RANK == 2 else [4, 5, 6])
dist.all_reduce(torch.tensor(rewards))
