"""Import an image of a registry to a folder of the site, once for all users: by the program of its runtime.

The program writes beside the file's place, and one rename ends it: a job sees a whole image or none. Standard
library only.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import pwd
import re
import shutil
import signal
import stat
import subprocess
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Callable, Dict, Iterator, List, Optional, Tuple

from jobspec.finding import Finding, JobspecError, fail, warning
from jobspec.plan import CachedImage
from jobspec.runtime.base.full_disk import refusal, refused
from jobspec.runtime.base.node_lock import hold, user_name
from jobspec.runtime.staging import image_cache
from jobspec.runtime.staging.image_cache import Record

Say = Callable[[str], None]
TOLD_S = 15.0  # between two lines about something that takes long
END_S = 10.0  # for the program to remove its own files
PROGRAMS = {"pyxis": "enroot", "apptainer": "apptainer"}
LOGIN = {
    "enroot": "add `machine HOST login USER password TOKEN` to ~/.config/enroot/.credentials",
    "apptainer": "run `apptainer registry login --username USER docker://HOST`",
}
# What the programs say, each with its rule: the first that fits. Sources: enroot 4.1, `common::curl`; OCI
# Distribution Specification, "Error Codes", which apptainer prints.
REFUSED, UNKNOWN = "image-login", "image-unknown"
COMPLAINTS = (
    (REFUSED, re.compile(r"\b40[13]\b|unauthorized|denied|wants a login", re.IGNORECASE)),
    (UNKNOWN, re.compile(r"\b404\b|not found|(manifest|name) unknown|has no tag", re.IGNORECASE)),
)


@dataclass(frozen=True)
class Wanted:
    """An image: `name` in its registry, by the digest that `reference` has now; `uri` is for the program."""

    reference: str
    name: str
    digest: str
    uri: str
    plain_http: bool = False


@dataclass(frozen=True)
class Brought:
    """What a call found or made. `before` is the digest that the reference had at the import before."""

    image: CachedImage
    imported: bool
    before: str = ""
    findings: Tuple[Finding, ...] = ()


def runtime_of_files(runtime: str) -> str:
    """The program that imports for a runtime. Raises: JobspecError for a runtime that has none."""
    program = PROGRAMS.get(runtime)
    if program is None:
        what = f"container runtime `{runtime}` starts from no image file that is imported once"
        raise fail("stage.image-runtime", what, fix="use pyxis or apptainer, or prepare the image by hand")
    return program


def program_for(runtime: str) -> str:
    """The program that imports for a runtime. Raises: JobspecError where it is not here."""
    program = runtime_of_files(runtime)
    if shutil.which(program) is None:
        why = "an image is imported by the program of its runtime, and a login node may lack it"
        fix = "add `--job`, which imports in a job on a node, or load the module that has it"
        raise fail("stage.image-program", f"`{program}` was not found on this machine", why, fix)
    return program


def bring(wanted: Wanted, runtime: str, folder: str, deadline: float, say: Say) -> Brought:
    """The image in `folder`, imported unless it is there. `deadline` is on `time.monotonic`.

    Raises: JobspecError.
    """
    there, _ = _known(folder, wanted)
    if there is not None:
        return Brought(there, False)
    program, findings = program_for(runtime), check_folder(folder)
    try:
        with _alone(folder, wanted, deadline, say) as alone:
            there, last = _known(folder, wanted)
            if there is not None:  # by another user, meanwhile
                return Brought(there, False, findings=findings)
            target = Path(
                folder, image_cache.file_name(wanted.name, wanted.digest, image_cache.SUFFIXES[runtime])
            )
            imported, broken = _file(wanted, program, target, alone, deadline, say)
            image = _recorded(wanted, target, program)
    except OSError as problem:
        raise _not_written(folder, problem) from problem
    return Brought(image, imported, last if last != wanted.digest else "", (*findings, *broken))


def _known(folder: str, wanted: Wanted) -> Tuple[Optional[CachedImage], str]:
    """The image where the newest record has it, and the digest of that record."""
    known = image_cache.records(folder, wanted.reference)
    if not known:
        return None, ""
    is_it = known[-1].digest == wanted.digest
    return (image_cache.image_of(folder, known[-1]) if is_it else None), known[-1].digest


@contextlib.contextmanager
def _alone(folder: str, wanted: Wanted, deadline: float, say: Say) -> Iterator[bool]:
    """Hold the lock of the reference and that of its digest, which two references may share."""
    told: Dict[str, float] = {}

    def waiting(holder: str, seconds: float) -> None:
        if seconds - told.get(holder, -TOLD_S) >= TOLD_S:
            told[holder] = seconds
            say(f"waiting for {holder}, who imports `{wanted.reference}`")

    mode = stat.S_IMODE(os.stat(folder).st_mode) & 0o666 | 0o600
    with contextlib.ExitStack() as held:
        alone = [
            held.enter_context(
                hold(os.path.join(folder, image_cache.lock_name(name)), deadline, waiting, mode)
            )
            for name in (wanted.reference, wanted.digest)
        ]
        yield all(alone)


def _file(
    wanted: Wanted, program: str, target: Path, alone: bool, deadline: float, say: Say
) -> Tuple[bool, Tuple[Finding, ...]]:
    """Make `target` unless it is there and whole: whether it was made, and what was wrong before."""
    findings: List[Finding] = []
    if target.exists():
        if is_whole(target):
            return False, ()
        target.unlink()
        what, why = f"`{target}` was no whole image", "an import was broken off and had its final name"
        findings.append(warning("stage.image-broken", what, why, "nothing: it was removed and imported anew"))
    prefix = f".{wanted.digest.replace(':', '-')}"
    partial = target.with_name(f"{prefix}.{os.urandom(8).hex()}.tmp")  # nobody can guess it
    if alone:  # then whoever made these is dead
        for left in target.parent.glob(f"{prefix}.*.tmp"):
            with contextlib.suppress(OSError):
                left.unlink()
    try:
        say(f"importing `{wanted.reference}` at {wanted.digest} by {program}")
        _run(wanted, program, partial, deadline, say)
        if not is_whole(partial):
            why = f"{program} ended without an error, and the file is cut off or of another kind"
            raise fail("stage.image-import", f"`{wanted.reference}` was not imported", why, "try again")
        partial.chmod(_readable(target.parent))
        with partial.open("rb") as file:
            os.fsync(file.fileno())
        partial.rename(target)
    finally:
        with contextlib.suppress(OSError):
            partial.unlink()
    return True, tuple(findings)


def _recorded(wanted: Wanted, target: Path, program: str) -> CachedImage:
    digest = hashlib.sha256()
    with target.open("rb") as file:
        for block in iter(lambda: file.read(1 << 22), b""):
            digest.update(block)
    folder, size = str(target.parent), target.stat().st_size
    at, sha256 = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), digest.hexdigest()
    record = Record(wanted.reference, wanted.digest, target.name, sha256, size, user_name(), at, program)
    image_cache.add(folder, record, _readable(target.parent))
    return CachedImage(wanted.reference, wanted.digest, str(target), sha256, size)


def is_whole(path: Path) -> bool:
    """Whether a file is an image to its end, as far as its head tells.

    Sources: squashfs superblock (`s_magic`, `bytes_used` at 40); SIF header (magic at 32).
    """
    with path.open("rb") as file:
        head = file.read(64)
    if head[:4] == b"hsqs":
        return path.stat().st_size >= int.from_bytes(head[40:48], "little") > 0
    return head[32:41] == b"SIF_MAGIC"


def check_folder(folder: str) -> Tuple[Finding, ...]:
    """Warnings about the rights of an image cache, which is made if it is not there. Raises: JobspecError."""
    try:
        os.makedirs(folder, exist_ok=True)
        facts = os.stat(folder)
    except OSError as problem:
        raise _not_written(folder, problem) from problem
    if not os.access(folder, os.W_OK | os.X_OK):
        raise _not_written(folder, PermissionError("you may not write there"))
    if facts.st_mode & stat.S_IWGRP and not facts.st_mode & (stat.S_ISGID | stat.S_IWOTH):
        what = f"`{folder}` is a group's, and new files there are of each user's own group"
        why = "other users may then neither read an image nor take its lock"
        return (warning("stage.image-group", what, why, f"its owner runs `chmod g+s {folder}`"),)
    return ()


def _not_written(folder: str, problem: OSError) -> JobspecError:
    reason, room = refusal(problem, folder)
    if room:
        return fail("stage.image-space", f"`{folder}` is full", reason, _space(room, folder))
    place = str(problem.filename or folder)
    place = place if os.path.lexists(place) else folder
    with contextlib.suppress(OSError, KeyError):
        facts = os.stat(place)
        owner = pwd.getpwuid(facts.st_uid).pw_name
        reason += f"; `{place}` is {owner}'s, mode {stat.S_IMODE(facts.st_mode):04o}"
    fix = f"its owner runs `chgrp GROUP {folder}; chmod g+rwxs {folder}`; or set another `image_cache`"
    return fail("stage.image-folder", f"the image cache `{folder}` cannot be used", reason, fix)


def _readable(folder: Path) -> int:
    """The mode of files in a folder: who may enter it may read them, whatever the umask is."""
    mode = folder.stat().st_mode
    return 0o600 | (0o040 if mode & 0o010 else 0) | (0o004 if mode & 0o001 else 0)


def _run(wanted: Wanted, program: str, partial: Path, deadline: float, say: Say) -> None:
    if program == "enroot":
        words = ["enroot", "import", "--output", str(partial), wanted.uri]
    else:
        words = [
            "apptainer",
            "pull",
            *(["--no-https"] if wanted.plain_http else []),
            str(partial),
            wanted.uri,
        ]
    code, text = output(words, wanted.plain_http, deadline, say)
    if code:
        raise complaint(wanted.reference, program, text, str(partial.parent))


def output(words: List[str], plain_http: bool, deadline: float, say: Say) -> Tuple[int, str]:
    """Status and text of the program; it and its children are ended when this ends early.

    Raises: JobspecError at the deadline.
    """
    env = {**os.environ, **({"ENROOT_ALLOW_HTTP": "y"} if plain_http else {})}
    started = time.monotonic()
    with tempfile.TemporaryFile() as log:
        child = subprocess.Popen(
            words, env=env, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
        )
        try:
            while _waits(child, min(TOLD_S, max(0.0, deadline - time.monotonic()))):
                if time.monotonic() >= deadline:
                    what = f"`{words[0]}` was not done in time"
                    raise fail("stage.timeout", what, fix="give more hours by `--timeout`, and call again")
                say(f"{words[0]} has worked for {time.monotonic() - started:.0f} s")
        finally:
            _end(child)
        log.seek(0)
        return child.returncode, log.read().decode("utf-8", "replace")


def _waits(child: "subprocess.Popen[bytes]", seconds: float) -> bool:
    try:
        child.wait(seconds)
    except subprocess.TimeoutExpired:
        return True
    return False


def _end(child: "subprocess.Popen[bytes]") -> None:
    """End a program that still runs: SIGTERM, at which it removes its files, then all of its group."""
    if child.poll() is not None:
        return
    for number in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, number)
        _waits(child, END_S)


def complaint(reference: str, program: str, text: str, folder: str = "/tmp") -> JobspecError:
    """What the program, or the registry, said against an import, as a finding."""
    what = f"`{reference}` was not imported"
    lines = [line.strip() for line in text.splitlines() if line.strip() and "[INFO]" not in line]
    why = "\n".join(lines[-4:]) or f"{program} said nothing"
    _, room = refused(text, folder)
    if room:
        return fail("stage.image-space", what, why, _space(room, folder))
    rule = next((rule for rule, words in COMPLAINTS if words.search(text)), "image-import")
    host, _, _ = reference.partition("/")
    if program == "enroot":  # its credentials have hosts without a port, and Docker Hub's own
        machine = "registry-1.docker.io" if host == "docker.io" else host.partition(":")[0]
    else:
        machine = host
    fixes = {
        REFUSED: LOGIN[program].replace("HOST", machine),
        UNKNOWN: "check the name and the tag",
        "image-import": f"see whether this machine reaches `{host}`; `--job` imports on a node",
    }
    return fail(f"stage.{rule}", what, why, fixes[rule])


def _space(room: str, folder: str) -> str:
    """How to make room, and where an import needs it, each with what is free."""
    places = [folder, os.environ.get("ENROOT_TEMP_PATH") or os.environ.get("TMPDIR") or "/tmp"]
    rows = []
    for place in dict.fromkeys(places):
        with contextlib.suppress(OSError):
            rows.append(f"`{place}` has {shutil.disk_usage(place).free / 2**30:.1f} GiB free")
    return f"{room}: {', '.join(rows)}; the program keeps layers in its own cache as well"
