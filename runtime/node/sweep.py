"""What killed runs of this user have left on the node's disk: told from what live runs use, and removed.

An agent that is killed with its guard, or a node that loses power, removes nothing. Each agent locks its
`run-` folder, and the kernel releases the lock with the process, whatever its PID namespace: a folder that
can be locked is nobody's. The next run of the user sweeps, and so may a site's epilog.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
import shutil
import stat
import threading
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List

from jobspec.finding import JobspecError
from jobspec.plan import MadePlan
from jobspec.runtime.base import own_folder, run_files
from jobspec.runtime.base.procs import started
from jobspec.runtime.node import leftovers

NAME = re.compile(r"(?:run|r)-([0-9a-f]{8})(?:\.\d+)?")
SWEEP_S = 30.0  # of the 90 s that preflight may take
RECORD = re.compile(r"([0-9a-f]{8})\.\d+\.json")


def claim(agents: Path, scratch: Path) -> int:
    """Make a run's folders, and lock `scratch` for as long as the returned descriptor is open.

    Raises: OSError; JobspecError when others may write there.
    """
    own_folder.make(agents)
    with _one_at_a_time(agents):  # else a sweep might find the folder before it is locked
        own_folder.make(scratch)
        descriptor = os.open(scratch, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        with contextlib.suppress(OSError):  # no locks on this file system: then nobody sweeps it either
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    return descriptor


def sweep(node_local: Path) -> List[str]:
    """Remove what dead runs of this user have left below `node_local`; the folders that are gone.

    Raises: JobspecError when others may change `node_local`.
    """
    agents = node_local / f"agents-{os.geteuid()}"
    with contextlib.suppress(OSError), ExitStack() as stack:
        own_folder.check_parent(node_local)
        own_folder.check(agents)
        with _one_at_a_time(agents):
            digests = _digests(node_local, agents)
            dead = [digest for digest in digests if _is_dead(digest, node_local, agents, stack)]
        return [gone for digest in dead for gone in _remove(digest, node_local, agents)]
    return []


def sweep_beside(node_local: Path, say: Callable[[str], None]) -> None:
    """Sweep and wait for it `SWEEP_S` at most; what takes longer goes on beside the run."""

    def work() -> None:
        with contextlib.suppress(JobspecError):  # preparing the run's own folders names those of others
            swept = sweep(node_local)
            if swept:
                say(f"removed what killed runs have left: {', '.join(swept)}")

    sweeping = threading.Thread(target=work, daemon=True, name="sweep")
    sweeping.start()
    sweeping.join(SWEEP_S)


@contextlib.contextmanager
def _one_at_a_time(agents: Path) -> Iterator[None]:
    descriptor = os.open(agents, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        with contextlib.suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _digests(node_local: Path, agents: Path) -> List[str]:
    """Of every run that has something here."""
    found = [NAME.fullmatch(path.name) for path in node_local.iterdir()]
    found += [RECORD.fullmatch(path.name) for path in agents.iterdir()]
    return sorted({match.group(1) for match in found if match is not None})


def _folders(digest: str, node_local: Path) -> List[Path]:
    """The run's folders that are this user's: Ray's first, which is made last."""
    ray = [node_local / f"r-{digest}", Path(f"/tmp/r{os.geteuid()}-{digest}")]
    runs = [path for path in sorted(node_local.glob(f"run-{digest}*")) if NAME.fullmatch(path.name)]
    return [path for path in [*ray, *runs] if _is_ours(path)]


def _is_ours(path: Path) -> bool:
    try:
        info = path.lstat()
    except OSError:
        return False
    return stat.S_ISDIR(info.st_mode) and info.st_uid == os.geteuid()


def _is_dead(digest: str, node_local: Path, agents: Path, stack: ExitStack) -> bool:
    """`stack` keeps the locks. An agent of an older jobspec locks nothing: its record names its process."""
    runs = [path for path in _folders(digest, node_local) if path.name.startswith("run-")]
    records = _records(digest, agents).values()
    alive = any(0 < started(row["pid"]) == row["started"] for row in records if row)
    return not alive and all(_can_lock(path, stack) for path in runs)


def _can_lock(folder: Path, stack: ExitStack) -> bool:
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        stack.callback(os.close, descriptor)
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return True
    except OSError:
        return False


def _records(digest: str, agents: Path) -> Dict[Path, Dict[str, Any]]:
    return {path: _read(path) for path in agents.glob(f"{digest}.*.json")}


def _read(path: Path) -> Dict[str, Any]:
    try:
        record = json.loads(run_files.read_text(path))
        made = [MadePlan(*map(str, row)) for row in record.get("made", ())]
        return {**record, "pid": int(record["pid"]), "started": int(record["started"]), "made": made}
    except (OSError, ValueError, TypeError, KeyError):
        return {}


def _remove(digest: str, node_local: Path, agents: Path) -> List[str]:
    """The `run-` folder and the record go last: by them an interrupted sweep is found again."""
    records, folders = _records(digest, agents), _folders(digest, node_local)
    for record in records.values():
        made = record.get("made", ())
        leftovers.remove(made, Path(str(record.get("run_dir")), "attempts", str(record.get("attempt"))))
    for folder in folders:
        shutil.rmtree(folder, ignore_errors=True)
    for path in records:
        path.unlink()
    return [str(folder) for folder in folders if not folder.exists()]
