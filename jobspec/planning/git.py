"""The state of a source checkout, and how to make one. The only module that runs git.

A patch holds all uncommitted changes, untracked files included: commit and patch together repeat a run.
Files that look like credentials never enter a patch: see `PRIVATE_NAMES`.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import stat
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatch
from functools import cached_property
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

from jobspec.finding import fail

GIT_TIMEOUT_S = 60.0
CLONE_TIMEOUT_S = 3600.0
MAX_UNTRACKED_FILE_BYTES = 2 * 1024**2  # a larger untracked file is data, not source
MAX_PATCH_BYTES = 32 * 1024**2
NAMES_PER_CALL = 500  # file names on one command line
DIFF = (
    "diff",
    "--binary",
    "--full-index",
    "--no-color",
    "--no-ext-diff",
    "--no-textconv",
    "--no-renames",
)

PRIVATE_NAMES = (
    ".env", ".env.*", "*.env", ".netrc", "_netrc", ".pgpass", ".npmrc", ".pypirc", ".git-credentials",
    ".htpasswd", "*.pem", "*.key", "*.p12", "*.pfx", "*.jks", "*.keystore", "*.kdbx", "*.gpg", "*.asc",
    "*.ppk", "id_rsa*", "id_dsa*", "id_ecdsa*", "id_ed25519*", "credentials", "credentials.*",
    "*credentials*.json", "*service[-_]account*.json", "*.token", "token", "token.txt", "secret", "secrets",
    "*secret*.json", "*secret*.yaml", "*secret*.yml", "*secret*.toml", "*secret*.ini", "*secret*.txt",
    "kubeconfig", "*.tfstate",
)  # fmt: skip
# Variables, set by a calling hook, that point git at another repository.
GIT_PLACES = frozenset(
    f"GIT_{name}"
    for name in (
        "DIR",
        "WORK_TREE",
        "INDEX_FILE",
        "OBJECT_DIRECTORY",
        "COMMON_DIR",
        "NAMESPACE",
        "PREFIX",
    )
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

    @cached_property
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


def last_changes(path: str | Path, below: str) -> Mapping[str, str]:
    """The day of the last commit of each file below a folder of the checkout, as YYYY-MM-DD.

    Empty without a history: in a shallow clone every file seems as young as its first commit.
    """
    folder = str(path)
    if _text(_git(folder, "rev-parse", "--is-shallow-repository")) != "false":
        return {}
    days: dict[str, str] = {}
    day = ""
    for line in _text(
        _git(folder, "log", "--format=%x00%cs", "--name-only", "--relative", "--", below)
    ).splitlines():
        if line.startswith("\0"):
            day = line[1:]
        elif line:
            days.setdefault(line, day)
    return days


def resolve_ref(path: str | Path, ref: str) -> str:
    """The commit that `ref` names in the checkout at `path`, or an empty string."""
    return _text(_git(str(path), "rev-parse", "--verify", "--quiet", "--end-of-options", f"{ref}^{{commit}}"))


def checkout(url: str, ref: str, folder: Path, patch: Path | None = None) -> GitState:
    """The state of a clone of `url` in `folder`, at `ref` and with `patch` on top.

    An existing folder is only read.

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
    try:
        for step in steps:
            _clone_step(step, url)
        scratch.rename(folder)
    except OSError:
        if not folder.exists():  # else another command has cloned it meanwhile
            raise
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    return git_state(folder)


def _clone_step(step: Sequence[str], url: str) -> None:
    done = _run(("git", *step), timeout_s=CLONE_TIMEOUT_S)
    if done.returncode != 0:
        raise fail(
            "repo.checkout",
            f"`git {' '.join(step[:3])}` failed for {strip_credentials(url)}",
            why=done.stderr.decode(errors="replace").strip()[-400:],
            fix="check the URL, the ref and your access, or give the checkout's `path`",
        )


def strip_credentials(url: str) -> str:
    """`url` without user information, query and fragment; scp-like addresses keep their login name."""
    if "://" not in url:
        return url
    parts = urlsplit(url)
    host = parts.netloc.rpartition("@")[2]
    login = "git@" if parts.scheme == "ssh" and parts.username == "git" else ""
    return urlunsplit((parts.scheme, login + host, parts.path, "", ""))


def _diff(folder: str, untracked: Sequence[str]) -> tuple[bytes, tuple[str, ...]]:
    """The patch against HEAD, untracked files as new ones, and the names of the files left out of it.

    The untracked files enter a copy of the index (`add --intent-to-add` writes no object), so that one
    `git diff` covers all. The checkout's own index stays as it is.
    """
    root = Path(_text(_git(folder, "rev-parse", "--show-toplevel")))
    changed = _names(_git(str(root), "diff", "--name-only", "-z", "--ignore-submodules=dirty", "HEAD").stdout)
    dirty_modules = _names(
        _git(str(root), "diff", "--name-only", "-z", "--ignore-submodules=untracked", "HEAD").stdout
    )
    added = [name for name in untracked if _belongs_in_patch(root / name, name)]
    left_out = {name for name in changed if _is_private(name)} | (set(untracked) - set(added))
    left_out |= set(dirty_modules) - set(changed)
    with tempfile.TemporaryDirectory(prefix="jobspec-") as scratch:
        index = _text(_git(str(root), "rev-parse", "--git-path", "index"))
        env = {"GIT_INDEX_FILE": f"{scratch}/index"}
        if (root / index).is_file():
            shutil.copyfile(root / index, env["GIT_INDEX_FILE"])
        for start in range(0, len(added), NAMES_PER_CALL):
            _git(
                str(root),
                "add",
                "--intent-to-add",
                "--force",
                "--",
                *added[start : start + NAMES_PER_CALL],
                env=env,
            )
        exclude = [f":(exclude,top,literal){name}" for name in sorted(left_out) if not name.endswith("/")]
        patch = _git(str(root), *DIFF, "HEAD", "--", ":/", *exclude, env=env).stdout
    if len(patch) > MAX_PATCH_BYTES:
        return b"", tuple(sorted({*changed, *untracked}))
    return patch, tuple(sorted(left_out))


def _names(output: bytes) -> list[str]:
    return [name for name in output.decode(errors="surrogateescape").split("\0") if name]


def _untracked(status: bytes) -> list[str]:
    """Untracked names, relative to the repository's root, out of `git status --porcelain=v1 -z`."""
    return [entry[3:] for entry in _names(status) if entry.startswith("?? ")]


def _belongs_in_patch(path: Path, name: str) -> bool:
    if _is_private(name):
        return False
    try:
        mode = path.lstat()
    except OSError:
        return False
    return stat.S_ISLNK(mode.st_mode) or (
        stat.S_ISREG(mode.st_mode) and mode.st_size <= MAX_UNTRACKED_FILE_BYTES
    )


def _is_private(name: str) -> bool:
    """Whether a file's name says that it holds a credential: such files never enter a patch."""
    parts = Path(name.lower()).parts
    return any(part in PRIVATE_FOLDERS for part in parts[:-1]) or any(
        fnmatch(parts[-1], p) for p in PRIVATE_NAMES
    )


def _git(folder: str, *args: str, env: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[bytes]:
    argv = (
        "git",
        "-C",
        folder,
        "-c",
        "core.quotePath=false",
        "-c",
        "core.fsmonitor=false",
        "-c",
        "diff.noprefix=false",
    )
    return _run((*argv, *args), env=env)


def _run(
    argv: Sequence[str], timeout_s: float = GIT_TIMEOUT_S, env: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[bytes]:
    inherited = {k: v for k, v in os.environ.items() if k not in GIT_PLACES}
    for_git = {"GIT_OPTIONAL_LOCKS": "0", "GIT_TERMINAL_PROMPT": "0", "LC_ALL": "C"}
    try:
        return subprocess.run(
            argv,
            capture_output=True,
            env={**inherited, **for_git, **(env or {})},
            timeout=timeout_s,
            check=False,
        )
    except FileNotFoundError as cause:
        raise fail("repo.no-git", "`git` is not installed", fix="install git") from cause
    except subprocess.TimeoutExpired as cause:
        command = " ".join(argv[:4])
        what = f"`{command}` took longer than {timeout_s:.0f} s"
        raise fail("repo.timeout", what, fix="run the command by hand") from cause


def _text(done: subprocess.CompletedProcess[bytes]) -> str:
    return done.stdout.decode(errors="replace").strip() if done.returncode == 0 else ""
