"""A worker of a process pool probes a full hash table without end; the parent is in pool.map.
---
expect: {kind: [busy], ranks: [0], frame: insert, never: [SIGSTOP]}
"""

import hashlib
import multiprocessing

import _kit

SLOTS = 64


def insert(table: list, key: bytes) -> bool:
    slot = int.from_bytes(key[:4], "big") % SLOTS
    while table[slot] is not None:
        if table[slot] == key:
            return False
        slot = (slot + 1) % SLOTS
    table[slot] = key
    return True


def deduplicate(prompts: list) -> int:
    table: list = [None] * SLOTS
    return sum(insert(table, hashlib.sha256(prompt.encode()).digest()) for prompt in prompts)


def prompts(count: int) -> list:
    return [f"prompt {number}" for number in range(count)]


if __name__ == "__main__":
    with multiprocessing.get_context("fork").Pool(2) as pool:
        for step in range(1, 4):
            print(f"step {step}", pool.map(deduplicate, [prompts(20), prompts(60)]), flush=True)
        _kit.here()
        pool.map(deduplicate, [prompts(60), prompts(70)])
