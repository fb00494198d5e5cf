"""Prompts go to a pool by imap with four permits, of which each score that main takes gives one back; but imap collects chunks of eight before it hands out any: no score ever comes.
---
expect:
  kind: [lock, queue]
  says: ["read_prompts|permits|acquire|imap|next|score_all"]
  never: ["(?i)computes", "(?i)sleeps", "(?i)worker[^.;]* (died|is gone|was killed)"]
"""

import multiprocessing
import multiprocessing.pool
import threading
from collections.abc import Iterator

import _kit


def score(prompt: str) -> float:
    return len(prompt) / 100


def read_prompts(permits: threading.Semaphore, count: int) -> Iterator[str]:
    for index in range(count):
        permits.acquire()  # the file is large: not more than these in memory
        yield f"what is {index} + {index}?"


def score_all(pool: multiprocessing.pool.Pool, count: int) -> list[float]:
    permits, scores = threading.Semaphore(4), []
    for value in pool.imap(score, read_prompts(permits, count), chunksize=8):
        permits.release()
        scores.append(value)
    return scores


_kit.steps()
with multiprocessing.get_context("fork").Pool(2) as pool:
    print(score_all(pool, 4), flush=True)
    _kit.here()
    score_all(pool, 64)
