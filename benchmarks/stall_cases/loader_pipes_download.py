"""A worker of the DataLoader reads its shard from the pipe of a download, which has stopped in the middle.
---
expect:
  kind: [loader, pipe, subprocess, sleep]
  ranks: [0]
  frame: read_shard
  never: ["(?i)full pipe", "(?i)waits for a lock"]
"""

import subprocess
from collections.abc import Iterator

import _kit
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

# as `pipe:aws s3 cp s3://prompts/3.jsonl -`: half of the shard comes, and then nothing
COMMANDS = ["seq 1 64", "seq 65 128", "seq 129 192", "seq 193 224; sleep 3600"]


def read_shard(command: str) -> Iterator[int]:
    if "sleep" in command:
        _kit.here()
    with subprocess.Popen(["sh", "-c", command], stdout=subprocess.PIPE) as download:
        assert download.stdout
        for line in download.stdout:
            yield int(line)


class Prompts(IterableDataset):
    def __iter__(self) -> Iterator[int]:
        info = get_worker_info()
        for command in COMMANDS[info.id :: info.num_workers]:
            yield from read_shard(command)


def epoch() -> None:
    for step, _ in enumerate(DataLoader(Prompts(), batch_size=16, num_workers=2), 1):
        print(f"step {step}", flush=True)


epoch()
