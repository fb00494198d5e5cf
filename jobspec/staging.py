"""Models and data sets on shared storage, before any job: what is there, what is missing, how to get it.

The check of a folder is the runtime's own (`jobspec.runtime.hfcache`), so that what is called complete
here is not refused on a node later.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from jobspec.finding import Finding, JobspecError, error, fail
from jobspec.plan import Plan, StagePlan
from jobspec.runtime import hfcache

# A 1 TB model over a 1 Gbit/s line takes about 2.5 hours.
DOWNLOAD_TIMEOUT_S = 24 * 3600.0
# Run as a child: importing huggingface_hub costs a second, and its retries must not outlive Ctrl-C.
_DOWNLOAD = """
import sys
from huggingface_hub import snapshot_download
repo, kind, revision, cache = sys.argv[1:5]
print(snapshot_download(repo, repo_type=kind, revision=revision or None, cache_dir=cache))
"""


@dataclass(frozen=True)
class Item:
    """One model or data set, and the state of its place on shared storage."""

    plan: StagePlan
    present: bool
    bytes: int = 0
    files: int = 0
    findings: tuple[Finding, ...] = ()

    @property
    def name(self) -> str:
        return self.plan.name

    @property
    def kind(self) -> str:
        return self.plan.kind

    @property
    def path(self) -> str:
        return self.plan.source

    @property
    def repo_id(self) -> str:
        return self.plan.repo_id

    @property
    def revision(self) -> str:
        return self.plan.revision

    @property
    def source_name(self) -> str:
        return self.plan.repo_id or self.plan.source


def inspect(plan: Plan) -> tuple[Item, ...]:
    """The state of everything that the plan stages."""
    return tuple(_inspect(item) for item in plan.stage)


def _inspect(item: StagePlan) -> Item:
    """Complete, or why not. Looks at names, sizes and headers; reads no file further."""
    try:
        if item.layout == "hf":
            listing = hfcache.list_hf(item.source, item.revision, item.allow, item.ignore)
        else:
            listing = hfcache.list_plain(item.source, item.allow, item.ignore)
        findings = hfcache.check_listing(listing, item.kind, item.require, item.allow, item.ignore)
    except JobspecError as problem:
        return Item(item, False, findings=tuple(problem.findings))
    except OSError as problem:
        why = f"{problem.strerror}: {problem.filename}"
        return Item(item, False, findings=(error("stage.missing", f"`{item.source}` is not there", why),))
    size = sum(entry.size for entry in listing.files)
    complete = not any(finding.is_error for finding in findings)
    return Item(item, complete, size, len(listing.files), tuple(findings))


def bring(item: Item, mirror: Path | None) -> None:
    """Put what is missing in its place, from a mirror folder or by downloading.

    Raises: JobspecError when it has no id, the mirror lacks it, or the download fails.
    """
    if not item.repo_id:
        raise fail(
            "stage.by-path",
            f"`{item.path}` is missing and was given by path",
            why="only what has a Hugging Face id can be fetched",
            fix="copy it there, or name the model by `id`",
        )
    if mirror is not None:
        _copy(item, mirror)
    else:
        _download(item)


def _copy(item: Item, mirror: Path) -> None:
    """Copy a cache folder from a mirror: beside its place first, then one rename."""
    target = Path(item.path)
    places = [mirror / target.name, mirror / "hub" / target.name]
    source = next((place for place in places if place.is_dir()), None)
    if source is None:
        raise fail(
            "stage.mirror",
            f"the mirror `{mirror}` has no `{item.repo_id}`",
            why="looked for " + " and ".join(f"`{place}`" for place in places),
            fix="name a Hugging Face cache folder that holds it",
        )
    partial = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copytree(source, partial, symlinks=True)
        if target.exists():
            target.rename(partial.with_name(f".{target.name}.replaced-{os.getpid()}"))
        partial.rename(target)
    except OSError as problem:
        raise fail(
            "stage.copy",
            f"`{item.repo_id}` could not be copied to `{target}`",
            why=str(problem),
            fix="check space and permissions there",
        ) from problem
    finally:
        shutil.rmtree(partial, ignore_errors=True)
        shutil.rmtree(partial.with_name(f".{target.name}.replaced-{os.getpid()}"), ignore_errors=True)


def _download(item: Item) -> None:
    cache = str(Path(item.path).parent)
    argv = [sys.executable, "-c", _DOWNLOAD, item.repo_id, item.kind, item.revision, cache]
    # The job's offline switches say nothing about this machine.
    env = {k: v for k, v in os.environ.items() if k not in ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE")}
    try:
        done = subprocess.run(
            argv, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
            timeout=DOWNLOAD_TIMEOUT_S, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired as problem:
        raise _failed(item, f"it took longer than {DOWNLOAD_TIMEOUT_S / 3600:.0f} h") from problem
    if done.returncode != 0:
        lines = [line for line in done.stderr.splitlines() if line.strip()]
        raise _failed(item, lines[-1] if lines else f"exit code {done.returncode}")


def _failed(item: Item, why: str) -> JobspecError:
    if "No module named" in why:
        fix = "pip install huggingface-hub, or copy from a mirror by --from DIR"
    elif "401" in why or "gated" in why.lower():
        fix = "accept the model's terms on its page and set HF_TOKEN"
    else:
        fix = "without a network copy it from a mirror by --from DIR; a download goes on where it ended"
    return fail("stage.download", f"`{item.repo_id}` could not be downloaded", why=why, fix=fix)
