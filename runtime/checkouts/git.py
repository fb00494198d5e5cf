"""The state of a source checkout, read by the same functions at submission and inside the run.

A patch holds all uncommitted changes, untracked files included: commit and patch together repeat a run.
Files that look like credentials never enter a patch: see `PRIVATE_NAMES`. `code_state` compares two states.

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
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatch
from functools import cached_property
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

from jobspec.finding import fail
from jobspec.runtime.base.procs import descendants, send

GIT_TIMEOUT_S = 60.0
REMOTE_PROTOCOLS = "https:ssh:git:file"  # of a URL that the user gives: no `ext::` runs a program
MAX_UNTRACKED_FILE_BYTES = 2 * 1024**2  # a larger untracked file is data, not source
LFS_MARK = b"version https://git-lfs.github.com/spec/"
MAX_PATCH_BYTES = 32 * 1024**2
NAMES_PER_CALL = 500  # file names on one command line
# A submodule has a configuration of its own: git must not look into one on our behalf, see `_modules`.
NO_PROGRAMS = ("--no-ext-diff", "--no-textconv", "--submodule=short", "--ignore-submodules=dirty")
DIFF = ("diff", *NO_PROGRAMS, "--binary", "--full-index", "--no-color", "--no-renames")
SETTINGS = (
    "core.hooksPath=/dev/null",
    "core.fsmonitor=false",
    "core.pager=cat",
    "log.showSignature=false",  # it would run `gpg.program`
    "core.quotePath=false",
    "diff.algorithm=default",  # a patch of one user is compared with that of another
    "diff.context=3",
    "diff.indentHeuristic=true",
    "diff.interHunkContext=0",
    "diff.noprefix=false",
    "diff.mnemonicPrefix=false",
    "diff.suppressBlankEmpty=false",
)
# These pass files through filters.
CONVERTING = frozenset(("status", "diff", "add", "checkout", "submodule", "apply"))

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
    `url` carries no user name, password or query. `inside` is where in its repository `path` lies.
    """

    path: str
    commit: str = ""
    branch: str = ""
    dirty: bool = False
    url: str = ""
    diff: bytes = b""
    left_out: tuple[str, ...] = ()
    inside: str = ""

    @property
    def is_checkout(self) -> bool:
        return bool(self.commit)

    @cached_property
    def diff_sha256(self) -> str:
        return hashlib.sha256(self.diff).hexdigest() if self.diff else ""


def git_state(path: str | Path, env: Mapping[str, str] | None = None) -> GitState:
    """The state of the checkout that contains `path`, limited to that folder's repository.

    A folder that is no git checkout, or has no commit yet, gives a state without `commit`. `env` is added to
    git's environment.
    Raises: JobspecError when git itself is missing or does not answer within `GIT_TIMEOUT_S`.
    """
    folder = str(path)
    head = git_in(folder, "rev-parse", "--verify", "--quiet", "HEAD^{commit}", env=env)
    if head.returncode != 0:
        return GitState(folder)
    root = root_of(folder, env) or folder
    entries, modules = _status(root, env), _modules(root, env)
    dirty = bool(entries or modules)
    inside = os.path.relpath(os.path.realpath(folder), os.path.realpath(root))
    diff, left_out = _diff(Path(root), _untracked(entries), modules, env or {}) if dirty else (b"", ())
    return GitState(
        path=folder,
        commit=head.stdout.decode().strip(),
        branch=branch_of(folder, env),
        dirty=dirty,
        url=strip_credentials(_text(git_in(folder, "config", "--get", "remote.origin.url", env=env))),
        diff=diff,
        left_out=left_out,
        inside="" if inside == "." else inside,
    )


def last_changes(path: str | Path, below: str) -> Mapping[str, str]:
    """The day of the last commit of each file below a folder of the checkout, as YYYY-MM-DD.

    Empty without a history: in a shallow clone every file seems as young as its first commit.
    """
    folder = str(path)
    if _text(git_in(folder, "rev-parse", "--is-shallow-repository")) != "false":
        return {}
    days: dict[str, str] = {}
    day = ""
    for line in _text(
        git_in(folder, "log", "--format=%x00%cs", "--name-only", "--relative", "--", below)
    ).splitlines():
        if line.startswith("\0"):
            day = line[1:]
        elif line:
            days.setdefault(line, day)
    return days


def branch_of(folder: str, env: Mapping[str, str] | None = None) -> str:
    """The branch that is checked out; empty at a bare commit."""
    return _text(git_in(folder, "symbolic-ref", "--quiet", "--short", "HEAD", env=env))


def resolve_ref(path: str | Path, ref: str) -> str:
    """The commit that `ref` names in the checkout at `path`, or an empty string."""
    return _text(
        git_in(str(path), "rev-parse", "--verify", "--quiet", "--end-of-options", f"{ref}^{{commit}}")
    )


def strip_credentials(url: str) -> str:
    """`url` without user information, query and fragment; scp-like addresses keep their login name."""
    if "://" not in url:
        return url
    try:
        parts = urlsplit(url)
    except ValueError:  # nobody can tell what in it is a login
        return ""
    host = parts.netloc.rpartition("@")[2]
    login = "git@" if parts.scheme == "ssh" and parts.username == "git" else ""
    return urlunsplit((parts.scheme, login + host, parts.path, "", ""))


def _status(folder: str, env: Mapping[str, str] | None) -> list[str]:
    words = ("status", "--porcelain=v1", "-z", "--untracked-files=all", "--ignore-submodules=dirty")
    return [entry for entry in _names(git_in(folder, *words, env=env).stdout) if not _is_bytecode(entry)]


def submodules(root: str, env: Mapping[str, str] | None = None) -> list[str]:
    """The submodules of the checkout at `root` that are checked out, relative to it."""
    entries = _names(git_in(root, "ls-files", "--stage", "-z", env=env).stdout)
    names = [entry.partition("\t")[2] for entry in entries if entry.startswith("160000 ")]
    return [name for name in names if os.path.exists(f"{root}/{name}/.git")]


def all_submodules(root: str) -> Iterator[str]:
    """`submodules` with those inside of them, at any depth."""
    for name in submodules(root):
        yield name
        yield from (f"{name}/{inner}" for inner in all_submodules(f"{root}/{name}"))


def lfs_pointers(root: str) -> list[str]:
    """The files of a checkout that are pointers of Git LFS: the filter that fetches their content is off."""
    names = _names(git_in(root, "ls-files", "-z", "--", ":(top,attr:filter=lfs)").stdout)
    return [name for name in names if _begins_with(Path(root_of(root)) / name, LFS_MARK)] if names else []


def _begins_with(path: Path, mark: bytes) -> bool:
    try:
        if not stat.S_ISREG(path.lstat().st_mode):
            return False
        with path.open("rb") as stream:
            return stream.read(len(mark)) == mark
    except OSError:
        return False


def _modules(root: str, env: Mapping[str, str] | None) -> dict[str, bool]:
    """The submodules with uncommitted changes, at any depth, and whether tracked files are among these."""
    found: dict[str, bool] = {}
    for name in submodules(root, env):
        entries, below = _status(f"{root}/{name}", env), _modules(f"{root}/{name}", env)
        if entries or below:
            found[name] = any(below.values()) or any(not entry.startswith("?? ") for entry in entries)
    return found


def _diff(
    root: Path, untracked: Sequence[str], modules: Mapping[str, bool], given: Mapping[str, str]
) -> tuple[bytes, tuple[str, ...]]:
    """The patch against HEAD, untracked files as new ones, and the names of the files left out of it.

    The untracked files enter a copy of the index (`add --intent-to-add` writes no object), so that one
    `git diff` covers all. The checkout's own index stays as it is.
    """
    changed = _names(git_in(str(root), "diff", *NO_PROGRAMS, "--name-only", "-z", "HEAD", env=given).stdout)
    added = [name for name in untracked if belongs_in_patch(root / name, name)]
    left_out = {name for name in changed if is_private(name)} | (set(untracked) - set(added))
    left_out |= {name for name, tracked in modules.items() if tracked and name not in changed}
    with tempfile.TemporaryDirectory(prefix="jobspec-") as scratch:
        index = _text(git_in(str(root), "rev-parse", "--git-path", "index", env=given))
        env = {**given, "GIT_INDEX_FILE": f"{scratch}/index"}
        if (root / index).is_file():
            shutil.copy2(root / index, env["GIT_INDEX_FILE"])  # its time tells git which files it must read
        for start in range(0, len(added), NAMES_PER_CALL):
            git_in(
                str(root),
                "add",
                "--intent-to-add",
                "--force",
                "--",
                *added[start : start + NAMES_PER_CALL],
                env=env,
            )
        exclude = [f":(exclude,top,literal){name}" for name in sorted(left_out) if not name.endswith("/")]
        patch = git_in(str(root), *DIFF, "HEAD", "--", ":/", *exclude, env=env).stdout
    if len(patch) > MAX_PATCH_BYTES:
        return b"", tuple(sorted({*changed, *untracked}))
    return patch, tuple(sorted(left_out))


def root_of(folder: str, env: Mapping[str, str] | None = None) -> str:
    """The top folder of the checkout that contains `folder`."""
    return _text(git_in(folder, "rev-parse", "--show-toplevel", env=env))


def _names(output: bytes) -> list[str]:
    return [name for name in output.decode(errors="surrogateescape").split("\0") if name]


def _untracked(entries: Sequence[str]) -> list[str]:
    """Untracked names, relative to the repository's root, out of `git status --porcelain=v1 -z`."""
    return [entry[3:] for entry in entries if entry.startswith("?? ")]


def _is_bytecode(entry: str) -> bool:
    """Whether Python wrote this untracked file by itself, in a checkout that does not ignore such files."""
    return entry.startswith("?? ") and (entry.endswith((".pyc", ".pyo")) or "__pycache__/" in entry)


def belongs_in_patch(path: Path, name: str) -> bool:
    """Whether an untracked file is source by its size and name, and so part of the patch."""
    if is_private(name):
        return False
    try:
        mode = path.lstat()
    except OSError:
        return False
    return stat.S_ISLNK(mode.st_mode) or (
        stat.S_ISREG(mode.st_mode) and mode.st_size <= MAX_UNTRACKED_FILE_BYTES
    )


def is_private(name: str) -> bool:
    """Whether a file's name says that it holds a credential: such files never enter a patch."""
    parts = Path(name.lower()).parts
    return any(part in PRIVATE_FOLDERS for part in parts[:-1]) or any(
        fnmatch(parts[-1], p) for p in PRIVATE_NAMES
    )


def git_in(
    folder: str, *args: str, env: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[bytes]:
    """A call that only reads a checkout: a partial clone fetches nothing for it. Raises: as `git_state`."""
    return run_git(folder, args, {**(env or {}), "GIT_ALLOW_PROTOCOL": ""})


def _filters_off(folder: str, env: Mapping[str, str]) -> list[str]:
    """Settings that turn off every filter which `folder` has, those of the user's own configuration too."""
    keys = ("config", "--includes", "--name-only", "-z", "--get-regexp", r"^filter\..*\.")
    names = {
        key[len("filter.") :].rpartition(".")[0] for key in _names(git_in(folder, *keys, env=env).stdout)
    }
    if any("=" in name for name in names):  # git's `-c` takes the text before the first `=` for the key
        what = f"a filter in the git configuration of `{folder}` has a `=` in its name"
        raise fail("repo.filter", what, why="it cannot be turned off", fix="rename the filter")
    values = {"clean": "", "smudge": "", "process": "", "required": "false"}
    return [f"filter.{name}.{key}={value}" for name in sorted(names) for key, value in values.items()]


def run_git(
    folder: str, args: Sequence[str], env: Mapping[str, str], timeout_s: float = GIT_TIMEOUT_S
) -> subprocess.CompletedProcess[bytes]:
    """Run git in `folder` to its end; `env` is added. Raises: JobspecError when it is missing or too slow."""
    filters = _filters_off(folder, env) if CONVERTING.intersection(args) else []
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
