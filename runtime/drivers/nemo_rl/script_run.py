"""Runs a maintained script of a checkout and keeps what it leaves.

Such a script writes below its own checkout, removes those files at its next start, and resumes from whatever
it finds. Two scripts at once destroy each other's files. So this program refuses leftovers, holds the
script, runs it, copies the files of this start, and says which checkpoints are complete. Standard library,
Python 3.9.
"""

from __future__ import annotations

import argparse
import contextlib
import errno
import fcntl
import fnmatch
import glob
import os
import re
import shutil
import stat
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Iterator, List, NoReturn, Optional, Sequence, Tuple

from jobspec.runtime.base import procs, signals
from jobspec.runtime.base.signals import Received

BLOCKED = 3
LOGS = ("*.json", "run*.log*")
EVENTS = "*tfevents*"
CLOCK_SLACK_S = 2.0  # a file server's clock may be behind this node's, and some round to whole seconds
SPLITS = re.compile(r"[\s*?\[]")
FOREIGN_RAY = "gcs_server"  # the one process that every Ray cluster has on its head


def main(argv: Optional[Sequence[str]] = None, received: Optional[Received] = None) -> int:
    """The script's exit code; 3 when it was not started, with the reason on standard error.

    Signals to end that are `received` are handed on to it, so that the files are kept after the end too.
    """
    options = _parse(sys.argv[1:] if argv is None else argv)
    kept, metrics = Path(options.kept), Path(options.metrics)
    _refuse_split(options)
    _refuse_leftovers([options.kept, options.checkpoints], options.leftover)
    if options.own_ray:
        _refuse_foreign_ray()
    newer = _skipped(options.below_capability, capability()) if options.below_capability else ""
    if newer:
        print(f"jobspec: skipped: {newer}", flush=True)
        return 0
    kept.mkdir(parents=True)
    metrics.mkdir(parents=True, exist_ok=True)
    with hold(Path(options.hold)) if options.hold else contextlib.nullcontext():
        start = time.time() - CLOCK_SLACK_S
        code = run(options.command, received)
        if options.outputs:
            keep(Path(options.outputs), kept, metrics, options.file, start, code)
    if options.scratch and code == 0:
        shutil.rmtree(options.scratch, ignore_errors=True)
    for line in checkpoints([folder for folder in (options.checkpoints, options.outputs) if folder]):
        print(f"jobspec: {line}", flush=True)
    return code


def _parse(argv: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="checkout_run", allow_abbrev=False)
    parser.add_argument("--kept", required=True, help="folder of this attempt; must not exist yet")
    parser.add_argument("--metrics", required=True, help="folder that metric files are copied to")
    parser.add_argument("--file", action="append", default=[], help="metric file below --outputs")
    parser.add_argument("--outputs", default="", help="folder that the script writes to")
    parser.add_argument("--checkpoints", default="", help="folder of checkpoints; must not exist yet")
    parser.add_argument("--leftover", action="append", default=[], help="glob that must match nothing")
    parser.add_argument("--scratch", default="", help="folder that is removed after a success")
    parser.add_argument("--hold", default="", help="file that one run holds at a time")
    parser.add_argument("--below-capability", default="", help="skip on this compute capability and newer")
    parser.add_argument("--own-ray", action="store_true", help="the script starts Ray by itself")
    parser.add_argument("command", nargs="+")
    return parser.parse_args(list(argv))


def _block(reason: str) -> NoReturn:
    print(f"jobspec: blocked: {reason}", file=sys.stderr, flush=True)
    raise SystemExit(BLOCKED)


def _refuse_split(options: argparse.Namespace) -> None:
    """The scripts pass their arguments and paths on unquoted."""
    words = options.command[1:] if options.hold else []
    bad = next((text for text in words if not text or SPLITS.search(text)), None)
    if bad is not None:
        _block(
            f"the script would not pass `{bad}` on as one word: use paths and values without blanks or `*?[`"
        )


def _refuse_leftovers(folders: Sequence[str], patterns: Sequence[str]) -> None:
    leftovers = [folder for folder in folders if folder and Path(folder).exists()]
    for pattern in patterns:
        leftovers += sorted(glob.glob(pattern))  # noqa: PTH207 - relative and absolute patterns
    if leftovers:
        _block(f"`{leftovers[0]}` is left from another run and would shorten this one: move it away")


def _refuse_foreign_ray(proc: Path = Path("/proc")) -> None:
    """A driver that looks for a Ray cluster joins any that it sees on the node."""
    for path in proc.glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            program = path.read_bytes().split(b"\0")[0].decode(errors="replace")
            if Path(program).name == FOREIGN_RAY:
                _block(f"process {path.parent.name} is another Ray cluster on this node: use a whole node")


def capability() -> str:
    """The highest compute capability of the GPUs seen, `9.0`; empty where it cannot be asked."""
    argv = ["nvidia-smi", "--query-gpu=compute_cap", "--format=csv,noheader"]
    try:
        _, out, _ = procs.output(argv, 60.0)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    versions = [line.strip() for line in out.decode(errors="replace").splitlines() if _version(line)]
    return max(versions, key=_version, default="")


def _version(text: str) -> Tuple[int, ...]:
    parts = text.strip().split(".")
    return tuple(int(part) for part in parts) if all(part.isdecimal() for part in parts) else ()


def _skipped(limit: str, actual: str) -> str:
    """Why nothing runs on these GPUs, or nothing. Unknown GPUs are tried. Pure."""
    if not actual or _version(actual) < _version(limit):
        return ""
    return f"the maintainers skip this script from compute capability {limit} on, this node has {actual}"


@contextlib.contextmanager
def hold(path: Path) -> Iterator[None]:
    """Let one run at a time use a checkout's script; the kernel frees the hold when this process ends."""
    try:
        # Opened for writing, though nothing is written: NFS grants an exclusive lock to no other.
        file = path.open("r+b")
    except OSError as problem:
        _block(f"`{path}` cannot be opened for writing, and the script writes beside it: {problem.strerror}")
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as problem:
            if problem.errno in (errno.EWOULDBLOCK, errno.EACCES):
                _block(f"another run uses `{path}`, and the two would remove each other's files")
            print(f"jobspec: `{path}` cannot be locked ({problem.strerror})", flush=True)
        yield


def run(command: Sequence[str], received: Optional[Received] = None) -> int:
    """A shell's exit code. Told to end before the script has started, it is not started."""
    if received is not None and not received.empty():
        return 128 + received.get()
    try:
        child = subprocess.Popen(list(command))
    except OSError as problem:
        print(f"jobspec: `{command[0]}`: {problem.strerror}", file=sys.stderr, flush=True)
        return 127 if isinstance(problem, FileNotFoundError) else 126
    if received is not None:
        threading.Thread(target=_pass_on, args=(received, child), daemon=True, name="pass-on").start()
    code = child.wait()
    return code if code >= 0 else 128 - code


def _pass_on(received: Received, child: subprocess.Popen[bytes]) -> None:
    while True:
        signals.forward(child, received.get())


def keep(outputs: Path, kept: Path, metrics: Path, files: Sequence[str], start: float, code: int) -> None:
    """Copy logs and metric files of this start; a missing metric file is replaced by its event files."""
    for path in _fresh(outputs, LOGS, start):
        _copy(path, kept / path.relative_to(outputs))
    copied = [name for name in files if (kept / name).is_file()]
    for name in copied:
        _copy(kept / name, metrics / name)
    if len(copied) < len(files) or (not files and code != 0):
        for path in _fresh(outputs, (EVENTS,), start):
            _copy(path, metrics / path.relative_to(outputs))


def _fresh(outputs: Path, patterns: Sequence[str], start: float) -> List[Path]:
    """Files of this start. What the script has left running may remove some meanwhile."""
    fresh: List[Path] = []
    for folder, _, names in os.walk(outputs):
        for name in names:
            if any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns):
                path = Path(folder, name)
                with contextlib.suppress(OSError):
                    info = path.stat()
                    if stat.S_ISREG(info.st_mode) and info.st_mtime >= start:
                        fresh.append(path)
    return sorted(fresh)


def _copy(source: Path, target: Path) -> None:
    if source == target:
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        shutil.copyfile(source, target)
    except OSError as problem:
        print(f"jobspec: `{source}` was not kept: {problem.strerror}", file=sys.stderr, flush=True)


def checkpoints(folders: Sequence[str]) -> Iterator[str]:
    """`complete checkpoint DIR` for each with weights and a finished record, `unfinished …` for others."""
    for folder in folders:
        for path in sorted(glob.glob(f"{glob.escape(folder)}/**/*step_*", recursive=True)):  # noqa: PTH207
            step = Path(path).absolute()
            if not step.is_dir():
                continue
            if step.name.startswith("step_") and (step / "training_info.json").is_file():
                weights = step / "policy" / "weights"
                if weights.is_dir() and any(weights.iterdir()):
                    yield f"complete checkpoint {step}"
            elif step.name.startswith("tmp_step_"):
                yield f"unfinished checkpoint {step}"


if __name__ == "__main__":
    sys.exit(main(received=signals.receive()))
