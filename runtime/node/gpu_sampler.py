"""GPU memory and utilisation of this node while a command runs, written beside its metrics.

`nvidia-smi` is asked every few seconds and given a time limit: it hangs where a driver does, and a sample
is never worth a run. What it cannot tell is left out.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import subprocess
import threading
import time
from pathlib import Path
from typing import Iterator, List, Mapping, Sequence, Tuple

from jobspec.runtime.base import procs

INTERVAL_S = 5.0
TIMEOUT_S = 10.0
QUERY = ("--query-gpu=index,memory.used,utilization.gpu", "--format=csv,noheader,nounits")

Sample = Tuple[int, float, float]  # index, memory in GiB, share of time that a kernel ran in percent


def parse(text: str) -> List[Sample]:
    """Samples of `nvidia-smi`'s CSV, memory given in MiB; a field such as `[N/A]` leaves its GPU out."""
    samples: List[Sample] = []
    for line in text.splitlines():
        try:
            index, memory, busy = (part.strip() for part in line.split(","))
            samples.append((int(index), float(memory) / 1024, float(busy)))
        except ValueError:
            continue
    return samples


def sample(program: str, env: Mapping[str, str]) -> List[Sample]:
    """One sample of every GPU; none when `nvidia-smi` fails or is late."""
    try:
        status, out, _ = procs.output([program, *QUERY], TIMEOUT_S, env)
    except (OSError, subprocess.TimeoutExpired):
        return []
    return parse(out.decode(errors="replace")) if status == 0 else []


def record(samples: Sequence[Sample], now: float) -> str:
    """One line of metrics: `gpu/0/memory_gib`, `gpu/0/busy_percent` and so on."""
    values = {"time": round(now, 3)}
    for index, memory, busy in samples:
        values[f"gpu/{index}/memory_gib"] = round(memory, 3)
        values[f"gpu/{index}/busy_percent"] = busy
    return json.dumps(values) + "\n"


@contextlib.contextmanager
def sampling(file: Path, gpus: int, env: Mapping[str, str], interval_s: float = INTERVAL_S) -> Iterator[None]:
    """Append samples to `file` while the body runs. Does nothing on a node without GPUs or `nvidia-smi`."""
    program = shutil.which("nvidia-smi", path=env.get("PATH")) if gpus else None
    if program is None:
        yield
        return
    ended = threading.Event()
    thread = threading.Thread(
        target=_sample_until, args=(ended, file, program, env, interval_s), daemon=True, name="gpu-samples"
    )
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join(TIMEOUT_S)


def _sample_until(
    ended: threading.Event, file: Path, program: str, env: Mapping[str, str], interval_s: float
) -> None:
    while True:
        samples = sample(program, env)
        if samples:
            try:
                with file.open("a") as out:
                    out.write(record(samples, time.time()))
            except OSError:
                return  # a full disk shows elsewhere, with its name
        if ended.wait(interval_s):
            return
