"""A pool tokenizes the documents of a file that is still being exported; the exporter ends without a line feed behind its last row, so the generator, which the pool's feeding thread runs, polls for the rest of that line, and main waits for the next tokens.
---
expect:
  kind: [sleep, lock, queue, waits]
  says: ["follow_rows|_handle_tasks|next"]
  never: ["(?i)worker[^;.]*(died|dead|was killed|is gone)", "computes", "network"]
"""

import json
import multiprocessing
import tempfile
import time
from collections.abc import Iterator

import _kit

DOCUMENTS = 40


def export_rows(path: str) -> None:
    with open(path, "a") as file:
        for index in range(DOCUMENTS):
            file.write(("\n" if index else "") + json.dumps({"index": index, "text": "a b c " * index}))
            file.flush()
            time.sleep(0.02)


def follow_rows(path: str) -> Iterator[str]:
    held, rows = "", 0
    with open(path) as file:
        while rows < DOCUMENTS:
            held += file.readline()
            if not held.endswith("\n"):
                time.sleep(0.1)  # the exporter is still at this line
                continue
            yield json.loads(held)["text"]
            held, rows = "", rows + 1


def tokenize(text: str) -> list[int]:
    return [ord(word) for word in text.split()]


_kit.steps()
fork = multiprocessing.get_context("fork")
with tempfile.NamedTemporaryFile(suffix=".jsonl") as shard, fork.Pool(2) as pool:
    exporter = fork.Process(target=export_rows, args=(shard.name,), name="exporter")
    exporter.start()
    for done, tokens in enumerate(pool.imap(tokenize, follow_rows(shard.name)), 1):
        print(f"document {done}: {len(tokens)} tokens", flush=True)
        if done == DOCUMENTS - 1:
            exporter.join()
            _kit.here()
