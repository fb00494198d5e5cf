"""Builds Megatron-Core's dataset helpers on the node; `mcore_probe` proves which file an import takes.

The source, a checkout or an installed package, is only read. The result is a folder for PYTHONPATH:

    mcore-<uid>/<key>/tree/megatron/core/            links to everything in the source's megatron/core
                                   datasets/         links too, but for helpers_cpp<EXT_SUFFIX>: ours

Python takes all of `megatron.core` from the first folder on its path that has it, so the tree mirrors all of
it. The import proof compares real paths, so the tree counts as the source. Nothing is written to the source,
and Python does not see a prebuilt or stale library beside `helpers.cpp`. The tree's Makefile does nothing:
Megatron's `compile_helpers()` runs `make` in that folder when training starts.
Standard library only, Python 3.9. Facts: megatron-core 0.16.1 and Megatron-LM d98e8a64.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import time
from dataclasses import dataclass
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence, Tuple

from jobspec.finding import Finding, JobspecError, error, fail, warning
from jobspec.plan import HelpersPlan, ImportProof
from jobspec.runtime.base import node_lock
from jobspec.runtime.base.full_disk import refusal
from jobspec.runtime.checkouts.mcore_probe import ASK_TIMEOUT_S, MODULE, ask, run, unproved

Report = Callable[[str, Mapping[str, Any]], None]

FLAGS = ("-O3", "-Wall", "-shared", "-std=c++17", "-fPIC", "-fdiagnostics-color=never")
TREE_VERSION = 1  # part of the key: another shape of the tree is another folder
# One core builds it in 9 s; a node that is busy with staging is given much longer.
BUILD_TIMEOUT_S = 600.0
MAKEFILE = (
    "# Built beforehand by jobspec for the interpreter of this job; nothing is left to do here.\nall: ;\n"
)


@dataclass(frozen=True)
class HelpersResult:
    """`folder` goes first on PYTHONPATH, empty when nothing could be built; `library` is the file built.

    `proof` joins the import phase: the real import, in the driver's environment, must find `library`.
    """

    folder: str = ""
    library: str = ""
    cached: bool = False
    findings: Tuple[Finding, ...] = ()
    seconds: float = 0.0

    @property
    def ok(self) -> bool:
        return not any(finding.is_error for finding in self.findings)

    @property
    def proof(self) -> ImportProof:
        return ImportProof(MODULE, self.folder or self.library)


def build(
    helpers: HelpersPlan,
    node_local: str,
    python: str,
    report: Report,
    env: Optional[Mapping[str, str]] = None,
    deadline_s: float = BUILD_TIMEOUT_S,
) -> HelpersResult:
    """Build or reuse the helpers for the interpreter `python`; faults come back as findings.

    `env` is the driver's environment (the agent's when None). However many processes of a node call it,
    one builds and the others wait for it. `report`: `waiting` {name, holder, seconds}, `build` {command}.
    """
    start = time.monotonic()
    env = dict(os.environ if env is None else env)
    try:
        result = _build(helpers, node_local, python, report, env, start + deadline_s)
    except JobspecError as problem:
        result = HelpersResult(findings=tuple(problem.findings))
    except OSError as problem:
        why, fix = refusal(problem, node_local)
        what = f"the helpers cannot be built on this node: {why}"
        fix = fix or "set node_local to a writable folder with space"
        result = HelpersResult(
            findings=(error("helpers.io", what, str(problem), fix, file=str(problem.filename or "")),)
        )
    return HelpersResult(
        result.folder, result.library, result.cached, result.findings, time.monotonic() - start
    )


def _build(
    helpers: HelpersPlan, node_local: str, python: str, report: Report, env: Dict[str, str], deadline: float
) -> HelpersResult:
    interpreter = ask(python, "" if helpers.source else _package(helpers), env)
    core = _core_folder(helpers, interpreter["places"], python)
    compiler = _compiler(env)
    if not compiler and not helpers.source:
        return _prebuilt(core, interpreter["suffix"], python, env)
    toolchain = _toolchain(compiler, interpreter, env, python)
    key = _key(core, toolchain, interpreter)
    home = os.path.join(node_lock.own_folder(node_local, "mcore"), key)
    os.makedirs(home, mode=0o750, exist_ok=True)
    tree, library = _layout(home, interpreter["suffix"])

    def waiting(holder: str, seconds: float) -> None:
        report("waiting", {"name": "helpers", "holder": holder, "seconds": round(seconds, 1)})

    with node_lock.hold(os.path.join(home, "lock"), deadline, waiting):
        cached = os.path.isfile(library) and not unproved(library, tree, python, env)
        if not cached:
            source = os.path.join(core, "datasets", "helpers.cpp")
            built = _compile(toolchain, interpreter, source, home, env, report, deadline)
            _mirror(core, tree, built, library)
            findings = unproved(library, tree, python, env)
            if findings:
                os.unlink(library)
                return HelpersResult(findings=findings)
    return HelpersResult(tree, library, cached)


def _layout(home: str, suffix: str) -> Tuple[str, str]:
    tree = os.path.join(home, "tree")
    return tree, os.path.join(tree, "megatron", "core", "datasets", "helpers_cpp" + suffix)


def _package(helpers: HelpersPlan) -> str:
    name = helpers.package or "megatron.core"
    return name[: -len(".datasets")] if name.endswith(".datasets") else name


def _core_folder(helpers: HelpersPlan, places: Sequence[str], python: str) -> str:
    """The `megatron/core` folder that has the source. Raises: JobspecError naming where it was looked for."""
    if helpers.source:
        candidates = [os.path.join(helpers.source, "megatron", "core")]
        fix = (
            "name the folder that contains megatron/core (helpers: {repo, subdir}), and check out submodules"
        )
    else:
        candidates = list(places)
        fix = f"install megatron-core for `{python}`, or name a checkout"
    for folder in candidates:
        if os.path.isfile(os.path.join(folder, "datasets", "helpers.cpp")):
            return os.path.realpath(folder)
    places_text = ", ".join(f"`{os.path.join(folder, 'datasets', 'helpers.cpp')}`" for folder in candidates)
    what = "Megatron-Core's `helpers.cpp` is not there"
    raise fail(
        "helpers.source",
        what,
        f"looked at {places_text}" if places_text else f"`{python}` finds no `{_package(helpers)}`",
        fix,
    )


def _compiler(env: Mapping[str, str]) -> str:
    """The C++ compiler of the driver's environment: CXX, then g++, c++, clang++; empty without one."""
    for name in (env.get("CXX", ""), "g++", "c++", "clang++"):
        program = shutil.which(name, path=env.get("PATH")) if name else None
        if program:
            return program
    return ""


@dataclass(frozen=True)
class _Toolchain:
    compiler: str
    version: str
    includes: Tuple[str, ...]


def _toolchain(
    compiler: str, interpreter: Mapping[str, Any], env: Mapping[str, str], python: str
) -> _Toolchain:
    """Everything a build needs. Raises: JobspecError with one finding for each thing that is missing."""
    findings = []
    if not compiler:
        findings.append(
            error("helpers.compiler", "no C++ compiler on PATH", f"PATH={env.get('PATH', '')}", _APT_COMPILER)
        )
    headers = [
        folder for folder in interpreter["includes"] if os.path.isfile(os.path.join(folder, "Python.h"))
    ]
    if not headers:
        why = f"`{python}` expects it in {' or '.join(dict.fromkeys(interpreter['includes']))}"
        findings.append(error("helpers.headers", "`Python.h` is missing", why, _APT_HEADERS))
    pybind = interpreter["pybind11_include"]
    if not pybind or not os.path.isfile(os.path.join(pybind, "pybind11", "pybind11.h")):
        why = (
            f"`{python} -c 'import pybind11'` fails"
            if not pybind
            else f"`{pybind}` has no pybind11/pybind11.h"
        )
        findings.append(
            error("helpers.pybind11", "pybind11 is missing", why, f"`{python} -m pip install pybind11`")
        )
    if findings:
        raise JobspecError(*findings)
    _, out, _ = run([compiler, "--version"], env, ASK_TIMEOUT_S)
    return _Toolchain(compiler, out.split("\n")[0], tuple(dict.fromkeys([*headers, pybind])))


_APT_COMPILER = "use an image with g++ (Debian: `apt-get install g++`), or name the compiler in CXX"
_APT_HEADERS = "use an image with the interpreter's headers (Debian: `apt-get install python3-dev`)"


def _key(core: str, toolchain: _Toolchain, interpreter: Mapping[str, Any]) -> str:
    """Same source folder and bytes, ABI, compiler and pybind11: same library, and same tree of links."""
    with open(os.path.join(core, "datasets", "helpers.cpp"), "rb") as stream:
        state = hashlib.sha256(stream.read())
    names = sorted(os.listdir(core)) + sorted(os.listdir(os.path.join(core, "datasets")))
    facts = [
        interpreter["suffix"],
        interpreter["version"],
        interpreter["pybind11"],
        toolchain.version,
        *toolchain.includes,
        *FLAGS,
    ]
    state.update(json.dumps([TREE_VERSION, core, names, facts]).encode())
    return state.hexdigest()[:20]


def _compile(
    toolchain: _Toolchain,
    interpreter: Mapping[str, Any],
    source: str,
    home: str,
    env: Mapping[str, str],
    report: Report,
    deadline: float,
) -> str:
    """Path of a freshly built library below a temporary name. Raises: JobspecError with the first error."""
    temp = os.path.join(home, f"build-{os.getpid()}{interpreter['suffix']}")
    includes = [part for folder in toolchain.includes for part in ("-I", folder)]
    argv = [toolchain.compiler, *FLAGS, *includes, source, "-o", temp]
    report("build", {"command": argv})
    remaining = max(1.0, deadline - time.monotonic())
    status, out, err = run(argv, {**env, "LC_ALL": "C", "TMPDIR": home}, remaining)
    if status != 0 or not os.path.isfile(temp):
        if os.path.exists(temp):
            os.unlink(temp)
        raise fail(
            "helpers.build",
            first_error(err or out) or f"the compiler ended with status {status} and said nothing",
            " ".join(argv),
            "correct what the first error names; the command can be run by hand",
            file=source,
        )
    return temp


def first_error(text: str) -> str:
    """The first error line of a compiler or linker, else the first line that is not blank."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    for line in lines:
        if re.search(
            r"\b(fatal )?error:|cannot open output|No space left|undefined reference|: cannot find ", line
        ):
            return line
    return lines[0] if lines else ""


def _mirror(core: str, tree: str, built: str, library: str) -> None:
    """Make the tree of links; the library last and atomically, since its presence says that all is there."""
    datasets = os.path.dirname(library)
    os.makedirs(datasets, mode=0o750, exist_ok=True)
    above = os.path.dirname(core)
    if os.path.isfile(os.path.join(above, "__init__.py")):  # a regular package, not a namespace
        _link_all(above, os.path.join(tree, "megatron"), skip=("core",))
    _link_all(core, os.path.join(tree, "megatron", "core"), skip=("datasets",))
    _link_all(os.path.join(core, "datasets"), datasets, skip=("Makefile",))
    with open(os.path.join(datasets, "Makefile"), "w", encoding="utf-8") as stream:
        stream.write(MAKEFILE)
    os.chmod(built, 0o755)
    with open(built, "rb") as stream:
        os.fsync(stream.fileno())
    os.replace(built, library)


def _link_all(source: str, target: str, skip: Sequence[str]) -> None:
    for name in os.listdir(source):
        if name in skip or name == "__pycache__" or name.startswith("helpers_cpp"):
            continue
        link = os.path.join(target, name)
        if not os.path.lexists(link):
            os.symlink(os.path.join(source, name), link)


def _prebuilt(core: str, suffix: str, python: str, env: Mapping[str, str]) -> HelpersResult:
    """The package's own library, used without a compiler; findings where this Python cannot load it."""
    library = os.path.join(core, "datasets", "helpers_cpp" + suffix)
    here: List[str] = sorted(n for n in os.listdir(os.path.dirname(library)) if n.startswith("helpers_cpp"))
    if not os.path.isfile(library):
        why = f"the package has {', '.join(here) or 'no library'}, this interpreter needs helpers_cpp{suffix}"
        return HelpersResult(
            findings=(error("helpers.compiler", "no C++ compiler on PATH", why, _APT_COMPILER),)
        )
    findings = unproved(library, "", python, env)
    if findings:
        return HelpersResult(findings=findings)
    what = "no C++ compiler on PATH; the package's own library is used"
    return HelpersResult(
        "", library, True, (warning("helpers.prebuilt", what, "the library loads and works", file=library),)
    )
