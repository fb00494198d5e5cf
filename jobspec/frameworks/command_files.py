"""The relative files that a command names.

A command runs in its run folder, where nothing of the user's lies. A script beside the spec, or in a checkout
of `repos`, is therefore passed on by its absolute path; what cannot be passed on is refused at validation.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path, PurePosixPath

from jobspec.disk import is_file, is_folder
from jobspec.finding import Finding, error, warning
from jobspec.frameworks.base import Context
from jobspec.spec.job import JobSpec
from jobspec.units import is_below
from jobspec.words import did_you_mean

SCRIPTS = (".py", ".sh", ".bash")
_IN_SHELL = re.compile(r"(?<![\w./$~{}=-])(?:\./)?[\w-][\w.-]*(?:/[\w.-]+)*\.(?:py|sh|bash)\b")
_PATH = "train.command"
_REPO_FIX = "name its folder in `repos`, such as `repos: [{name: code, path: .}]`"


def found(word: str, spec: JobSpec, base: Path, repo_paths: Mapping[str, str]) -> Path | None:
    """The file that a relative word names: beside the spec, else in a checkout. None for any other word.

    In a checkout that is frozen it is the copy's.
    """
    if not word or word.startswith(("-", "/", "~")) or len(word) > 1024 or "\n" in word:
        return None
    beside = os.path.normpath(base / word)
    if is_file(beside):
        for repo in spec.repos:
            root = os.path.normpath(base / os.path.expanduser(repo.path or "\0"))  # noqa: PTH111
            copied = Path(repo_paths.get(repo.name, root), os.path.relpath(beside, root))
            if is_below(beside, root) and is_file(copied):
                return copied
        return Path(beside)
    return next((path for root in repo_paths.values() if is_file(path := Path(root, word))), None)


def settled(spec: JobSpec, base: Path, repo_paths: Mapping[str, str]) -> tuple[str, ...]:
    """`train.command` with its scripts as absolute paths."""
    return settled_words(spec.train.command or (), spec.train.shell, spec, base, repo_paths)


def settled_words(
    words: Sequence[str], shell: bool, spec: JobSpec, base: Path, repo_paths: Mapping[str, str]
) -> tuple[str, ...]:
    """A command with its scripts as absolute paths; a bash text, and a container's own folder, stay."""
    command = tuple(words)
    if shell or spec.container.workdir or spec.launch.mode == "upstream":
        return command
    return tuple(
        str(found(word, spec, base, repo_paths) or word) if _is_script(at, word) else word
        for at, word in enumerate(command)
    )


def check_files(context: Context) -> Iterator[Finding]:
    """Findings about the relative files of `train.command`."""
    train = context.spec.train
    yield from check_words(context, train.command or (), train.shell, _PATH)


def check_words(context: Context, command: Sequence[str], shell: bool, path: str) -> Iterator[Finding]:
    """Findings about the relative files of the command at `path` of the spec."""
    for finding in _about(context, command, shell):
        yield replace(finding, path=path)


def _about(context: Context, command: Sequence[str], shell: bool) -> Iterator[Finding]:
    spec = context.spec
    if spec.container.workdir or spec.launch.mode == "upstream":
        return
    if shell:
        yield from _in_shell(context, command)
        return
    for at, word in enumerate(command):
        path = found(word, spec, context.base, context.repo_paths)
        if path is None:
            yield from _missing(context, command, at)
        elif _is_script(at, word):
            yield from _reachable(context, word, path)
        else:
            yield _not_passed_on(word, path)


def _is_script(at: int, word: str) -> bool:
    return word.endswith(SCRIPTS) or (at == 0 and "/" in word)


def _reachable(context: Context, word: str, path: Path) -> Iterator[Finding]:
    """Findings about a script that lies here: whether the run sees it, and whether it will be known later."""
    if any(is_below(str(path), root) for root in context.repo_paths.values()):
        return
    site = context.cluster
    if site.scheduler == "slurm" and site.access.login != "here":
        what, why = (
            f"`{path}` lies on this machine",
            f"the run is on `{site.name}`, with its own file systems",
        )
        yield error("command.file", what, why, "write its absolute path on the cluster")
    elif context.container.runtime != "none" and not _mounted(context, str(path)):
        what, why = f"`{word}` lies beside the spec", "the container does not see that folder"
        yield error("command.file", what, why, _REPO_FIX)
    else:
        what, why = f"`{word}` is in no repository of the spec", "nobody can tell later which code ran"
        yield warning("command.not-recorded", what, why, _REPO_FIX)


def _mounted(context: Context, path: str) -> bool:
    mounts = context.container.mounts
    return any(mount.source == mount.target and is_below(path, mount.target) for mount in mounts)


def _not_passed_on(word: str, path: Path) -> Finding:
    return warning(
        "command.file-beside",
        f"`{word}` is also a file beside the spec, and the command does not see it under that name",
        why="the command runs in its run folder",
        fix=f"write `{path}` if the command reads it",
    )


def _missing(context: Context, command: Sequence[str], at: int) -> Iterator[Finding]:
    """Errors for a script, or a module behind `-m`, that is nowhere; an image may hold what is not here."""
    word, before = command[at], command[at - 1] if at else ""
    if before == "-m" and re.fullmatch(r"\w+(\.\w+)*", word):
        if "-m" not in command[: at - 1]:  # behind it a later one is the module's own
            yield from _module(context, word)
        return
    absent = context.absent or word.startswith(("-", "/", "~")) or any(map(str.isspace, word))
    of_path = at == 0 and "/" not in word  # a program
    after_option = at > 1 and before.startswith("--")  # its value may be a file that the command writes
    if absent or of_path or after_option or not _is_script(at, word) or context.container.runtime != "none":
        return
    yield error(
        "command.file",
        f"`{word}` is neither beside the spec nor in a repository of `repos`",
        why=did_you_mean(word, _scripts(context)) or "the command runs in its run folder",
        fix="correct the path; it counts from the spec's folder",
    )


def _module(context: Context, name: str) -> Iterator[Finding]:
    """An error for a module that lies beside the spec, where no import finds it."""
    inside = name.replace(".", "/")
    beside = context.base / inside
    roots = [
        os.path.normpath(Path(context.repo_paths.get(repo.name, "\0"), part))
        for repo in context.spec.repos
        for part in repo.pythonpath
    ]
    if not _is_module(beside) or any(_is_module(Path(root, inside)) for root in roots):
        return
    yield error(
        "command.file",
        f"the module `{name}` lies beside the spec, where no import finds it",
        why="the command runs in its run folder",
        fix="add `repos: [{name: code, path: ., pythonpath: [.]}]`",
    )


def _is_module(path: Path) -> bool:
    return is_folder(path) or is_file(f"{path}.py")


def _in_shell(context: Context, command: Sequence[str]) -> Iterator[Finding]:
    """An error for each script of a bash text that lies beside the spec: only its author can say it anew."""
    text = command[0] if command else ""
    if re.search(r"\b(?:cd|pushd)\s", text):
        return
    for word in dict.fromkeys(_IN_SHELL.findall(text)):
        path = found(word, context.spec, context.base, context.repo_paths)
        if path is not None:
            yield error(
                "command.file",
                f"`{word}` lies in `{path.parent}`, and the script runs in its run folder",
                fix=f"write `{path}`, or begin the script with `cd {path.parent}`",
            )


def _scripts(context: Context) -> list[str]:
    """Names of scripts beside the spec and in the checkouts, for `did you mean`."""
    names = []
    for folder in (context.base, *map(Path, context.repo_paths.values())):
        try:
            names += [
                entry.name for entry in os.scandir(folder) if PurePosixPath(entry.name).suffix in SCRIPTS
            ]
        except OSError:
            continue
    return names
