"""How fast logs are read: the matcher beside `grep -E` and a plain loop of Python's `re`, all in one run.

    python benchmarks/triage.py [--gigabytes N] [--folder DIR] [--before COMMIT] [--skip NAME]... [--json]

Six made logs of N GB in turn: an ordinary one (metric dicts of a trainer, engine statistics, progress bars
and log lines, colours and Ray's prefixes), one line repeated, one whose every line has a new shape, one of
words that never come again, one with a new id in every line, and one of nothing but effects. Each holds one
cause near its end. `before` is the matcher of another commit, on the same files. `nemo_rl` reads the lines
that prove something to that adapter. `re` runs all patterns joined by `|` on every line, over a fortieth of
the log, and is scaled up; `grep` runs the same alternatives, as far as it knows their notation (new words
take it hours). Wall time, CPU seconds, which alone compare on a shared machine, and the highest resident
memory, each in a process of its own.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

CAUSE = "OSError: [Errno 122] Disk quota exceeded"
MEMORY = Path("/dev/shm")
HERE = Path(__file__).resolve().parent
NAIVE_SHARE = 40  # the plain loop reads this part of the log
LETTERS = "   etaoinshrdlcumwfgypbvkjxqzetaoinshrdlueta"  # some more often, as in texts
WORDS = ("rank", "loss", "token", "batch", "cache", "shard", "actor", "layer", "queue", "prompt", "reward")


def ordinary(rng: random.Random, number: int) -> str:
    kind = number % 6
    if kind < 2:
        head = f"\x1b[36m(TaskRunnerV1 pid={rng.randint(1, 99999)})\x1b[0m "
        loss, norm = rng.random(), rng.random()
        return f"{head}{{'loss': {loss:.5f}, 'grad_norm': {norm:.4f}, 'reward': {rng.random():.3f}}}"
    if kind == 2:
        clock = f"{number // 60 % 60:02d}:{number % 60:02d}"
        return (
            f"(EngineCore pid=7) INFO 08-22 10:{clock} [loggers.py:1] throughput: {rng.random():.2f} tokens/s"
        )
    if kind == 3:
        return f"\r {number % 100}%|###   | {number}/9999999 [00:30<00:14, {rng.random():.2f}s/it]"
    clock = f"{number // 60 % 60:02d}:{number % 60:02d}"
    return f"2026-08-22 10:{clock},113 INFO step {number} took {rng.random()} s"


def repeated(rng: random.Random, number: int) -> str:
    return f"2026-08-22 10:00:00,000 INFO heartbeat {number}"


def ever_new(rng: random.Random, number: int) -> str:
    return " ".join(rng.choices(WORDS, k=12))


def new_words(rng: random.Random, number: int) -> str:
    return "".join(rng.choices(LETTERS, k=90))


def request_ids(rng: random.Random, number: int) -> str:
    identity = f"{rng.getrandbits(128):032x}"
    return f"INFO 08-22 10:00:00 [async_llm.py:261] Added request chatcmpl-{identity}, prompt of 512 tokens"


def effects(rng: random.Random, number: int) -> str:
    if number % 2:
        return f"[rank{number % 64}]:[E822 10:00:00.1 x.cpp:616] Watchdog caught collective operation timeout"
    return f"(Worker pid={number % 512}) ray.exceptions.ActorDiedError: the actor died unexpectedly {number}"


LOGS: dict[str, Callable[[random.Random, int], str]] = {
    "ordinary": ordinary,
    "one line": repeated,
    "new shapes": ever_new,
    "new words": new_words,
    "request ids": request_ids,
    "effects": effects,
}


def make_log(path: Path, line: Callable[[random.Random, int], str], size: int) -> None:
    """Write about `size` bytes: a piece of 32 MB over and over, its numbers as they are, then the cause."""
    rng, lines, length = random.Random(1), list[str](), 0
    while length < min(size, 32_000_000):
        lines.append(line(rng, len(lines)))
        length += len(lines[-1]) + 1
    piece = ("\n".join(lines) + "\n").encode()
    with path.open("wb") as file:
        for _ in range(max(1, size // len(piece))):
            file.write(piece)
        file.write(f"{CAUSE}\n".encode())


def run_triage(path: Path) -> str:
    from jobspec.triage import first_cause, scan_files

    cause = first_cause(scan_files([path]))
    return cause.signature if cause is not None else "nothing"


def run_before(path: Path) -> str:
    """As `run_triage`, from the checkout that PYTHONPATH names."""
    import jobspec

    if str(Path(os.environ["PYTHONPATH"]).resolve()) not in str(Path(jobspec.__file__).resolve()):
        raise RuntimeError(f"jobspec comes from {jobspec.__file__}")
    return run_triage(path)


def run_metrics(path: Path) -> str:
    from jobspec.metrics.console import BLOCK_BYTES, ConsoleReader

    reader, rows = ConsoleReader(), 0
    with path.open("rb") as file:
        while block := file.read(BLOCK_BYTES):
            rows += sum(1 for _ in reader.feed(block))
    return f"{rows} values"


def run_nemo_rl(path: Path) -> str:
    from jobspec.frameworks.nemo_rl.log_lines import read_lines

    return f"{sum(map(len, read_lines([(path, path.name)]).values()))} lines"


def run_naive(path: Path) -> str:
    parts = (re.sub(r"\(\?P([<=])", rf"(?P\1p{number}_", item) for number, item in enumerate(_patterns()))
    pattern = re.compile("|".join(f"(?:{item.replace('(?i)', '')})" for item in parts))
    end = path.stat().st_size // NAIVE_SHARE
    found = 0
    with path.open("rb") as file:
        for line in _lines(file.read(end)):
            found += pattern.search(line) is not None
    return f"{found} lines"


def run_grep(path: Path) -> str:
    patterns = [item for item in _patterns() if "(?" not in item.replace("(?:", "(")]
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as file:
        file.write("\n".join(item.replace("(?:", "(") for item in patterns))
        file.flush()
        done = subprocess.run(["grep", "-aEc", "-f", file.name, str(path)], capture_output=True, text=True)
    return f"{done.stdout.strip() or done.stderr.strip()[:40]} lines"


def _patterns() -> list[str]:
    from jobspec.triage import load_signatures

    return [item.pattern.pattern for item in load_signatures()]


def _lines(data: bytes) -> Iterator[str]:
    return (line.decode("utf-8", "replace") for line in data.split(b"\n"))


TOOLS: dict[str, Callable[[Path], str]] = {
    "before": run_before,
    "triage": run_triage,
    "metrics": run_metrics,
    "nemo_rl": run_nemo_rl,
    "grep -E": run_grep,
    "python re": run_naive,
}


def measure(tool: str, path: Path, before: Path) -> dict[str, object]:
    """Run one tool in a process of its own."""
    command = [sys.executable, __file__, "--one", tool, "--log", str(path)]
    environment = os.environ | ({"PYTHONPATH": str(before)} if tool == "before" else {})
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, env=environment)
    row: dict[str, object] = json.loads(done.stdout)
    return row


def measure_here(tool: str, path: Path) -> dict[str, object]:
    start, begun = time.perf_counter(), time.process_time()
    found = TOOLS[tool](path)
    used = time.process_time() + (_child_seconds() if tool == "grep -E" else 0.0)
    scale = NAIVE_SHARE if tool == "python re" else 1
    seconds, cpu = (time.perf_counter() - start) * scale, (used - begun) * scale
    memory = _grep_kib() if tool == "grep -E" else _own_kib()
    figures = {"seconds": round(seconds, 2), "cpu_s": round(cpu, 2), "memory_mib": round(memory / 1024)}
    return {"tool": tool, **figures, "found": found}


def _child_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _grep_kib() -> int:
    return resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss


def _own_kib() -> int:
    """The highest resident memory of this program; `getrusage` counts its parent's before as well."""
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0])


def checkout(commit: str, folder: Path) -> None:
    """Put the package as it was at `commit` into `folder`."""
    packed = subprocess.run(
        ["git", "archive", commit, "jobspec"], cwd=HERE.parent, stdout=subprocess.PIPE, check=True
    )
    subprocess.run(["tar", "-x", "-C", str(folder)], input=packed.stdout, check=True)


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    arguments.add_argument("--gigabytes", type=float, default=1.0)
    arguments.add_argument(
        "--folder", type=Path, default=MEMORY if MEMORY.is_dir() else Path(tempfile.gettempdir())
    )
    arguments.add_argument("--before", metavar="COMMIT", help="measure the matcher of this commit as well")
    arguments.add_argument("--skip", action="append", default=[], help="a tool, or LOG:TOOL, to leave out")
    arguments.add_argument("--json", action="store_true")
    arguments.add_argument("--one", help=argparse.SUPPRESS)
    arguments.add_argument("--log", type=Path, help=argparse.SUPPRESS)
    wanted = arguments.parse_args()
    if wanted.one:
        print(json.dumps(measure_here(wanted.one, wanted.log)))
        return
    skip = wanted.skip if wanted.before else [*wanted.skip, "before"]
    rows = []
    if not wanted.json:
        print(
            f"{'log':<12}{'tool':<12}{'s':>9}{'CPU s':>9}{'MiB':>7}  found   ({wanted.gigabytes:g} GB)",
            flush=True,
        )
    with tempfile.TemporaryDirectory(dir=wanted.folder) as folder, tempfile.TemporaryDirectory() as old:
        if wanted.before:
            checkout(wanted.before, Path(old))
        for name, line in LOGS.items():
            path = Path(folder, "run.log")
            make_log(path, line, int(wanted.gigabytes * 1e9))
            for tool in TOOLS:
                if tool in skip or f"{name}:{tool}" in skip:
                    continue
                rows.append({"log": name, **measure(tool, path, Path(old))})
                if not wanted.json:
                    print(
                        "{log:<12}{tool:<12}{seconds:>9}{cpu_s:>9}{memory_mib:>7}  {found}".format(
                            **rows[-1]
                        ),
                        flush=True,
                    )
    if wanted.json:
        print(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
