"""sbcast for the benchmark of staging: the test suite's Slurm cluster, with limits on its links.

sbcast sends one file at a time, to the nodes of a job, out of one node; here the job's first, as in a batch
script. Local disks are the nodes' /tmp, a tmpfs.
"""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tests.slurm.cluster import Cluster
from tests.slurm.cluster_files import Options
from tests.slurm.machine import missing

__all__ = ["Cluster", "job", "missing", "sender", "slurm"]
START_S = 30.0


@contextlib.contextmanager
def slurm(nodes: int, limit: Callable[[str, int], list[str]], link: int) -> Iterator[Cluster]:
    """A cluster of `nodes`; `limit` gives the arguments of tc for an interface and MB/s."""
    cluster = Cluster(f"bench-{os.getpid()}", Options(nodes, accounting="none"), owned=True)
    cluster.start()
    try:
        for node in cluster.nodes:
            _must(cluster, node, "tc", *limit("eth0", link))
            _must(cluster, "ctl", "tc", *limit(f"v{node}", link))
        yield cluster
    finally:
        cluster.stop()


@contextlib.contextmanager
def job(cluster: Cluster, count: int) -> Iterator[str]:
    """A running job on the first `count` nodes; its number."""
    nodes = ",".join(cluster.nodes[:count])
    asked = ["--parsable", f"-N{count}", "-w", nodes, "--exclusive", "-o", "/dev/null", "--wrap", "sleep 600"]
    number = _must(cluster, "ctl", "sbatch", *asked).strip()
    end = time.monotonic() + START_S
    try:
        while _must(cluster, "ctl", "squeue", "-h", "-j", number, "-o", "%T").strip() != "RUNNING":
            if time.monotonic() > end:
                raise SystemExit(f"job {number} does not start")
            time.sleep(0.2)
        yield number
    finally:
        _must(cluster, "ctl", "scancel", number)


def sender(cluster: Cluster, number: str, loop: str) -> list[str]:
    """The command on the first node that sends every blob of the model on `loop`."""
    work = (
        f'for file in /mnt/*/blobs/*; do sbcast -f -j {number} "$file" "/tmp/${{file##*/}}" || exit 1; done'
    )
    script = f"mount -o ro,noload {loop} /mnt && echo up; read go; {work}; echo []; read end"
    return cluster.command(cluster.nodes[0], ["unshare", "--mount", "sh", "-c", script])


def _must(cluster: Cluster, node: str, *argv: str) -> str:
    done = cluster.run(node, list(argv), timeout=30)
    if done.returncode:
        raise SystemExit(f"`{' '.join(argv)}` on {node}: {done.stderr}")
    return done.stdout
