"""verl on Megatron-Bridge on one real GPU: its levels, and counterparts that must not pass.

    python examples/make_tiny_verl.py && python examples/make_tiny_verl.py --vocabulary 151936
    python benchmarks/gpu/verl_chain.py --bridge DIR --verl DIR [--only 'NAME;…'] [--together N] [--json FILE]

Each row is one `jobspec run` of `examples/verl/tiny.yaml`: its verdict beside the one it must have.
`--together` runs so many at once on the one GPU; their seconds say nothing then, and the engines need room
for each other.
`--other-bridge DIR` is a folder with another `megatron/bridge`, for the case that imports the wrong one. Exit
code 0 when every verdict is as it must be.
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
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path

from chain import JOBSPEC, ROOT, Row, print_table, row
from chain import Case as Run

SPEC = ROOT / "examples/verl/tiny.yaml"
LIMIT_S, CANCEL_S = 540.0, 120.0
KILL_AFTER = 3  # steps
NO_LEARNING = "metrics.learning=null"
LORA = "~coverage.variants"
CRITIC = (
    "train.algorithm=ppo",
    "train.overrides.++critic.megatron.override_transformer_config.gradient_accumulation_fusion=false",
    "train.overrides.critic.megatron.override_transformer_config.attention_backend=auto",
)
# 1024 answers in two batches, whose logits of 151936 tokens take 45 GB; a process may have 28 of the card's.
LARGE = (
    "model.id=jobspec/tiny-qwen2-151936",
    "train.overrides.MICRO_BSZ=16",
    "train.overrides.PPO_MAX_TOKEN_LEN=50000",
    "train.overrides.FWD_MAX_TOKEN_LEN=50000",
    "container.env.PYTORCH_CUDA_ALLOC_CONF=per_process_memory_fraction:0.2",
)


@dataclass(frozen=True)
class Case:
    name: str
    wanted: tuple[str, ...]
    level: str
    arguments: tuple[str, ...] = ()
    kill: bool = False
    repeat: bool = False  # the same again in the same checkpoint folder, where nothing is left to train


def cases(other_bridge: str) -> Iterator[Case]:
    yield Case("smoke, full", ("Pass",), "smoke", ("train.steps=2", NO_LEARNING))
    yield Case("smoke, LoRA", ("Pass",), "smoke", (LORA, "train.steps=2", NO_LEARNING))
    yield Case("checkpoint, full", ("Pass",), "checkpoint", ("train.steps=4", NO_LEARNING))
    yield Case("checkpoint, LoRA", ("Pass",), "checkpoint", (LORA, "train.steps=4", NO_LEARNING))
    yield Case("fsdp", ("Pass",), "fsdp", ("train.steps=2", NO_LEARNING))
    yield Case("learning, full", ("Pass",), "learning")
    yield Case("broken reward", ("Fail",), "smoke",
               ("train.steps=2", NO_LEARNING, "train.reward=verl_rewards.py:broken"))  # fmt: skip
    yield Case("killed worker", ("Fail", "Blocked"), "smoke", ("train.steps=40", NO_LEARNING), kill=True)
    yield Case("critic", ("Pass",), "smoke", (*CRITIC, "train.steps=3", NO_LEARNING))
    yield Case("batch too large", ("Blocked",), "smoke", (*LARGE, "train.steps=2", NO_LEARNING))
    again = ("train.steps=2", NO_LEARNING, "checkpoint.every=2", "checkpoint.resume=auto")
    yield Case("finished run again", ("Fail", "Blocked"), "smoke", again, repeat=True)
    if other_bridge:
        yield Case("wrong Bridge", ("Blocked",), "smoke",
                   ("train.steps=2", NO_LEARNING, f"container.env.PYTHONPATH={other_bridge}",
                    "repos.0.pythonpath=[3rdparty/Megatron-LM]"))  # fmt: skip


def run_case(case: Case, more: Sequence[str]) -> Row:
    if not case.repeat:
        return _run(case, more)
    folder = ROOT / "runs/finished-checkpoints"
    more = [*more, "--set", f"checkpoint.dir={folder}"]
    first, second = _run(case, more), _run(case, more)
    return Row(**asdict(second) | {"note": f"first {first.result}; {second.note}"})


def _run(case: Case, more: Sequence[str]) -> Row:
    words = [word for value in case.arguments for word in ("--set", value)]
    label = f"name=verl-{case.name.replace(',', '').replace(' ', '-').lower()}"
    start = time.monotonic()
    process = subprocess.Popen(
        [JOBSPEC, "run", SPEC, "--json", "--level", case.level, "--set", label, *more, *words],
        cwd=ROOT, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    note = kill_a_worker(process, label.partition("=")[2]) if case.kill else ""
    try:
        out, _ = process.communicate(timeout=LIMIT_S)
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGINT)  # as Ctrl-C: the run is cancelled, and its report written
        try:
            out, _ = process.communicate(timeout=CANCEL_S)
        except subprocess.TimeoutExpired:
            process.kill()
            out, _ = process.communicate()
        if not out.strip():
            wanted = " or ".join(case.wanted)
            return Row(case.name, 1, wanted, "(cancelled)", LIMIT_S, "-", 0, 0.0, f"no end in {LIMIT_S:g} s")
    seconds = time.monotonic() - start
    report = json.loads(out)
    said = "; ".join(text for text in (note, report["reason"]) if text)
    return row(Run(case.name, 1, " or ".join(case.wanted)), report, seconds, said)


def kill_a_worker(run: subprocess.Popen[str], name: str) -> str:
    """SIGKILL the trainer's process on the GPU once some steps were logged."""
    begun = time.time()
    while run.poll() is None and time.time() - begun < LIMIT_S:
        files = ROOT.glob(f"runs/{name}/*/attempts/1/metrics/train.jsonl")
        if any(file.stat().st_mtime > begun and file.read_text().count("\n") >= KILL_AFTER for file in files):
            for pid, line in sorted(_descendants(run.pid).items()):
                if line.startswith(b"ray::") and (b"WorkerDict" in line or b"TrainingWorker" in line):
                    os.kill(pid, signal.SIGKILL)
                    return f"killed {pid} ({line[:60].decode()}) after step {KILL_AFTER}"
            return "no trainer among " + ", ".join(
                sorted(
                    {
                        line[:40].decode()
                        for line in _descendants(run.pid).values()
                        if line.startswith(b"ray::")
                    }
                )
            )
        time.sleep(0.2)
    return "no step was seen"


def _descendants(root: int) -> dict[int, bytes]:
    """Command lines of the processes below `root`, by id."""
    parents, lines = dict[int, int](), dict[int, bytes]()
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                parents[int(folder.name)] = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
                lines[int(folder.name)] = (folder / "cmdline").read_bytes()
            except (OSError, ValueError):
                continue
    below = {root}
    while more := {pid for pid, parent in parents.items() if parent in below} - below:
        below |= more
    return {pid: lines[pid] for pid in below if pid in lines}


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--bridge", required=True, help="checkout of Megatron-Bridge")
    parser.add_argument("--verl", required=True, help="checkout of verl")
    parser.add_argument("--other-bridge", default="", help="folder with another megatron/bridge")
    parser.add_argument("--only", default="", help="cases by name, separated by semicolons (default all)")
    parser.add_argument("--together", type=int, default=1, help="runs at once (1)")
    parser.add_argument("--json", type=Path, help="write the rows to this file as well")
    parser.add_argument("more", nargs="*", help="more arguments of `jobspec run`, after --")
    args = parser.parse_args()
    only = set(args.only.split(";")) if args.only else set()
    chosen = [case for case in cases(args.other_bridge) if not only or case.name in only]
    more = [*args.more, "--set", f"repos.0.path={args.bridge}", "--set", f"repos.1.path={args.verl}"]
    with ThreadPoolExecutor(args.together) as pool:
        rows = list(pool.map(lambda case: run_case(case, more), chosen))
    print_table(rows)
    if args.json:
        args.json.write_text(json.dumps([asdict(item) for item in rows], indent=2) + "\n")
    return 0 if all(item.result in item.wanted.split(" or ") for item in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
