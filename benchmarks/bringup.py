"""Job start to driver start on the test cluster, beside the floor, side by side in one run.

Floor: what nobody can beat with Ray, `ray start` on all nodes at once in one srun, workers waiting for the
head's port, until Ray's GCS lists every node. jobspec: the same job through `jobspec submit`, with its
preflight, coordination, token and import proof, until the driver's command starts. Both are measured from
the first line of the batch script, on the same nodes, alternating, since the machine is never quiet.

    python benchmarks/bringup.py [--nodes 1,2,4] [--repeats 3] [--json FILE]

Needs what the Slurm tests need: root on Debian with the packages of `.ci/debian-packages`.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tests.slurm.cluster import Cluster
from tests.slurm.cluster_files import Options
from tests.slurm.lab import PYTHON, Lab, await_true
from tests.slurm.machine import missing

AIM = 1.15
HOOK = "hooks: {setup: ['date +%s.%N >\"$JOBSPEC_RUN_DIR/batch-start\"']}\n"

FLOOR_JOB = """\
#!/bin/bash
date +%s.%N >{out}/start
srun --ntasks-per-node=1 --kill-on-bad-exit=1 bash {out}/node.sh
"""
# One node of the floor. Ray's authentication is off here: the floor pays for nothing but Ray.
FLOOR_NODE = """\
export RAY_AUTH_MODE=disabled PATH={bin}:$PATH
head=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
if [ "$SLURM_NODEID" = 0 ]; then
  ray start --head --port=6379 --include-dashboard=false --disable-usage-stats --block >{out}/head.log 2>&1 &
  python {out}/ready.py "$head:6379" "$SLURM_NNODES" {out}/ready
else
  until (exec 3<>/dev/tcp/$head/6379) 2>/dev/null; do sleep 0.05; done
  ray start --address="$head:6379" --disable-usage-stats --block >{out}/$SLURM_NODEID.log 2>&1 &
  until [ -e {out}/ready ]; do sleep 0.2; done
fi
kill -KILL $! # its raylet and GCS end with the job; TERM would drain for up to 30 s
wait || true
rm -rf /tmp/ray
exit 0
"""
FLOOR_READY = """\
import socket, sys, time
from ray._raylet import GcsClient
address, nodes, out = sys.argv[1], int(sys.argv[2]), sys.argv[3]
host, _, port = address.rpartition(":")
while True:
    try:
        socket.create_connection((host, int(port)), timeout=2).close()
        break
    except OSError:
        time.sleep(0.05)
client = GcsClient(address=address)
while sum(info.state == 0 for info in client.get_all_node_info(timeout=5).values()) < nodes:
    time.sleep(0.05)
with open(out + ".part", "w") as file:
    file.write(repr(time.time()))
import os
os.rename(out + ".part", out)
"""


@contextmanager
def bench_lab(name: str, nodes: int) -> Iterator[Lab]:
    """A test cluster of its own, whose profile `lab-bench` notes when a batch script begins."""
    Cluster(name, Options(nodes=nodes, accounting="none")).stop()  # of a run that was killed
    cluster = Cluster(name, Options(nodes=nodes, accounting="none"))
    try:
        cluster.start()
        lab = Lab(cluster)
        lab.prepare()
        lab.add_profile("lab-bench", more=HOOK)
        yield lab
    finally:
        cluster.stop()


def floor(lab: Lab, nodes: int, number: int) -> float:
    """Seconds from the batch script's first line until Ray lists all nodes."""
    out = lab.shared / "scratch" / f"floor-{nodes}-{number}"
    out.mkdir()
    (out / "job.sh").write_text(FLOOR_JOB.format(out=out))
    (out / "node.sh").write_text(FLOOR_NODE.format(out=out, bin=PYTHON.parent))
    (out / "ready.py").write_text(FLOOR_READY)
    options = [f"--nodes={nodes}", "--exclusive", "--parsable", f"--output={out}/job.log"]
    lab.slurm("sbatch", *options, str(out / "job.sh"))
    await_true((out / "ready").exists, "the floor", 300, lambda: (out / "job.log").read_text())
    await_idle(lab)
    return float((out / "ready").read_text()) - float((out / "start").read_text())


def jobspec(lab: Lab, nodes: int, number: int) -> float:
    """Seconds from the batch script's first line until the driver's command starts."""
    spec = lab.command_spec(f"bringup-{nodes}-{number}", ["true"], nodes=nodes, mode="ray")
    run = lab.submit(spec, cluster="lab-bench")
    run_dir = Path(run["run_dir"])
    await_true((run_dir / "attempts/1/results.json").exists, f"run {run_dir}", 300)
    await_idle(lab)
    results = lab.results(str(run_dir))
    assert results["outcome"] == "ok", results
    return float(results["commands"][0]["start"]) - float((run_dir / "batch-start").read_text())


def await_idle(lab: Lab) -> None:
    """Nothing of one measurement runs into the next."""
    await_true(lambda: not lab.slurm("squeue", "-h"), "an idle cluster", 120, lambda: lab.slurm("squeue"))
    time.sleep(1)


def measure(lab: Lab, counts: list[int], repeats: int, tell: Callable[[str], None]) -> list[dict[str, float]]:
    rows = []
    for nodes in counts:
        floors, ours = [], []
        for number in range(repeats):
            floors.append(floor(lab, nodes, number))
            ours.append(jobspec(lab, nodes, number))
            tell(f"{nodes} nodes, repeat {number + 1}: floor {floors[-1]:.1f} s, jobspec {ours[-1]:.1f} s")
        base, found = statistics.median(floors), statistics.median(ours)
        rows.append({"nodes": nodes, "floor_s": base, "jobspec_s": found, "ratio": found / base})
    return rows


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--nodes", default="1,2,4")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    counts = [int(word) for word in args.nodes.split(",")]
    if reason := missing(accounting=False):
        print(f"bringup: not measured: {reason}", file=sys.stderr)
        return 1
    with bench_lab("bench", max(counts)) as lab:
        rows = measure(lab, counts, args.repeats, lambda text: print(text, file=sys.stderr))
    print(
        f"{'nodes':>5} {'floor s':>8} {'jobspec s':>10} {'ratio':>6}   (median of {args.repeats}, aim {AIM})"
    )
    for row in rows:
        print("{nodes:>5} {floor_s:>8.1f} {jobspec_s:>10.1f} {ratio:>6.2f}".format(**row))
    if args.json:
        args.json.write_text(json.dumps(rows, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
