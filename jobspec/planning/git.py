"""The state of a source checkout, and how to make one. The only module that runs git.

A patch holds all uncommitted changes, untracked files included: commit and patch together repeat a run.
Files that look like credentials never enter a patch: see `PRIVATE_NAMES`.

Whoever wrote a checkout may have written its `.git/config`, which can name programs. So no call runs hooks,
filters (Git LFS among them), a file system monitor, an external diff, a text converter or a pager.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import signal
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
from jobspec.runtime.base.procs import descendants, send

GIT_TIMEOUT_S = 60.0
CLONE_TIMEOUT_S = 3600.0
MAX_UNTRACKED_FILE_BYTES = 2 * 1024**2  # a larger untracked file is data, not source
MAX_PATCH_BYTES = 32 * 1024**2
NAMES_PER_CALL = 500  # file names on one command line
# A submodule has a configuration of its own: git must not look into one on our behalf, see `_modules`.
NO_PROGRAMS = ("--no-ext-diff", "--no-textconv", "--submodule=short", "--ignore-submodules=dirty")
DIFF = ("diff", *NO_PROGRAMS, "--binary", "--full-index", "--no-color", "--no-renames")
SETTINGS = (
    "core.hooksPath=/dev/null",
    "core.fsmonitor=false",
    "core.pager=cat",
    "core.quotePath=false",
    "diff.noprefix=false",
)
CONVERTING = ("status", "diff", "add", "checkout", "submodule")  # these pass files through filters
REMOTE_PROTOCOLS = "https:ssh:git:file"
SUBMODULE_PROTOCOLS = "https:ssh:git"  # a stranger's .gitmodules must name no folder of this machine

PRIVATE_NAMES = (
    ".env", ".env.*", "*.env", ".netrc", "_netrc", ".pgpass", ".npmrc", ".pypirc", ".git-credentials",
    ".htpasswd", "*.pem", "*.key", "*.p12", "*.pfx", "*.jks", "*.keystore", "*.kdbx", "*.gpg", "*.asc",
    "*.ppk", "id_rsa*", "id_dsa*", "id_ecdsa*", "id_ed25519*", "credentials", "credentials.*",
    "*credentials*.json", "*service[-_]account*.json", "*.token", "token", "token.txt", "secret", "secrets",
    "*secret*.json", "*secret*.yaml", "*secret*.yml", "*secret*.toml", "*secret*.ini", "*secret*.txt",
    "kubeconfig", "*.tfstate",
)  # fmt: skip
# Variables that point git at another repository, as a calling hook sets them, or name a program.
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
        "EXTERNAL_DIFF",
        "PAGER",
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
    root = Path(_text(_git(folder, "rev-parse", "--show-toplevel")) or folder)
    status, modules = _status(folder), _modules(root)
    dirty = bool(status or modules)
    diff, left_out = _diff(root, _untracked(status), modules) if dirty else (b"", ())
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


def remote_commit(url: str, ref: str) -> str:
    """The commit that the tag or branch `ref` has at `url` now, or an empty string without one.

    Raises: JobspecError with git's own words when the remote does not answer.
    """
    done = _remote(url, "/", "ls-remote", "--", url, ref, f"{ref}^{{}}", timeout_s=GIT_TIMEOUT_S)
    rows = (line.split("\t", 1) for line in done.stdout.decode(errors="replace").splitlines() if "\t" in line)
    commits = {name: commit for commit, name in rows}
    names = (f"refs/tags/{ref}^{{}}", f"refs/tags/{ref}", f"refs/heads/{ref}", ref)
    return next((commits[name] for name in names if name in commits), "")


def clone(url: str, ref: str, folder: Path) -> str:
    """Clone `url` to `folder`, which does not exist yet, with `ref` checked out; returns its commit.

    Raises: JobspecError with git's own words when a step fails.
    """
    # At `/` no configuration of a checkout around the current folder counts.
    _remote(url, "/", "clone", "--no-checkout", "--origin=origin", "--", url, str(folder.absolute()))
    commit = resolve_ref(folder, ref)
    _remote(url, str(folder), "checkout", "--detach", commit or f"refs/{ref}", "--")
    modules = ("submodule", "update", "--init", "--recursive")
    _remote(url, str(folder), *modules, protocols=SUBMODULE_PROTOCOLS)
    return commit


def _remote(
    url: str,
    folder: str,
    *args: str,
    timeout_s: float = CLONE_TIMEOUT_S,
    protocols: str = REMOTE_PROTOCOLS,
) -> subprocess.CompletedProcess[bytes]:
    """A call that may ask `url`. Raises: JobspecError with git's own words when it fails."""
    done = _run(folder, args, {"GIT_ALLOW_PROTOCOL": protocols}, timeout_s)
    if done.returncode == 0:
        return done
    shown = strip_credentials(url)
    raise fail(
        "repo.checkout",
        f"`git {args[0]}` failed for {shown}",
        why=done.stderr.decode(errors="replace").replace(url, shown).strip()[-400:],
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


def _status(folder: str | Path) -> bytes:
    args = ("--porcelain=v1", "-z", "--untracked-files=all", "--ignore-submodules=dirty")
    return _git(str(folder), "status", *args).stdout


def _modules(root: Path) -> dict[str, bool]:
    """The submodules with uncommitted changes, at any depth, and whether tracked files are among these."""
    entries = _names(_git(str(root), "ls-files", "--stage", "-z").stdout)
    found: dict[str, bool] = {}
    for name in (entry.partition("\t")[2] for entry in entries if entry.startswith("160000 ")):
        if not (root / name / ".git").exists():  # not fetched: git would answer for the checkout around it
            continue
        status, below = _names(_status(root / name)), _modules(root / name)
        if status or below:
            found[name] = any(below.values()) or any(not entry.startswith("?? ") for entry in status)
    return found


def _diff(root: Path, untracked: Sequence[str], modules: Mapping[str, bool]) -> tuple[bytes, tuple[str, ...]]:
    """The patch against HEAD, untracked files as new ones, and the names of the files left out of it.

    The untracked files enter a copy of the index (`add --intent-to-add` writes no object), so that one
    `git diff` covers all. The checkout's own index stays as it is.
    """
    changed = _names(_git(str(root), "diff", *NO_PROGRAMS, "--name-only", "-z", "HEAD").stdout)
    added = [name for name in untracked if _belongs_in_patch(root / name, name)]
    left_out = {name for name in changed if _is_private(name)} | (set(untracked) - set(added))
    left_out |= {name for name, tracked in modules.items() if tracked and name not in changed}
    with tempfile.TemporaryDirectory(prefix="jobspec-") as scratch:
        index = _text(_git(str(root), "rev-parse", "--git-path", "index"))
        env = {"GIT_INDEX_FILE": f"{scratch}/index"}
        if (root / index).is_file():
            shutil.copy2(root / index, env["GIT_INDEX_FILE"])  # its time tells git which files it must read
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
    """A call that only reads a checkout: a partial clone fetches nothing for it."""
    return _run(folder, args, {"GIT_ALLOW_PROTOCOL": "", **(env or {})})


def _filters_off(folder: str) -> list[str]:
    """Settings that turn off every filter which `folder` has, those of the user's own configuration too."""
    keys = ("config", "--includes", "--name-only", "-z", "--get-regexp", r"^filter\..*\.")
    names = {key[len("filter.") :].rpartition(".")[0] for key in _names(_git(folder, *keys).stdout)}
    if any("=" in name for name in names):  # git's `-c` takes the text before the first `=` for the key
        what = f"a filter in the git configuration of `{folder}` has a `=` in its name"
        raise fail("repo.filter", what, why="it cannot be turned off", fix="rename the filter")
    values = {"clean": "", "smudge": "", "process": "", "required": "false"}
    return [f"filter.{name}.{key}={value}" for name in sorted(names) for key, value in values.items()]


def _run(
    folder: str, args: Sequence[str], env: Mapping[str, str], timeout_s: float = GIT_TIMEOUT_S
) -> subprocess.CompletedProcess[bytes]:
    filters = _filters_off(folder) if args[0] in CONVERTING else []
    settings = [word for setting in (*SETTINGS, *filters) for word in ("-c", setting)]
    argv = ["git", "--no-pager", "-C", folder, *settings, *args]
    inherited = {k: v for k, v in os.environ.items() if k not in GIT_PLACES}
    for_git = {"GIT_OPTIONAL_LOCKS": "0", "GIT_TERMINAL_PROMPT": "0", "LC_ALL": "C"}
    pipe = subprocess.PIPE
    try:
        with subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=pipe,
            stderr=pipe,
            env={**inherited, **for_git, **env},
        ) as process:
            try:
                out, err = process.communicate(timeout=timeout_s)
            except BaseException:  # Ctrl-C among them
                _kill(process)
                raise
    except FileNotFoundError as cause:
        raise fail("repo.no-git", "`git` is not installed", fix="install git") from cause
    except subprocess.TimeoutExpired as cause:
        what = f"`git {args[0]}` for `{folder}` took longer than {timeout_s:.0f} s"
        raise fail("repo.timeout", what, fix="run the command by hand") from cause
    return subprocess.CompletedProcess(argv, process.returncode, out, err)


def _kill(process: subprocess.Popen[bytes]) -> None:
    """Kill git and what it started: a transport of its own would keep our pipes open."""
    below = descendants(process.pid)
    process.kill()
    send(below, signal.SIGKILL)


def _text(done: subprocess.CompletedProcess[bytes]) -> str:
    return done.stdout.decode(errors="replace").strip() if done.returncode == 0 else ""
