"""One node's staging beside what the disk and plain tools reach, in one run, on a model of your size.

    python benchmarks/staging.py [--gib 4] [--folder DIR] [--rounds 2]
    python benchmarks/staging.py --nodes 1,2,4,8        as root: several nodes, see staging_nodes.py

Every row starts with the source out of the page cache where that is possible (root), and ends when its
bytes are on the disk (`sync` is part of the time). The rows differ in what they prove: only jobspec's
compare every byte with the hash that the cache promises.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shutil
import struct
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from jobspec.plan import StagePlan
from jobspec.runtime.staging import items

COMMIT = "c" * 40
BLOCK = 64 << 20


def make_model(folder: Path, gib: float, shards: int = 4) -> Path:
    """A cache folder with `shards` safetensors files of random bytes and their true hashes."""
    repo = folder / "models--bench--model"
    snapshot = repo / "snapshots" / COMMIT
    snapshot.mkdir(parents=True)
    (repo / "blobs").mkdir()
    (repo / "refs").mkdir()
    (repo / "refs" / "main").write_text(COMMIT)
    size = int(gib * 2**30 / shards) // BLOCK * BLOCK
    if not size:
        raise SystemExit(f"{shards} files of {BLOCK >> 20} MiB are the least")
    header = json.dumps({"w": {"dtype": "U8", "shape": [size], "data_offsets": [0, size]}}).encode()
    block = os.urandom(BLOCK)
    for number in range(shards):
        temp, state = repo / "blobs" / "new", hashlib.sha256()
        with temp.open("wb") as stream:
            for part in (
                struct.pack("<Q", len(header)),
                header,
                *[bytes([number]) + block[1:]] * (size // BLOCK),
            ):
                stream.write(part)
                state.update(part)
        temp.rename(repo / "blobs" / state.hexdigest())
        (snapshot / f"model-{number}.safetensors").symlink_to(f"../../blobs/{state.hexdigest()}")
    return repo


def cold() -> bool:
    """Drop the page cache; False where that is not allowed."""
    os.sync()
    try:
        Path("/proc/sys/vm/drop_caches").write_text("3")
    except OSError:
        return False
    return True


def timed(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    os.sync()
    return time.perf_counter() - start


def dd_read(repo: Path) -> None:
    """All blobs by direct I/O into nothing: the source's limit."""
    for blob in (repo / "blobs").iterdir():
        command = ["dd", f"if={blob}", "of=/dev/null", "bs=4M", "iflag=direct", "status=none"]
        subprocess.run(command, check=True)


def dd_copy(repo: Path, target: Path) -> None:
    """All blobs read by direct I/O and flushed, one after the other: a tail cannot be written directly."""
    target.mkdir()
    for blob in (repo / "blobs").iterdir():
        command = ["dd", f"if={blob}", f"of={target / blob.name}", "bs=4M", "iflag=direct", "conv=fsync"]
        subprocess.run([*command, "status=none"], check=True)


def stage_once(repo: Path, target: Path, rehash: bool = False) -> None:
    result = items.run(
        [StagePlan("model", "model", str(repo))], str(target), lambda e, d: None, 3600, rehash=rehash
    )
    if result.findings:
        raise SystemExit(result.findings[0].text())


def rows(repo: Path, folder: Path) -> dict[str, tuple[str, Callable[[], object], Callable[[], object]]]:
    """name -> (what is proved, preparation, work)."""
    target = folder / "target"

    def fresh() -> None:
        shutil.rmtree(target, ignore_errors=True)

    def nothing() -> None:
        return

    return {
        "dd direct, read only": ("nothing", fresh, lambda: dd_read(repo)),
        "dd direct read, fsync": ("nothing", fresh, lambda: dd_copy(repo, target)),
        "cp -r": ("nothing", fresh, lambda: subprocess.run(["cp", "-r", repo, target], check=True)),
        "cp -r, then sha256sum": ("the copy, from the cache", fresh, lambda: copy_and_sum(repo, target)),
        "jobspec, cold": ("every byte", fresh, lambda: stage_once(repo, target)),
        "jobspec, second run": ("size, mtime, inode", nothing, lambda: stage_once(repo, target)),
        "jobspec, rehash": ("every byte, at rest", nothing, lambda: stage_once(repo, target, rehash=True)),
    }


def copy_and_sum(repo: Path, target: Path) -> None:
    subprocess.run(["cp", "-r", repo, target], check=True)
    blobs = [str(path) for path in (target / "blobs").iterdir()]
    subprocess.run(
        ["xargs", "-P2", "-n1", "sha256sum"],
        input="\n".join(blobs).encode(),
        stdout=subprocess.DEVNULL,
        check=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--gib", type=float, default=4.0)
    parser.add_argument("--folder", type=Path, default=None, help="a folder on the node's disk")
    parser.add_argument("--rounds", type=int, default=2, help="the best of so many counts")
    parser.add_argument("--nodes", help="several nodes instead, e.g. 1,2,4,8: see staging_nodes.py")
    parser.add_argument("--mib", type=int, default=256, help="with --nodes: size of the model")
    parser.add_argument("--storage", type=int, default=50, help="with --nodes: MB/s of shared storage")
    parser.add_argument("--link", type=int, default=100, help="with --nodes: MB/s of a node's link")
    args = parser.parse_args()
    if args.nodes:
        import staging_nodes

        with tempfile.TemporaryDirectory(dir=args.folder) as name:
            repo = make_model(Path(name) / "model", args.mib / 1024)
            counts = [int(count) for count in args.nodes.split(",")]
            staging_nodes.run(counts, repo, args.mib, args.storage, args.link)
        return
    with tempfile.TemporaryDirectory(dir=args.folder) as name:
        folder = Path(name)
        repo = make_model(folder, args.gib)
        size = sum(path.stat().st_size for path in (repo / "blobs").iterdir())
        best: dict[str, float] = {}
        dropped = True
        for _ in range(args.rounds):
            for label, (_, prepare, work) in rows(repo, folder).items():
                prepare()
                dropped = cold() and dropped
                best[label] = min(best.get(label, float("inf")), timed(work))
        limit = best["dd direct read, fsync"]
        print(
            f"{size / 2**30:.2f} GiB in 4 files, best of {args.rounds}, "
            f"page cache {'dropped' if dropped else 'NOT dropped'}, "
            f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores"
        )
        print(f"{'':<24}{'s':>8}{'MiB/s':>9}{'of dd':>8}  proves")
        for label, (proves, _, _) in rows(repo, folder).items():
            seconds = best[label]
            print(
                f"{label:<24}{seconds:>8.2f}{size / 2**20 / seconds:>9.0f}{limit / seconds:>8.2f}  {proves}"
            )


if __name__ == "__main__":
    main()
