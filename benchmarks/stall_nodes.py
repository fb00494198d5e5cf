"""A stall on many nodes: how long from the stall to its explanation, what the dumps take, and is it right.

    python benchmarks/stall_nodes.py [--nodes 64] [--after 10]

Real agents on this machine's loopback addresses stand for the nodes; each runs one rank of torch with gloo.
One rank sleeps in `evaluate` while the others wait in `all_reduce`. All share this machine's cores, which a
cluster's nodes do not.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from jobspec.plan import CommandPlan, StallPlan
from tests.kits.agent_lab import Run, running

PROGRAM = """
import os, time
from datetime import timedelta
from pathlib import Path
import torch
import torch.distributed as dist

torch.set_num_threads(1)
rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
store = f"file://{os.environ['JOBSPEC_RUN_DIR']}/store"
dist.init_process_group("gloo", init_method=store, rank=rank, world_size=world, timeout=timedelta(hours=1))

def evaluate():
    Path(os.environ["JOBSPEC_ATTEMPT_DIR"], "stalled").touch()
    time.sleep(3600)

for step in range(1, 4):
    dist.all_reduce(torch.ones(4))
    print(f"step {step}", flush=True)
if rank == world // 2:
    evaluate()
dist.all_reduce(torch.ones(4))
"""
BEGINS_S, SEEN_S = 600.0, 300.0
POLL_S = 0.2


def _await(path: Path, limit_s: float, run: Run) -> float:
    """When a file was there. Raises: RuntimeError."""
    end = time.monotonic() + limit_s
    while not path.exists():
        if time.monotonic() > end:
            raise RuntimeError(f"no {path.name} within {limit_s:.0f} s: {run.describe()}")
        time.sleep(POLL_S)
    return time.time()


def _peak_mib(pid: int) -> float:
    text = Path(f"/proc/{pid}/status").read_text()
    return int(text.split("VmHWM:")[1].split()[0]) / 1024


def play(nodes: int, after: int) -> dict[str, object]:
    """One stall on that many nodes."""
    command = CommandPlan("train", (sys.executable, "-u", "-c", PROGRAM), on="all", tasks_per_node=1)
    fields = {"nodes": nodes, "stall": StallPlan(after, "end")}
    with (
        tempfile.TemporaryDirectory(prefix="stall-") as folder,
        running(Path(folder), command, **fields) as run,
    ):
        for index in range(nodes):
            run.agent(index, env={"OMP_NUM_THREADS": "1"})
        stalled = _await(run.attempt / "stalled", BEGINS_S, run)
        seen = _await(run.attempt / "dumps" / "1" / "explanation.json", SEEN_S, run)
        found = json.loads((run.attempt / "dumps" / "1" / "explanation.json").read_text())
        peak = _peak_mib(run.agent_pid())
        while run.agents[0].poll() is None and time.time() < seen + SEEN_S:
            time.sleep(POLL_S)
        ended = time.time()
        files = [path for path in (run.attempt / "dumps").rglob("*") if path.is_file()]
        wanted = str(nodes // 2)
        return {
            "nodes": nodes,
            "seen after s": round(seen - stalled, 1),
            "ended after s": round(ended - stalled, 1),
            "right": [row["rank"] for row in found["named"]] == [wanted],
            "files of dumps": len(files),
            "dumps KiB": sum(path.stat().st_size for path in files) // 1024,
            "head agent's peak MiB": round(peak),
            "what": found["what"],
        }


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--nodes", type=int, nargs="+", default=[4, 64])
    parser.add_argument("--after", type=int, default=10)
    args = parser.parse_args()
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    for nodes in args.nodes:
        print(json.dumps(play(nodes, args.after)), f"load average {os.getloadavg()[0]:.0f}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
