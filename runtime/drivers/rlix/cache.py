"""RLix's cache folder on this node, whose place is fixed: a link to the run's Hugging Face cache.

Run as a program it makes the link; `held` keeps the link while the run's driver lives. Runs of one user
share the link. They start and end at any moment, so no observation holds a moment later: only the link's
final target counts. Standard library, Python 3.9.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import pwd
import secrets
import socket
import sys
from pathlib import Path
from typing import Iterator, Optional

# The coordinator gives every actor of a pipeline this cache, whatever the environment says.
# Source: rlops/rlix `nemo` f77d913, `rlix/pipeline/coordinator.py`, `_build_pipeline_env_vars`.
ROOT = Path("/tmp/rlix")
TRIES = 20  # each is lost only to another run that starts or ends at this very moment


class CacheError(Exception):
    """The folder is somebody else's, or leads to another cache. The text says whose."""


def own_cache() -> Path:
    """The run's Hugging Face cache. Source: huggingface_hub, `constants.HF_HOME`."""
    return Path(os.environ.get("HF_HOME") or "~/.cache/huggingface").expanduser()


def link(cache: Path) -> None:
    """Make the link, unless another run's stands there. Raises: CacheError, OSError for the cache itself."""
    place = _place()
    cache.mkdir(parents=True, exist_ok=True)
    for _ in range(TRIES):
        with contextlib.suppress(OSError):  # another run was quicker, or the folder is not ours
            place.parent.mkdir(parents=True, exist_ok=True)
            if _leads_to(place) == cache.resolve():
                break
            _put(place, cache)
    _check_owner()
    target = _leads_to(place)
    if target is not None and target != cache.resolve():
        raise CacheError(_foreign(cache, str(target)))


@contextlib.contextmanager
def held(cache: Path) -> Iterator[None]:
    """Keep the link while the body runs; then remove it where no other run on the node uses it.

    A lock on its folder shows that; without a lock the link stays. Empty folders go with the link, because
    another user could not write into them. Raises: CacheError, OSError.
    """
    lock = _lock(cache)
    try:
        link(cache)
        if _leads_to(_place()) != cache.resolve():
            raise CacheError(_foreign(cache, "missing"))
        yield
    finally:
        if lock is not None:
            with contextlib.suppress(OSError):  # others use it, or somebody has taken it away
                _remove(lock, cache)
            os.close(lock)


def _place() -> Path:
    return ROOT / "shared" / "hf"


def _leads_to(place: Path) -> Optional[Path]:
    """The folder that the link leads to; None where there is none."""
    try:
        return place.resolve(strict=True)
    except (OSError, RuntimeError):  # RuntimeError: a loop of links, before Python 3.13
        return None


def _put(place: Path, cache: Path) -> None:
    """Raises: OSError when something else is there, or comes in between."""
    if place.is_symlink() and not place.exists():
        # Replaced, never removed: it may have become the link of a run that started just now.
        temporary = place.with_name(f".hf.{secrets.token_hex(4)}")
        temporary.symlink_to(cache)
        try:
            temporary.replace(place)
        finally:
            temporary.unlink(missing_ok=True)
    elif place.is_dir() and not place.is_symlink():
        place.rmdir()
    else:
        place.symlink_to(cache)


def _check_owner() -> None:
    """RLix writes beside the link: the user who came first to a node has the folder. Raises: CacheError."""
    try:
        owner = ROOT.stat().st_uid
    except OSError:
        return  # the last run of somebody has just taken it away
    if owner == os.geteuid() or os.access(ROOT, os.W_OK):
        return
    try:
        name = pwd.getpwuid(owner).pw_name
    except KeyError:
        name = str(owner)
    raise CacheError(
        f"{ROOT}, which RLix writes to, is of {name} on {socket.gethostname()}: "
        "wait for that user's runs, or mount a folder of your own there"
    )


def _foreign(cache: Path, target: str) -> str:
    return (
        f"{_place()}, which RLix reads models from, is not this run's cache {cache}, but {target}: "
        "wait for the run that uses it, or remove it"
    )


def _lock(cache: Path) -> Optional[int]:
    """A shared lock on the link's folder, which a run that ends may have taken away; None without one."""
    folder = _place().parent
    for _ in range(TRIES):
        link(cache)
        try:
            lock = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            continue
        try:
            fcntl.flock(lock, fcntl.LOCK_SH)
            if os.path.samestat(os.fstat(lock), folder.stat()):
                return lock
        except FileNotFoundError:
            pass
        except OSError:  # a file system without locks
            os.close(lock)
            return None
        os.close(lock)
    return None


def _remove(lock: int, cache: Path) -> None:
    """Raises: OSError when another run holds the folder, or uses it."""
    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    place = _place()
    if place.is_symlink() and _leads_to(place) == cache.resolve():
        place.unlink()
        place.parent.rmdir()
        ROOT.rmdir()


def main() -> int:
    try:
        link(own_cache())
    except (CacheError, OSError) as problem:
        print(f"jobspec: {problem}", file=sys.stderr, flush=True)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
