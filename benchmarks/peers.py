"""jobspec beside its peers, on one machine, in one run, by turns: a table with ratios.

    python benchmarks/peers.py [--only help,one,sweep,status,install,up] [--repeat 5] [--nemo-rl CHECKOUT]
    python benchmarks/peers.py --install NAME      # makes DIR/NAME anew and notes how long that took

Every peer has a virtual environment of its own below `--peers` (`~/.cache/jobspec-peers`); a row says how to
install one that is not there. Whole processes are timed, after one warm-up. Slurm's commands are fakes that
answer at once, but for `up`: that brings Ray up on the real test cluster (root on Debian,
`.ci/debian-packages`). A ratio above 1 says how many times as long as jobspec's the peer's median is.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.cli import Bench, _cpu_of_children
from benchmarks.peers_work import Work, installed_size

ROOT = Path(__file__).resolve().parents[1]
JOBS, POINTS = 100, 100
CONTESTS = {
    "help": "the program's --help (submitit has none: import)",
    "one": "one Slurm job: its files before submission",
    "sweep": f"a sweep of {POINTS} points: their files",
    "status": f"state of {JOBS} live jobs",
    "install": "install of the login node",
    "up": "Ray up on N nodes of real Slurm: batch script to driver",
}


@dataclass(frozen=True)
class Peer:
    """One peer: its package, and the words that `pip install` gets."""

    name: str
    package: str
    pip: tuple[str, ...]


PEERS = (
    Peer("jobspec", "jobspec-rl", (str(ROOT),)),
    Peer("nemo-run", "nemo-run", ("nemo-run", "leptonai==0.26.6")),  # a newer leptonai breaks its import
    Peer("reframe", "reframe-hpc", ("reframe-hpc",)),
    Peer("submitit", "submitit", ("submitit",)),
    Peer("cloudai", "cloudai", ("git+https://github.com/NVIDIA/cloudai",)),
    Peer("srtctl", "srtctl", ("git+https://github.com/NVIDIA/srt-slurm",)),
    # Its client alone, for the race `up`, which lends it Ray: all of it needs torch.
    Peer("nemo-curator", "nemo-curator", ("--no-deps", "nemo-curator", "cosmos-xenna==0.2.0", "loguru")),
)


@dataclass
class Row:
    """One line of the table. `note` stands where nothing could be measured, or says what was."""

    contest: str
    who: str
    version: str = ""
    seconds: list[float] = field(default_factory=list)
    cpu_s: list[float] = field(default_factory=list)
    note: str = ""
    action: Callable[[], None] | None = None


def version_of(peer: Peer, peers: Path) -> str:
    """The installed version, or nothing."""
    python = peers / peer.name / "bin/python"
    code = f"import importlib.metadata as m; print(m.version({peer.package!r}))"
    if not python.exists():
        return ""
    return subprocess.run([python, "-c", code], capture_output=True, text=True, check=False).stdout.strip()


def how_to(peer: Peer, peers: Path) -> str:
    venv = peers / peer.name
    return f"not installed: python3 -m venv {venv} && {venv}/bin/pip install {' '.join(peer.pip)}"


def install(peer: Peer, peers: Path) -> None:
    """A virtual environment anew; pip's cache is as it is, so that a second time downloads nothing."""
    venv, source = peers / peer.name, peers / f"src-{peer.name}"
    words = [str(source)] if source.exists() else list(peer.pip)
    shutil.rmtree(venv, ignore_errors=True)
    subprocess.run([sys.executable, "-m", "venv", str(venv)], check=True)
    began = time.perf_counter()
    subprocess.run([venv / "bin/pip", "install", "-q", *words], check=True)
    (venv / "install.json").write_text(json.dumps({"seconds": time.perf_counter() - began}))


def process_rows(contest: str, bench: Bench, work: Work, versions: dict[str, str]) -> Iterator[Row]:
    own: dict[str, Callable[[], None]] = {
        "help": lambda: bench.jobspec("--help"),
        "one": lambda: bench.render("one.yaml"),
        "sweep": lambda: bench.render("sweep.yaml"),
        "status": bench.status,
    }
    yield Row(contest, "jobspec", versions["jobspec"], action=own[contest])
    for peer in PEERS[1:-1]:
        if not versions[peer.name]:
            yield Row(contest, peer.name, note=how_to(peer, work.peers))
        elif (action := work.commands(peer.name, contest)) is not None:
            yield Row(contest, peer.name, versions[peer.name], action=action)


def measure(rows: list[Row], repeat: int) -> None:
    """By turns, so that a busy moment of the machine meets all of them; the first round is a warm-up."""
    for number in range(repeat + 1):
        for row in rows:
            if row.action is None:
                continue
            began, used = time.perf_counter(), _cpu_of_children()
            try:
                row.action()
            except RuntimeError as why:  # a peer that fails says so, and the others go on
                row.action, row.note = None, "failed"
                print(why, file=sys.stderr)
                continue
            if number:
                row.seconds.append(time.perf_counter() - began)
                row.cpu_s.append(_cpu_of_children() - used)


def install_rows(peers: Path, versions: dict[str, str]) -> Iterator[Row]:
    for peer in PEERS[:-1]:
        venv = peers / peer.name
        if not versions[peer.name] or not (venv / "install.json").exists():
            yield Row("install", peer.name, note=f"python benchmarks/peers.py --install {peer.name}")
            continue
        megabytes, packages = installed_size(venv)
        seconds = json.loads((venv / "install.json").read_text())["seconds"]
        note = f"{megabytes:.0f} MB, {packages} packages"
        yield Row("install", peer.name, versions[peer.name], [seconds], note=note)


def race(args: argparse.Namespace, versions: dict[str, str], rows: list[Row]) -> None:
    """The race on the test cluster, see `peers_bringup`; an interrupt ends it with what is measured."""
    from benchmarks import bringup, peers_bringup
    from tests.slurm.machine import missing

    if reason := missing(accounting=False):
        rows.append(Row("up", "all", note=f"not measured: {reason}"))
        return
    counts = [int(word) for word in args.nodes.split(",")]
    racers = peers_bringup.racers(args.peers, args.nemo_rl, versions)
    with suppress(KeyboardInterrupt), bringup.bench_lab("peers", max(counts)) as lab:
        for nodes in counts:
            contest = f"Ray up on {nodes} nodes"
            acts: list[tuple[Row, Callable[[int], float]]] = [
                (Row(contest, "jobspec", versions["jobspec"]), partial(peers_bringup.ours, lab, nodes)),
                (Row(contest, "plain ray start", versions["ray"]), partial(bringup.floor, lab, nodes)),
            ]
            for one in racers:
                row = Row(contest, one.name, one.version, note=one.up)
                acts.append((row, partial(peers_bringup.race, lab, one, nodes)))
            rows += [row for row, _ in acts]
            for number in range(args.up_repeat):
                for row, act in acts:
                    attempt(row, lambda act=act, number=number: act(number))


def attempt(row: Row, act: Callable[[], float]) -> None:
    """A peer that fails says so, and the others go on."""
    try:
        row.seconds.append(act())
    except (AssertionError, RuntimeError) as why:
        row.note = f"failed: {str(why).splitlines()[0]}"
        print(f"{row.who}: {why}", file=sys.stderr)
    print(f"{row.contest}, {row.who}: {row.seconds[-1:]}", file=sys.stderr)


def absent(peers: Path, versions: dict[str, str]) -> Iterator[Row]:
    for peer in ("nemo-run", "nemo-curator"):
        if not versions[peer]:
            yield Row("up", peer, note=how_to(next(one for one in PEERS if one.name == peer), peers))
    if not versions["nemo-rl"]:
        note = "not here: git clone https://github.com/NVIDIA-NeMo/RL, then --nemo-rl RL"
        yield Row("up", "NeMo-RL ray.sub", note=note)


def beside(values: list[float], base: list[float]) -> list[str]:
    """The median, and how many times jobspec's it is."""
    if not values:
        return ["", ""]
    median = statistics.median(values)
    return [f"{median:.2f}", f"{median / statistics.median(base):.1f}" if base else ""]


def table(rows: list[Row]) -> Iterator[str]:
    """Markdown; the ratio is to jobspec's row of the same contest."""
    yield "| Contest | Who | Version | min s | median s | Ratio | CPU s | Ratio | |"
    yield "|---|---|---|---|---|---|---|---|---|"
    ours = {row.contest: row for row in rows if row.who == "jobspec"}
    for row in rows:
        base = ours.get(row.contest, row)
        times = [f"{min(row.seconds):.2f}" if row.seconds else "", *beside(row.seconds, base.seconds)]
        cpu = beside(row.cpu_s, base.cpu_s)
        what = [CONTESTS.get(row.contest, row.contest), row.who, row.version]
        yield f"| {' | '.join([*what, *times, *cpu, row.note])} |"


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", default=",".join(CONTESTS), help="contests, separated by commas")
    parser.add_argument("--peers", type=Path, default=Path("~/.cache/jobspec-peers").expanduser())
    parser.add_argument("--nemo-rl", type=Path, help="a checkout of NeMo-RL, for its ray.sub")
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--nodes", default="2,4", help="numbers of nodes for `up`")
    parser.add_argument("--up-repeat", type=int, default=3)
    parser.add_argument("--install", choices=[peer.name for peer in PEERS])
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    if args.install:
        install(next(peer for peer in PEERS if peer.name == args.install), args.peers)
        return 0
    contests = args.only.split(",")
    if wrong := [name for name in contests if name not in CONTESTS]:
        parser.error(f"--only: `{wrong[0]}` is none of {', '.join(CONTESTS)}")
    versions = {peer.name: version_of(peer, args.peers) for peer in PEERS}
    versions |= peer_versions(args.nemo_rl)
    rows: list[Row] = []
    with tempfile.TemporaryDirectory(prefix="jobspec-peers-") as folder:
        (Path(folder) / "own").mkdir()
        (Path(folder) / "work").mkdir()
        bench = Bench(Path(folder) / "own", POINTS, JOBS)
        work = Work(Path(folder) / "work", args.peers, POINTS, JOBS, bench.env)
        for contest in contests:
            if contest in ("help", "one", "sweep", "status"):
                some = list(process_rows(contest, bench, work, versions))
                measure(some, args.repeat)
                rows += some
    rows += install_rows(args.peers, versions) if "install" in contests else ()
    if "up" in contests:
        race(args, versions, rows)
        rows += absent(args.peers, versions)
    print(f"{os.cpu_count()} cores, Python {sys.version.split()[0]}, load average {os.getloadavg()[0]:.1f}\n")
    print("\n".join(table(rows)))
    if args.json:
        plain = [{key: value for key, value in asdict(row).items() if key != "action"} for row in rows]
        args.json.write_text(json.dumps(plain, indent=1) + "\n")
    return 0


def peer_versions(nemo_rl: Path | None) -> dict[str, str]:
    """Of this interpreter's jobspec and Ray, and of the checkout of NeMo-RL."""
    import importlib.metadata as metadata

    found = {"jobspec": metadata.version("jobspec-rl"), "ray": metadata.version("ray"), "nemo-rl": ""}
    if nemo_rl is not None:
        argv = ["git", "-C", str(nemo_rl), "rev-parse", "--short", "HEAD"]
        found["nemo-rl"] = subprocess.run(argv, capture_output=True, text=True, check=False).stdout.strip()
    return found


if __name__ == "__main__":
    sys.exit(main())
