"""Whether the interpreter has the modules that a run on this bare machine imports by it.

A spec may be a stranger's lock, looked at before anybody has agreed to run it. So nothing is started or
imported: modules are looked up in this process where it is jobspec's own interpreter, and by the names of
files in a virtual environment and in the spec's own folders. Nothing is said of any other interpreter, of an
image or another node, nor where the spec sets PATH or PYTHONPATH.
"""

from __future__ import annotations

import ast
import re
import shutil
import sys
from collections.abc import Iterable, Iterator, Sequence
from importlib.machinery import all_suffixes
from importlib.util import find_spec
from pathlib import Path

from jobspec.disk import is_file, is_folder
from jobspec.finding import Finding, warning
from jobspec.plan import CommandPlan, Plan
from jobspec.python_text import parsed
from jobspec.words import install_command

# Files of setuptools and virtualenv in a fresh environment, which bring no package.
PLAIN_PTH = ("distutils-precedence.pth", "_virtualenv.pth")
MAX_SCRIPT = 1 << 20  # bytes; nobody writes a longer script by hand


def missing_modules(plan: Plan, of_framework: Iterable[str]) -> Iterator[Finding]:
    """Findings about Ray, the framework's modules, and what the command's own script imports."""
    if plan.scheduler != "local" or plan.container.runtime != "none":
        return
    if {"PATH", "PYTHONPATH"} & {*plan.env, *plan.container.env}:
        return
    ray = ("ray",) if plan.ray is not None else ()
    python = plan.container.python
    absent = _absent(python, _folders(plan), dict.fromkeys((*ray, *of_framework)))
    if absent:
        why = "the run on this machine imports " + ("it" if len(absent) == 1 else "them")
        fix = f"run `{install_command('local')}`"
        if not _is_own(python):
            fix = (
                "install "
                + ("it" if len(absent) == 1 else "them")
                + " in that environment, or name another one"
            )
        yield warning("local.module", _what(python, absent), why, fix, path="container.python")
    for command in plan.commands:
        yield from _of_script(plan, command, "train.command")
    for index, service in enumerate(plan.services):
        command = CommandPlan(service.name, service.argv, service.shell)
        yield from _of_script(plan, command, f"services[{index}].command")


def _folders(plan: Plan) -> list[str]:
    return [folder for repo in plan.repos for folder in repo.pythonpath]


def _of_script(plan: Plan, command: CommandPlan, path: str) -> Iterator[Finding]:
    """A warning about modules that a Python script imports at its top and this interpreter lacks."""
    words = command.argv
    script = next((word for word in words[1:3] if word.endswith(".py") and is_file(word)), "")
    python = shutil.which(words[0]) if words and not command.shell else None
    if python is None or not script or {"PATH", "PYTHONPATH"} & set(command.env):
        return
    absent = _absent(python, [str(Path(script).parent), *_folders(plan)], imported(Path(script)))
    if absent:
        why = f"`{Path(script).name}` imports " + ("it" if len(absent) == 1 else "them")
        fix = f"install it there, or name another interpreter than `{words[0]}` in `{path}`"
        yield warning("command.module", _what(python, absent), why, fix, path=path)


def _what(python: str, names: Sequence[str]) -> str:
    return f"`{python}` has no " + ", ".join(f"`{name}`" for name in names)


def imported(script: Path) -> tuple[str, ...]:
    """The top-level packages that a script imports in any case; none of a script that is no Python."""
    try:
        with script.open("rb") as file:
            tree = parsed(file.read(MAX_SCRIPT))
    except OSError:
        return ()
    body = tree.body if tree else []
    names = [alias.name for node in body if isinstance(node, ast.Import) for alias in node.names]
    names += [node.module or "" for node in body if isinstance(node, ast.ImportFrom) and not node.level]
    return tuple(sorted({name.partition(".")[0] for name in names} - {""}))


def _absent(python: str, folders: Sequence[str], names: Iterable[str]) -> list[str]:
    """The top-level modules that are neither in the folders nor where the interpreter is known to look."""
    places = None if _is_own(python) else _places(python)
    if places is None and not _is_own(python):
        return []
    return [
        name
        for name in names
        if not any(_holds(folder, name) for folder in folders)
        and not (_found(name) if places is None else _is_in(places, name))
    ]


def _places(python: str) -> list[Path] | None:
    """Where a virtual environment's interpreter finds packages; None where the names of files do not tell."""
    root = Path(python).parent.parent
    try:
        settings = (root / "pyvenv.cfg").read_text().lower()
        places = list(root.glob("lib*/python3*/site-packages"))
        files = [file for place in places for file in place.glob("*.pth") if file.name not in PLAIN_PTH]
        lines = [(file.parent, line) for file in files for line in file.read_text().splitlines()]
    except (OSError, ValueError):
        return None
    if not places or re.search(r"include-system-site-packages\s*=\s*true", settings):
        return None
    if any(line.startswith(("import ", "import\t")) for _, line in lines):
        return None  # the finder of an editable install, for one
    return [*places, *(folder / line for folder, line in lines if line.strip() and not line.startswith("#"))]


def _is_in(places: Sequence[Path], name: str) -> bool:
    if name in sys.stdlib_module_names:
        return True
    return any(is_folder(place / name) or any(place.glob(f"{name}.*")) for place in places)


def _is_own(python: str) -> bool:
    """Whether it is the interpreter of this process; another link beside it leads to the same packages."""
    own, asked = Path(sys.executable), Path(python)
    return python == str(own) or (asked.parent == own.parent and asked.resolve() == own.resolve())


def _holds(folder: str, name: str) -> bool:
    return is_folder(f"{folder}/{name}") or any(is_file(f"{folder}/{name}{end}") for end in all_suffixes())


def _found(name: str) -> bool:
    """Whether an import would find a top-level module. Without a package above it looking imports nothing."""
    try:
        return name in sys.modules or find_spec(name) is not None
    except (ImportError, ValueError):  # of a module that was put in place by hand
        return True
