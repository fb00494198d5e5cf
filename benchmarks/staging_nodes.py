"""Staging on 1 to 8 nodes beside plain tools, with a shared storage and links that have limits of their own.

    sudo python benchmarks/staging.py --nodes 1,2,4,8 [--mib 256] [--storage 50] [--link 100]

Shared storage is one ext4 image on a loop device, whose reads a cgroup limits to `--storage` MB/s for all
nodes together (blkio.throttle) and whose counter says what has left it. Each node is a network namespace
with a link of `--link` MB/s in each direction (tc tbf), and mounts that device by a loop of its own, so that
no node profits from another's page cache. Node-local disks are tmpfs: the storage and the links are the
limits, and the cores of this machine, which all nodes share. Needs root, ip, tc, losetup, cgroup v1 blkio.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

PORT = 24999
BLKIO = Path("/sys/fs/cgroup/blkio")
NODE = """
import json, sys
from jobspec.plan import StagePlan
from jobspec.runtime import stage
from jobspec.runtime.swarm import Peer, Swarm
index, count, port = int(sys.argv[1]), int(sys.argv[2]), int(sys.argv[5])
source, local = sys.argv[3:5]
swarm = Swarm(index, "token") if count > 1 else None
if swarm:
    swarm.listen([port])
print("up", flush=True)
sys.stdin.readline()
if swarm:
    swarm.meet([Peer(f"n{i}", f"10.99.0.{i + 1}", port) for i in range(count)])
result = stage.run([StagePlan("m", "model", source)], local, lambda e, d: None, 600, swarm=swarm)
print(json.dumps([finding.text() for finding in result.findings]), flush=True)
sys.stdin.readline()
"""


def sh(*argv: str) -> str:
    return subprocess.run(argv, check=True, capture_output=True, text=True).stdout.strip()


@dataclass
class Lab:
    """The storage, its limit and the nodes' namespaces."""

    folder: Path
    device: str
    tag: str

    @property
    def read_bytes(self) -> int:
        """What has left shared storage so far."""
        return 512 * int(Path(f"/sys/block/{Path(self.device).name}/stat").read_text().split()[2])

    def wrap(self, index: int, loop: str, script: str) -> list[str]:
        """A command in node `index`: its own mounts of shared storage (/mnt) and of a local disk (/srv)."""
        mounts = f"mount -o ro,noload {loop} /mnt && mount -t tmpfs none /srv"
        inner = ["unshare", "--mount", "sh", "-c", f"{mounts} && {script}"]
        joined = ["sh", "-c", f'echo $$ > {self.cgroup}/tasks && exec "$@"', "sh"]
        return [*joined, "ip", "netns", "exec", f"{self.tag}{index}", *inner]

    @property
    def cgroup(self) -> Path:
        return BLKIO / self.tag


def make_storage(folder: Path, repo: Path, mib: int) -> str:
    """A loop device with a file system that holds `repo`."""
    image = folder / "storage.img"
    with image.open("wb") as stream:
        stream.truncate((mib + 64) << 20)
    sh("mkfs.ext4", "-q", "-d", str(repo.parent), str(image))
    return sh("losetup", "--find", "--show", "--read-only", "--direct-io=on", str(image))


@contextlib.contextmanager
def lab(folder: Path, device: str, nodes: int, storage: int, link: int) -> Iterator[Lab]:
    """Namespaces n0… on one bridge, links limited, reads of `device` limited for all of them together."""
    made = Lab(folder, device, f"stg{os.getpid() % 10000}-")
    bridge = f"br{os.getpid() % 10000}"
    made.cgroup.mkdir()
    number = sh("lsblk", "-no", "MAJ:MIN", device)
    (made.cgroup / "blkio.throttle.read_bps_device").write_text(f"{number} {storage * 1_000_000}")
    try:
        sh("ip", "netns", "add", f"{made.tag}sw")
        inside = ("ip", "-n", f"{made.tag}sw")
        sh(*inside, "link", "add", bridge, "type", "bridge")
        sh(*inside, "link", "set", bridge, "up")
        for index in range(nodes):
            name, end = f"{made.tag}{index}", f"v{index}"
            sh("ip", "netns", "add", name)
            sh(*inside, "link", "add", end, "type", "veth", "peer", "name", "eth0", "netns", name)
            sh(*inside, "link", "set", end, "master", bridge, "up")
            sh("ip", "-n", name, "addr", "add", f"10.99.0.{index + 1}/24", "dev", "eth0")
            sh("ip", "-n", name, "link", "set", "eth0", "up")
            sh("ip", "-n", name, "link", "set", "lo", "up")
            for namespace, interface in ((name, "eth0"), (f"{made.tag}sw", end)):
                limit = ["rate", f"{link * 8}mbit", "burst", "1mb", "latency", "100ms"]
                sh("tc", "-n", namespace, "qdisc", "add", "dev", interface, "root", "tbf", *limit)
        yield made
    finally:
        for name in sh("ip", "netns", "list").splitlines():
            if name.startswith(made.tag):
                sh("ip", "netns", "del", name.split()[0])
        for _ in range(20):  # until the last process has left it
            with contextlib.suppress(OSError):
                made.cgroup.rmdir()
                break
            time.sleep(0.1)


@contextlib.contextmanager
def loops(device: str, count: int) -> Iterator[list[str]]:
    """`count` read-only loop devices over `device`: a page cache for each node."""
    made: list[str] = []
    try:
        for _ in range(count):
            made.append(sh("losetup", "--find", "--show", "--read-only", "--direct-io=on", device))
        yield made
    finally:
        for loop in made:
            sh("losetup", "--detach", loop)


def measure(made: Lab, count: int, script: str) -> tuple[float, int]:
    """(seconds until the last node is done, bytes that left shared storage)."""
    with loops(made.device, count) as devices:
        started = [
            subprocess.Popen(
                made.wrap(index, devices[index], script.format(index=index, count=count)),
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1,
            )
            for index in range(count)
        ]  # fmt: skip
        for node in started:
            assert node.stdout is not None
            if node.stdout.readline() != "up\n":
                raise SystemExit("a node did not start")
        before, start = made.read_bytes, time.perf_counter()
        for node in started:
            assert node.stdin is not None
            node.stdin.write("go\n")
        for node in started:
            assert node.stdout is not None
            told = json.loads(node.stdout.readline() or '["ended"]')
            if told:
                raise SystemExit(f"a node failed: {told}")
        seconds, read = time.perf_counter() - start, made.read_bytes - before
        for node in started:
            node.communicate("end\n")
    return seconds, read


def scripts(folder: Path) -> dict[str, str]:
    (folder / "node.py").write_text(NODE)
    plain = "echo up; read go; {tool} >/dev/null && echo [] || echo [1]; read end"
    python = f"PYTHONPATH={os.pathsep.join(sys.path)} exec {sys.executable} {folder / 'node.py'}"
    return {
        "jobspec, every byte verified": python
        + f" {{index}} {{count}} /mnt/models--bench--model /srv {PORT}",
        "cp -r on each node": plain.replace("{tool}", "cp -r /mnt/models--bench--model /srv/"),
        "rsync -a on each node": plain.replace("{tool}", "rsync -a /mnt/models--bench--model /srv/"),
    }


def run(counts: Sequence[int], repo: Path, mib: int, storage: int, link: int) -> None:
    """Print the table."""
    missing = [tool for tool in ("ip", "tc", "losetup", "mkfs.ext4", "rsync") if not shutil.which(tool)]
    if os.geteuid() or missing or not BLKIO.is_dir():
        raise SystemExit(f"needs root, cgroup v1 blkio, and {', '.join(missing) or 'its tools'}")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        device = make_storage(folder, repo, mib)
        size = sum(path.stat().st_size for path in (repo / "blobs").iterdir())
        print(
            f"{size / 1e6:.0f} MB; shared storage {storage} MB/s for all nodes together, links {link} MB/s "
            f"each way, local disks tmpfs; {os.cpu_count()} cores for all, load {os.getloadavg()[0]:.1f}"
        )
        print(f"{'':<30}{'nodes':>6}{'s':>8}{'of 1 node':>11}{'shared bytes':>14}")
        try:
            with lab(folder, device, max(counts), storage, link) as made:
                for label, script in scripts(folder).items():
                    alone = 0.0
                    for count in counts:
                        seconds, read = measure(made, count, script)
                        alone = alone or seconds
                        shares = f"{seconds / alone:>10.2f}x{read / size:>13.2f}x"
                        print(f"{label:<30}{count:>6}{seconds:>8.2f}{shares}", flush=True)
        finally:
            sh("losetup", "--detach", device)
