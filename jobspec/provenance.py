"""Where everything in a run came from: git states, digests, and what has changed since a lock.

Reads checkouts and files; writes nothing but a checkout that `checkout` was asked to make.
A patch holds what was dirty, untracked files included, so that a run can be repeated from commit and
patch alone. It never holds credentials: see `_is_private`.
"""

from __future__ import annotations

import hashlib
import os
import re
import stat
import subprocess
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

from jobspec.finding import fail

GIT_TIMEOUT_S = 60.0
MAX_UNTRACKED_FILE_BYTES = 2 * 1024**2  # a larger untracked file is data, not source
MAX_PATCH_BYTES = 32 * 1024**2
FULL_DIGEST_BYTES = 64 * 1024**2  # larger files get a digest of size, head and tail: an image has tens of GB
EDGE_BYTES = 1024**2

PRIVATE_NAMES = (
    ".env", ".env.*", "*.env", ".netrc", "_netrc", ".pgpass", ".npmrc", ".pypirc", ".git-credentials", ".htpasswd",
    "*.pem", "*.key", "*.p12", "*.pfx", "*.jks", "*.keystore", "*.kdbx", "*.gpg", "*.asc", "*.ppk",
    "id_rsa*", "id_dsa*", "id_ecdsa*", "id_ed25519*", "credentials", "credentials.*", "*credentials*.json",
    "*.token", "token", "token.txt", "*secret*", "kubeconfig", "*.tfstate", "*service-account*.json",
    "*service_account*.json",
)  # fmt: skip
GIT_PLACES = frozenset(
    [
        "GIT_DIR",
        "GIT_WORK_TREE",
        "GIT_INDEX_FILE",
        "GIT_OBJECT_DIRECTORY",
        "GIT_COMMON_DIR",
        "GIT_NAMESPACE",
        "GIT_PREFIX",
    ]
)
PRIVATE_FOLDERS = frozenset({".ssh", ".aws", ".gnupg", ".kube", ".docker", ".azure", ".huggingface"})


@dataclass(frozen=True)
class GitState:
    """A checkout as it is now. `diff` is a binary-safe patch on top of `commit`.

    `left_out` names changed files that are not in the patch: private, too large, or not plain files.
    `url` carries no user name, password or query.
    """

    path: str
    commit: str = ""
    branch: str = ""
    dirty: bool = False
    url: str = ""
    diff: bytes = b""
    left_out: tuple[str, ...] = ()

    @property
    def is_checkout(self) -> bool:
        return bool(self.commit)

    @property
    def diff_sha256(self) -> str:
        return hashlib.sha256(self.diff).hexdigest() if self.diff else ""


def git_state(path: str | Path) -> GitState:
    """The state of the checkout that contains `path`, limited to that folder's repository.

    A folder that is no git checkout, or has no commit yet, gives a state without `commit`.
    Raises: JobspecError when git itself is missing or does not answer within `GIT_TIMEOUT_S`.
    """
    folder = str(path)
    head = _git(folder, "rev-parse", "--verify", "--quiet", "HEAD^{commit}")
    if head.returncode != 0:
        return GitState(folder)
    status = _git(
        folder, "status", "--porcelain=v1", "-z", "--untracked-files=all", "--ignore-submodules=none"
    )
    dirty = bool(status.stdout)
    diff, left_out = _diff(folder, _untracked(status.stdout)) if dirty else (b"", ())
    return GitState(
        path=folder,
        commit=head.stdout.decode().strip(),
        branch=_text(_git(folder, "symbolic-ref", "--quiet", "--short", "HEAD")),
        dirty=dirty,
        url=strip_credentials(_text(_git(folder, "config", "--get", "remote.origin.url"))),
        diff=diff,
        left_out=left_out,
    )


def resolve_ref(path: str | Path, ref: str) -> str:
    """The commit that `ref` names in the checkout at `path`, or an empty string."""
    return _text(_git(str(path), "rev-parse", "--verify", "--quiet", "--end-of-options", f"{ref}^{{commit}}"))


def checkout(url: str, ref: str, folder: Path, patch: Path | None = None) -> GitState:
    """Clone `url` into `folder` at `ref`, with `patch` on top; an existing folder is only read.

    Raises: JobspecError with git's own words when a step fails.
    """
    if folder.exists():
        return git_state(folder)
    folder.parent.mkdir(parents=True, exist_ok=True)
    scratch = folder.with_name(f".{folder.name}.{os.getpid()}")
    steps: list[Sequence[str]] = [
        ("clone", "--no-checkout", "--", url, str(scratch)),
        ("-C", str(scratch), "checkout", "--detach", ref or "HEAD", "--"),
        ("-C", str(scratch), "submodule", "update", "--init", "--recursive"),
    ]
    if patch is not None:
        steps.append(("-C", str(scratch), "apply", "--binary", "--whitespace=nowarn", "--", str(patch)))
    for step in steps:
        done = _run(("git", *step), timeout_s=3600.0)
        if done.returncode != 0:
            raise fail(
                "repo.checkout",
                f"`git {' '.join(step[:3])}` failed for {strip_credentials(url)}",
                why=done.stderr.decode(errors="replace").strip()[-400:],
                fix="check the URL, the ref and your access, or give the checkout's `path`",
            )
    scratch.rename(folder)
    return git_state(folder)


def strip_credentials(url: str) -> str:
    """`url` without user information, query and fragment; scp-like addresses keep their login name."""
    if "://" not in url:
        return url
    parts = urlsplit(url)
    host = parts.netloc.rpartition("@")[2]
    login = "git@" if parts.scheme == "ssh" and parts.username == "git" else ""
    return urlunsplit((parts.scheme, login + host, parts.path, "", ""))


def patch_name(repo: str, taken: Iterable[str] = ()) -> str:
    """The patch file's name for a repository; spec names are file-name safe already."""
    return f"patches/{repo}.diff"


def file_digest(path: str | Path) -> str:
    """`sha256:…` of a file up to 64 MiB; `edges-sha256:…` of size, first and last MiB beyond; empty if absent.

    A squashfs image's superblock holds its build time and sizes, so the edges tell two images apart
    without reading tens of gigabytes at every submission.
    A folder is identified by its `config.json` or `etc/os-release` where it has one.
    """
    target = Path(path)
    if target.is_dir():
        marks = [
            target / "config.json",
            target / "etc" / "os-release",
            target / "rootfs" / "etc" / "os-release",
        ]
        known = [file_digest(mark) for mark in marks if mark.is_file()]
        return "folder-" + known[0] if known else ""
    if not target.is_file():
        return ""
    size = target.stat().st_size
    digest = hashlib.sha256()
    with target.open("rb") as stream:
        if size <= FULL_DIGEST_BYTES:
            digest.update(stream.read())
            return f"sha256:{digest.hexdigest()}"
        digest.update(str(size).encode())
        digest.update(stream.read(EDGE_BYTES))
        stream.seek(-EDGE_BYTES, os.SEEK_END)
        digest.update(stream.read())
    return f"edges-sha256:{digest.hexdigest()}"


def image_digest(image: str) -> str:
    """The digest of a container image, or an empty string where it cannot be known from here."""
    pinned = re.search(r"@(sha256:[0-9a-f]{64})$", image)
    if pinned:
        return pinned.group(1)
    return file_digest(image) if image.startswith("/") else ""


def hub_commit(cache: str | Path, revision: str) -> str:
    """The commit that `revision` names in a Hugging Face cache folder, or an empty string."""
    name = revision or "main"
    if re.fullmatch(r"[0-9a-f]{40}", name):
        return name
    if ".." in Path(name).parts or name.startswith("/"):
        return ""
    ref = Path(cache) / "refs" / name
    return ref.read_text().strip() if ref.is_file() else ""


def _diff(folder: str, untracked: Sequence[str]) -> tuple[bytes, tuple[str, ...]]:
    """The patch against HEAD and the names that were left out of it."""
    root = Path(_text(_git(folder, "rev-parse", "--show-toplevel")))
    changed = (
        _git(str(root), "diff", "--name-only", "-z", "HEAD")
        .stdout.decode(errors="surrogateescape")
        .split("\0")
    )
    hidden = [name for name in changed if name and _is_private(name)]
    exclude = [f":(exclude,top,literal){name}" for name in hidden]
    parts = [
        _git(
            str(root),
            "diff",
            "--binary",
            "--no-color",
            "--no-ext-diff",
            "--no-textconv",
            "HEAD",
            "--",
            ":/",
            *exclude,
        ).stdout
    ]
    left_out = list(hidden)
    for name in untracked:
        if not _belongs_in_patch(root / name, name):
            left_out.append(name)
            continue
        # `--no-index` exits with 1 because the files differ; that is the wanted case.
        new = _git(
            str(root),
            "diff",
            "--binary",
            "--no-color",
            "--no-ext-diff",
            "--no-index",
            "--",
            "/dev/null",
            name,
        )
        if sum(map(len, parts)) + len(new.stdout) > MAX_PATCH_BYTES:
            left_out.append(name)
        else:
            parts.append(new.stdout)
    return b"".join(parts), tuple(sorted(left_out))


def _untracked(status: bytes) -> list[str]:
    """Untracked names, relative to the repository's root, out of `git status --porcelain=v1 -z`."""
    entries = status.decode(errors="surrogateescape").split("\0")
    return [entry[3:] for entry in entries if entry.startswith("?? ")]


def _belongs_in_patch(path: Path, name: str) -> bool:
    if _is_private(name):
        return False
    try:
        mode = path.lstat()
    except OSError:
        return False
    return stat.S_ISREG(mode.st_mode) and mode.st_size <= MAX_UNTRACKED_FILE_BYTES


def _is_private(name: str) -> bool:
    """Whether a file's name says that it holds a credential: such files never enter a patch."""
    parts = Path(name.lower()).parts
    return any(part in PRIVATE_FOLDERS for part in parts[:-1]) or any(
        fnmatch(parts[-1], p) for p in PRIVATE_NAMES
    )


def _git(folder: str, *args: str) -> subprocess.CompletedProcess[bytes]:
    return _run(("git", "-C", folder, "-c", "core.quotePath=false", "-c", "core.fsmonitor=false", *args))


def _run(argv: Sequence[str], timeout_s: float = GIT_TIMEOUT_S) -> subprocess.CompletedProcess[bytes]:
    # GIT_DIR and the like, set by a calling hook, would point every command at another repository.
    env = {k: v for k, v in os.environ.items() if k not in GIT_PLACES}
    env |= {"GIT_OPTIONAL_LOCKS": "0", "GIT_TERMINAL_PROMPT": "0", "LC_ALL": "C"}
    try:
        return subprocess.run(argv, capture_output=True, env=env, timeout=timeout_s, check=False)
    except FileNotFoundError as cause:
        raise fail("repo.no-git", "`git` is not installed", fix="install git") from cause
    except subprocess.TimeoutExpired as cause:
        raise fail(
            "repo.timeout", f"`{' '.join(argv[:4])}` took longer than {timeout_s:.0f} s", fix="try it by hand"
        ) from cause


def _text(done: subprocess.CompletedProcess[bytes]) -> str:
    return done.stdout.decode(errors="replace").strip() if done.returncode == 0 else ""
