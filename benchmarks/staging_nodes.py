"""Staging on 1 to 8 nodes beside plain tools, with a shared storage and links that have limits of their own.

    python benchmarks/staging.py --nodes 1,2,4,8 [--mib 256] [--storage 50] [--link 100]

Shared storage is one ext4 image on a loop device, whose reads a cgroup limits to `--storage` MB/s for all
nodes together (blkio.throttle) and whose counter says what has left it. Each node is a network namespace
with a link of `--link` MB/s in each direction (tc tbf), and mounts that device by a loop of its own, so that
no node profits from another's page cache. Node-local disks are tmpfs: the storage and the links are the
limits, and the cores of this machine, which all nodes share. Needs root, ip, tc, losetup, cgroup v1 blkio.

Two tools differ. huggingface_hub has no shared storage: each node downloads from a stand-in for the hub in a
namespace of its own, whose link gives `--storage` MB/s to all nodes together; counted is what leaves that
link, headers included. sbcast needs a Slurm cluster: that of the tests, with the same limits on its links
(staging_slurm.py).
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
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import staging_slurm

PORT = 24999
HUB_ADDRESS = "10.99.0.100"
ROOT = Path(__file__).resolve().parents[1]
BLKIO = Path("/sys/fs/cgroup/blkio")
NODE = """
import json, sys
from jobspec.plan import StagePlan
from jobspec.runtime.staging import items
from jobspec.runtime.staging.swarm import Peer, Swarm
index, count, port = int(sys.argv[1]), int(sys.argv[2]), int(sys.argv[5])
source, local = sys.argv[3:5]
swarm = Swarm(index, "token") if count > 1 else None
if swarm:
    swarm.listen([port])
print("up", flush=True)
sys.stdin.readline()
if swarm:
    swarm.meet([Peer(f"n{i}", f"10.99.0.{i + 1}", port) for i in range(count)])
result = items.run([StagePlan("m", "model", source)], local, lambda e, d: None, 600, swarm=swarm)
print(json.dumps([finding.text() for finding in result.findings]), flush=True)
sys.stdin.readline()
"""

HUB = """
import pathlib, sys
from tests.kits.fake_hub import FakeHub
snapshot = next(pathlib.Path(sys.argv[1]).glob("snapshots/*"))
hub = FakeHub({path.name: path.read_bytes() for path in snapshot.iterdir()}, host=sys.argv[2])
print(hub.url, flush=True)
sys.stdin.readline()
"""
DOWNLOAD = """
import sys
from huggingface_hub import snapshot_download
print("up", flush=True)
sys.stdin.readline()
snapshot_download("bench/model", cache_dir="/srv/hub")
print("[]", flush=True)
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
        return self.limited(["ip", "netns", "exec", f"{self.tag}{index}", *inner])

    def limited(self, argv: Sequence[str]) -> list[str]:
        """The command with the limit of shared storage."""
        return ["sh", "-c", f'echo $$ > {self.cgroup}/tasks && exec "$@"', "sh", *argv]

    def sent(self, name: str) -> int:
        """Bytes that have left a namespace by its link."""
        told = json.loads(sh("ip", "-n", f"{self.tag}{name}", "-s", "-j", "link", "show", "eth0"))
        return int(told[0]["stats64"]["tx"]["bytes"])

    def join(self, name: str, ip: str, rate: int) -> None:
        """A namespace with an address, on a link of `rate` MB/s each way."""
        namespace, switch, end = f"{self.tag}{name}", f"{self.tag}sw", f"v{name}"
        sh("ip", "netns", "add", namespace)
        sh(*f"ip -n {switch} link add {end} type veth peer name eth0 netns {namespace}".split())
        sh("ip", "-n", switch, "link", "set", end, "master", "bridge", "up")
        sh("ip", "-n", namespace, "addr", "add", f"{ip}/24", "dev", "eth0")
        sh("ip", "-n", namespace, "link", "set", "eth0", "up")
        sh("ip", "-n", namespace, "link", "set", "lo", "up")
        sh("tc", "-n", namespace, *tbf("eth0", rate))
        sh("tc", "-n", switch, *tbf(end, rate))

    @property
    def cgroup(self) -> Path:
        return BLKIO / self.tag


def tbf(interface: str, rate: int) -> list[str]:
    """Arguments of tc that limit what leaves an interface to `rate` MB/s."""
    limit = f"rate {rate * 8}mbit burst 1mb latency 100ms"
    return f"qdisc add dev {interface} root tbf {limit}".split()


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
    made.cgroup.mkdir()
    number = sh("lsblk", "-no", "MAJ:MIN", device)
    (made.cgroup / "blkio.throttle.read_bps_device").write_text(f"{number} {storage * 1_000_000}")
    try:
        sh("ip", "netns", "add", f"{made.tag}sw")
        sh("ip", "-n", f"{made.tag}sw", "link", "add", "bridge", "type", "bridge")
        sh("ip", "-n", f"{made.tag}sw", "link", "set", "bridge", "up")
        for index in range(nodes):
            made.join(str(index), f"10.99.0.{index + 1}", link)
        made.join("hub", HUB_ADDRESS, storage)
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


def measure(commands: Sequence[Sequence[str]], counter: Callable[[], int]) -> tuple[float, int]:
    """(seconds until the last command is done, what `counter` counted meanwhile).

    A command says `up`, waits for a line, works, says `[]` or its problems, and waits for another line.
    """
    started = [
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1)
        for command in commands
    ]
    for node in started:
        assert node.stdout is not None
        if node.stdout.readline() != "up\n":
            raise SystemExit("a node did not start")
    before, start = counter(), time.perf_counter()
    for node in started:
        assert node.stdin is not None
        node.stdin.write("go\n")
    for node in started:
        assert node.stdout is not None
        told = json.loads(node.stdout.readline() or '["ended"]')
        if told:
            raise SystemExit(f"a node failed: {told}")
    seconds, counted = time.perf_counter() - start, counter() - before
    for node in started:
        node.communicate("end\n")
    return seconds, counted


def on_nodes(made: Lab, script: str, counter: Callable[[], int], count: int) -> tuple[float, int]:
    """`measure` of a script on the first `count` nodes."""
    with loops(made.device, count) as devices:
        commands = [
            made.wrap(index, loop, script.format(index=index, count=count))
            for index, loop in enumerate(devices)
        ]
        return measure(commands, counter)


@contextlib.contextmanager
def hub(made: Lab, folder: Path, repo: Path) -> Iterator[str]:
    """The stand-in for the hub, serving `repo` out of memory; the script that downloads from it."""
    (folder / "hub.py").write_text(HUB)
    (folder / "download.py").write_text(DOWNLOAD)
    path = os.pathsep.join([str(ROOT), *sys.path])
    argv = ["ip", "netns", "exec", f"{made.tag}hub", "env", f"PYTHONPATH={path}", sys.executable]
    with subprocess.Popen(
        [*argv, str(folder / "hub.py"), str(repo), HUB_ADDRESS],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    ) as server:  # fmt: skip
        try:
            assert server.stdout is not None
            url = server.stdout.readline().strip()
            settings = f"HF_ENDPOINT={url} HF_HOME=/srv HF_HUB_DISABLE_PROGRESS_BARS=1"
            yield f"{settings} PYTHONPATH={path} exec {sys.executable} {folder / 'download.py'}"
        finally:
            server.kill()


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


def show(label: str, counts: Sequence[int], size: int, once: Callable[[int], tuple[float, int]]) -> None:
    """One tool's rows; `once` measures it on so many nodes."""
    alone = 0.0
    for count in counts:
        seconds, read = once(count)
        alone = alone or seconds
        shares = f"{seconds / alone:>10.2f}x{read / size:>13.2f}x"
        print(f"{label:<30}{count:>6}{seconds:>8.2f}{shares}", flush=True)


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
                measure_all(made, folder, repo, counts, size, link)
        finally:
            sh("losetup", "--detach", device)


def measure_all(made: Lab, folder: Path, repo: Path, counts: Sequence[int], size: int, link: int) -> None:
    """Every tool on every number of nodes."""
    for label, script in scripts(folder).items():
        show(label, counts, size, partial(on_nodes, made, script, lambda: made.read_bytes))
    with hub(made, folder, repo) as script:
        label = "huggingface_hub on each node"
        show(label, counts, size, partial(on_nodes, made, script, lambda: made.sent("hub")))
    if reason := staging_slurm.missing():
        print(f"{'sbcast':<30}not measured: {reason}")
        return
    with staging_slurm.slurm(max(counts), tbf, link) as cluster:
        show("sbcast, file by file", counts, size, partial(broadcast, made, cluster))


def broadcast(made: Lab, cluster: staging_slurm.Cluster, count: int) -> tuple[float, int]:
    """sbcast of each file from the job's first node, which alone reads shared storage."""
    with loops(made.device, 1) as (loop,), staging_slurm.job(cluster, count) as number:
        command = staging_slurm.sender(cluster, number, loop)
        return measure([made.limited(command)], lambda: made.read_bytes)
