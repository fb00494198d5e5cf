"""Whether the interpreters of a run on this bare machine have the modules that it imports.

What an image or another node has is not known here, and nothing is said about it.
"""

from __future__ import annotations

import ast
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

from jobspec.disk import is_file
from jobspec.finding import Finding, warning
from jobspec.plan import CommandPlan, Plan
from jobspec.words import install_command

TIMEOUT_S = 20.0
_LOOK = (
    "import importlib.util as u, json, sys; "
    "print(json.dumps([n for n in sys.argv[1:] if n not in sys.modules and u.find_spec(n) is None]))"
)
_PYTHON = re.compile(r"python[\d.]*")

Lacking = Callable[[str, tuple[str, ...], tuple[str, ...]], list[str]]
"""(interpreter, folders in front of its path, modules) -> the modules that it does not find."""


def missing_modules(plan: Plan, of_framework: Iterable[str], lacking: Lacking) -> Iterator[Finding]:
    """Findings about Ray, the framework's modules, and what the command's own script imports."""
    if plan.scheduler != "local" or plan.container.runtime != "none":
        return
    ray = ("ray",) if plan.ray is not None else ()
    names, python = tuple(dict.fromkeys((*ray, *of_framework))), plan.container.python
    absent = lacking(python, (), names) if names else []
    if absent:
        why = "the run on this machine imports " + ("it" if len(absent) == 1 else "them")
        own = f"run `{install_command('local')}`"
        fix = own if python == sys.executable else f"install it for `{python}`, or name another one"
        yield warning("local.module", _what(python, absent), why, fix, path="container.python")
    if {"PATH", "PYTHONPATH"} & set(plan.env):
        return
    for command in plan.commands:
        yield from _of_script(plan, command, lacking)


def _of_script(plan: Plan, command: CommandPlan, lacking: Lacking) -> Iterator[Finding]:
    """A warning about modules that a Python script imports at its top and its interpreter lacks."""
    words = command.argv
    script = next((word for word in words[1:3] if word.endswith(".py") and is_file(word)), "")
    python = shutil.which(words[0]) if words and not command.shell else None
    if python is None or not script or not _PYTHON.fullmatch(Path(words[0]).name):
        return
    folders = (str(Path(script).parent), *(folder for repo in plan.repos for folder in repo.pythonpath))
    absent = lacking(python, folders, imported(Path(script)))
    if absent:
        why = f"`{Path(script).name}` imports " + ("it" if len(absent) == 1 else "them")
        fix = f"install it there, or name another interpreter than `{words[0]}` in `train.command`"
        yield warning("command.module", _what(python, absent), why, fix, path="train.command")


def _what(python: str, names: Sequence[str]) -> str:
    return f"`{python}` has no " + ", ".join(f"`{name}`" for name in names)


def imported(script: Path) -> tuple[str, ...]:
    """The top-level packages that a script imports in any case; none of a script that is no Python."""
    try:
        body = ast.parse(script.read_bytes()).body
    except (OSError, SyntaxError, ValueError):
        return ()
    names = [alias.name for node in body if isinstance(node, ast.Import) for alias in node.names]
    names += [node.module or "" for node in body if isinstance(node, ast.ImportFrom) and not node.level]
    return tuple(sorted({name.partition(".")[0] for name in names} - {""}))


def lacking_modules(python: str, folders: tuple[str, ...], names: tuple[str, ...]) -> list[str]:
    """Asks an interpreter; nothing is lacking where it gives no answer."""
    if not names:
        return []
    before = os.environ.get("PYTHONPATH")
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([*folders, *([before] if before else [])])}
    try:
        done = subprocess.run(
            [python, "-c", _LOOK, *names],
            env=env,
            cwd="/",
            capture_output=True,
            timeout=TIMEOUT_S,
            check=True,
        )
        answer = json.loads(done.stdout)
    except (OSError, subprocess.SubprocessError, ValueError):
        return []
    return [str(name) for name in answer]
