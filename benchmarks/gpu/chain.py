"""The whole chain on real GPUs: learning, LoRA, a resume, a control that must fail, and a killed worker.

    python examples/make_smollm2.py
    python benchmarks/gpu/chain.py [--gpus 1,2] [--only NAME,…] [--json FILE]

Each row is one `jobspec run` of `examples/smollm2_grpo.yaml` on this machine: its verdict beside the one it
must have, the reward at the ends, tokens a second and the highest GPU memory that was sampled. Exit code 0
when every verdict is as it must be.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
SPEC = ROOT / "examples/smollm2_grpo.yaml"
JOBSPEC = Path(sys.executable).with_name("jobspec")
FREE_MIB = 600  # a driver's own use of an idle GPU stays below
LIMIT_S = 300.0


@dataclass(frozen=True)
class Case:
    name: str
    gpus: int
    wanted: str
    arguments: tuple[str, ...] = ()
    kill: bool = False


@dataclass(frozen=True)
class Row:
    case: str
    gpus: int
    wanted: str
    result: str
    seconds: float
    reward: str
    tokens_per_s: float
    peak_gib: float
    note: str


def cases(gpus: int) -> Iterator[Case]:
    """What is run on `gpus` GPUs, one worker on each."""
    size = (f"resources.gpus_per_node={gpus}", f"train.workers={gpus}")
    lora = ("train.overrides.peft.r=16", "train.overrides.learning_rate=0.001", "train.steps=40")
    yield Case("learning", gpus, "Pass", size)
    yield Case("LoRA", gpus, "Pass", (*size, *lora))
    yield Case(
        "resume", gpus, "Pass", (*size, "coverage.level=checkpoint", "train.steps=8", "metrics.learning=null")
    )
    control = ("train.reward=tiny_rewards.py:constant", "train.steps=30")
    yield Case("constant reward", gpus, "Fail", (*size, *control))
    yield Case("killed worker", gpus, "Fail", (*size, "train.steps=500"), kill=True)


def run_case(case: Case, more: Sequence[str]) -> Row:
    words = [word for value in case.arguments for word in ("--set", value)]
    start = time.monotonic()
    process = subprocess.Popen(
        [JOBSPEC, "run", SPEC, "--json", *more, *words], cwd=ROOT, stdout=subprocess.PIPE, text=True
    )
    note = kill_a_worker(process) if case.kill else ""
    out, _ = process.communicate(timeout=LIMIT_S)
    seconds = time.monotonic() - start
    report = json.loads(out)
    said = (note, free_note() if case.kill else "", report["reason"])
    return row(case, report, seconds, "; ".join(text for text in said if text))


def row(case: Case, report: dict[str, Any], seconds: float, note: str) -> Row:
    figures = {item["name"]: item for item in report["figures"]}
    reward, speed = figures.get("reward"), figures.get("tokens/s")
    return Row(
        case.name,
        case.gpus,
        case.wanted,
        report["result"],
        round(seconds, 1),
        f"{reward['first']:.2f} -> {reward['last']:.2f}" if reward else "-",
        round(speed["last"]) if speed else 0,
        round(peak_gib(Path(report["run"]["folder"])), 2),
        note,
    )


def peak_gib(folder: Path) -> float:
    """Highest memory of one GPU that was sampled during the run."""
    lines = [line for file in folder.glob("attempts/*/metrics/gpu-*.jsonl") for line in file.open()]
    samples = [item for line in lines for item in json.loads(line).items()]
    return max((value for key, value in samples if key.endswith("memory_gib")), default=0.0)


def kill_a_worker(run: subprocess.Popen[str]) -> str:
    """SIGKILL a process that computes on a GPU, once training has made some steps."""
    begun = time.time()
    while run.poll() is None and time.time() - begun < LIMIT_S / 2:
        steps = [
            file for file in ROOT.glob("runs/smollm2-grpo/*/attempts/1/metrics/metrics.jsonl")
            if file.stat().st_mtime > begun and file.read_text().count("\n") >= 5
        ]  # fmt: skip
        pids = workers() if steps else []
        if pids:
            os.kill(pids[-1], signal.SIGKILL)
            return f"killed process {pids[-1]} after step 5"
        time.sleep(0.2)
    return "no worker was seen"


def workers() -> list[int]:
    """Process ids of Ray Train's workers."""
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                line = (folder / "cmdline").read_bytes()
            except OSError:
                continue
            if line.startswith(b"ray::") and b"RayTrainWorker" in line:
                found.append(int(folder.name))
    return sorted(found)


def free_note() -> str:
    """Whether the GPUs' memory is free again right after the run."""
    asked = subprocess.run(
        ["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    used = [int(line) for line in asked.stdout.split() if line.isdigit()]
    free = max(used, default=0) < FREE_MIB
    return f"GPU memory {used} MiB after the end{'' if free else ' (NOT free)'}"


def print_table(rows: Sequence[Row]) -> None:
    names = ("case", "GPUs", "wanted", "result", "s", "reward", "tokens/s", "peak GiB", "")
    print("| " + " | ".join(names) + " |\n|" + "---|" * len(names))
    for item in rows:
        print("| " + " | ".join(str(value) for value in asdict(item).values()) + " |")


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--gpus", default="1", help="numbers of GPUs, separated by commas (default 1)")
    parser.add_argument("--only", default="", help="cases by name, separated by commas (default all)")
    parser.add_argument("--json", type=Path, help="write the rows to this file as well")
    parser.add_argument("more", nargs="*", help="more arguments of `jobspec run`, after --")
    args = parser.parse_args()
    only = set(args.only.split(",")) if args.only else set()
    rows: list[Row] = []
    for count in (int(text) for text in args.gpus.split(",")):
        for case in cases(count):
            if not only or case.name in only:
                rows.append(run_case(case, args.more))
                print(f"{case.name} on {count}: {rows[-1].result}, {rows[-1].seconds} s", file=sys.stderr)
    print_table(rows)
    if args.json:
        args.json.write_text(json.dumps([asdict(item) for item in rows], indent=2) + "\n")
    return 0 if all(item.result == item.wanted for item in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
