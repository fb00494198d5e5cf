"""Downloads from the Hugging Face hub in a child process: resumable, polite, watched, and easy to end.

The child imports huggingface_hub, which takes a second, and downloads with few connections: in the field, 128
at once made six of eight nodes hang on dead ones. After a 429 the child waits as long as the hub asks. This
process watches the bytes on the disk. It kills a child that stands still and starts another; huggingface_hub
continues with the bytes that are there.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

from jobspec.finding import JobspecError, fail

# A 1 TB model over a 1 Gbit/s line takes about 2.5 hours.
DOWNLOAD_TIMEOUT_S = 24 * 3600.0
# Longer than any of huggingface_hub's own time limits: then its retries have had their chance.
STALL_S = 300.0
RESTARTS = 5
POLL_S = 0.5
_NO_SPACE = 75

_CHILD = """
import json, os, shutil, sys, time
from huggingface_hub import HfApi, snapshot_download
from huggingface_hub.utils import filter_repo_objects
request = json.load(sys.stdin)
names = dict(repo_id=request["repo_id"], repo_type=request["kind"], revision=request["revision"] or None)
patterns = dict(allow_patterns=request["allow"] or None, ignore_patterns=request["ignore"] or None)

def refused(problem):
    while problem is not None:
        answer = getattr(problem, "response", None)
        if getattr(answer, "status_code", 0) == 429:
            return answer
        problem = problem.__cause__ or problem.__context__

def download():
    info = HfApi().repo_info(files_metadata=True, **names)
    files = filter_repo_objects(info.siblings, key=lambda file: file.rfilename, **patterns)
    needed = max(0, sum(file.size or 0 for file in files) - request["present"])
    os.makedirs(request["cache"], exist_ok=True)
    free = shutil.disk_usage(request["cache"]).free
    if needed > free:
        print(json.dumps({"needed": needed, "free": free}))
        sys.exit(75)
    snapshot_download(cache_dir=request["cache"], max_workers=request["workers"], **names, **patterns)

for attempt in range(request["tries"]):
    try:
        download()
        break
    except Exception as problem:
        answer = refused(problem)
        if answer is None or attempt + 1 == request["tries"]:
            raise
        after = answer.headers.get("retry-after", "")
        wait = float(after) if after.isdecimal() else request["pause_s"] * 2 ** attempt
        sys.stderr.write(f"429 Too Many Requests: waiting {wait:.0f} s\\n")
        sys.stderr.flush()
        time.sleep(min(wait, 600))
"""


@dataclass(frozen=True)
class Download:
    """What to bring into the cache folder `cache`. `present` bytes of it are there already."""

    repo_id: str
    kind: str  # model | dataset
    revision: str
    cache: str
    allow: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()
    present: int = 0
    workers: int = 4
    tries: int = 8
    pause_s: float = 5.0


def download(
    what: Download,
    progress: Callable[[int], None] = lambda count: None,
    stall_s: float = STALL_S,
    timeout_s: float = DOWNLOAD_TIMEOUT_S,
) -> None:
    """Bring a model or data set into its cache. `progress(bytes on the disk)` is called now and then.

    Raises: JobspecError `stage.space`, `stage.stalled` or `stage.download`.
    """
    end = time.monotonic() + timeout_s
    for _ in range(RESTARTS):
        status, out, err = _attempt(what, progress, stall_s, end)
        if status == 0:
            return
        if status == _NO_SPACE:
            raise _no_space(what, json.loads(out.splitlines()[-1]))
        if status is not None:
            lines = [line for line in err.splitlines() if line.strip()]
            raise _failed(what, lines[-1] if lines else f"exit code {status}")
        if time.monotonic() > end:
            raise _failed(what, f"the download took longer than {timeout_s / 3600:.0f} h")
    raise fail(
        "stage.stalled",
        f"the download of `{what.repo_id}` stood still for {stall_s:.0f} s, {RESTARTS} times in a row",
        why=f"{on_disk(what)} bytes are in `{what.cache}`",
        fix="look at the network and the proxy; the next call continues with what is there",
    )


def _attempt(
    what: Download, progress: Callable[[int], None], stall_s: float, end: float
) -> tuple[int | None, str, str]:
    """(exit code, stdout, stderr) of one child; None when it was killed because it stood still."""
    # The job's offline switches say nothing about this machine.
    env = {k: v for k, v in os.environ.items() if k not in ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE")}
    env["HF_HUB_DISABLE_PROGRESS_BARS"] = "1"
    # The hub's chunk cache would need the room of the model again, in the home folder.
    env.setdefault("HF_XET_CACHE", str(Path(what.cache).parent / "xet"))
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        argv = [sys.executable, "-c", _CHILD]
        with subprocess.Popen(
            argv, env=env, stdin=subprocess.PIPE, stdout=out, stderr=err, text=True
        ) as child:
            try:
                _send(child, json.dumps(asdict(what)))
                killed = _watch(child, what, progress, stall_s, end)
            finally:
                if child.poll() is None:
                    child.kill()  # its retries must not outlive Ctrl-C
        out.seek(0)
        err.seek(0)
        return (None if killed else child.returncode), out.read(), err.read()


def _send(child: subprocess.Popen[str], text: str) -> None:
    if child.stdin is not None:
        try:
            child.stdin.write(text)
            child.stdin.close()
        except BrokenPipeError:
            return  # it has ended already, and its stderr says why


def _watch(
    child: subprocess.Popen[str], what: Download, progress: Callable[[int], None], stall_s: float, end: float
) -> bool:
    """Whether the child stands still, or the time is up."""
    last_count, since = on_disk(what), time.monotonic()
    while child.poll() is None:
        now, count = time.monotonic(), on_disk(what)
        if count != last_count:
            last_count, since = count, now
            progress(count)
        if now - since > stall_s or now > end:
            return True
        time.sleep(POLL_S)
    return False


def on_disk(what: Download) -> int:
    """Bytes of the repository in the cache, unfinished files included."""
    folder = Path(what.cache) / "--".join([what.kind + "s", *what.repo_id.split("/")]) / "blobs"
    count = 0
    with contextlib.suppress(FileNotFoundError):  # nothing yet
        for entry in os.scandir(folder):
            with contextlib.suppress(FileNotFoundError):  # it was renamed just now
                count += entry.stat().st_size
    return count


def _no_space(what: Download, space: dict[str, int]) -> JobspecError:
    return fail(
        "stage.space",
        f"`{what.repo_id}` needs {space['needed'] / 2**30:.2f} GiB, {space['free'] / 2**30:.2f} GiB are free",
        why=f"on the file system of `{what.cache}`",
        fix="free space there, or choose another `hf_cache.home`",
    )


def _failed(what: Download, why: str) -> JobspecError:
    if "No module named" in why:
        fix = "pip install huggingface-hub, or copy from a mirror by `--from DIR`"
    elif "401" in why or "gated" in why.lower():
        fix = "accept the model's terms on its page and set HF_TOKEN"
    elif "429" in why or "Too Many" in why:
        fix = "wait some minutes, or set HF_TOKEN for higher limits; the next call continues the download"
    else:
        fix = (
            "copy it from a mirror by `--from DIR` where there is no network; "
            "the next call continues the download"
        )
    return fail("stage.download", f"`{what.repo_id}` could not be downloaded", why=why, fix=fix)
