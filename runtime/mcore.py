"""Builds Megatron-Core's dataset helpers on the node and proves which file an import takes.

The source, a checkout or an installed package, is only read. The result is a folder for PYTHONPATH:

    mcore-<uid>/<key>/tree/megatron/core/            links to everything in the source's megatron/core
                                   datasets/         links too, but for helpers_cpp<EXT_SUFFIX>: ours

Python takes `megatron.core` from the first folder on its path that has it, whole; so the tree mirrors all
of it, and since real paths decide in the import proof, it still counts as the source. Nothing is written to
the source, and a prebuilt or stale library beside `helpers.cpp` is not seen. The tree's Makefile does
nothing: Megatron's `compile_helpers()` runs `make` in that folder when training starts.
Standard library only, Python 3.9. Facts: megatron-core 0.16.1 and Megatron-LM d98e8a64.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import time
from dataclasses import dataclass
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence, Tuple

from jobspec.finding import Finding, JobspecError, error, fail, warning
from jobspec.plan import HelpersPlan, ImportProof
from jobspec.runtime import nodelock

Report = Callable[[str, Mapping[str, Any]], None]

MODULE = "megatron.core.datasets.helpers_cpp"
FLAGS = ("-O3", "-Wall", "-shared", "-std=c++17", "-fPIC", "-fdiagnostics-color=never")
TREE_VERSION = 1  # part of the key: another shape of the tree is another folder
# One core builds it in 9 s; a node that is busy with staging is given much longer.
BUILD_TIMEOUT_S = 600.0
ASK_TIMEOUT_S = 120.0
MAKEFILE = (
    "# Built beforehand by jobspec for the interpreter of this job; nothing is left to do here.\nall: ;\n"
)

# Asked of the interpreter that will import the result; nothing here runs under the agent's own.
_ASK = """
import importlib.util, json, sys, sysconfig
paths = sysconfig.get_paths()
told = {"suffix": sysconfig.get_config_var("EXT_SUFFIX"), "version": sys.version}
told["includes"] = [paths["include"], paths["platinclude"]]
told.update({"pybind11": "", "pybind11_include": "", "places": []})
try:
    import pybind11
    told["pybind11"], told["pybind11_include"] = pybind11.__version__, pybind11.get_include()
except ImportError:
    pass
if len(sys.argv) > 1:
    try:
        spec = importlib.util.find_spec(sys.argv[1])  # imports `megatron` only
        told["places"] = list(spec.submodule_search_locations or []) if spec else []
    except ImportError:
        pass
print("JOBSPEC" + json.dumps(told))
"""

# Finds the library as an import of its dotted name would, without running megatron.core: torch takes seconds.
_PROVE = """
import importlib.machinery, importlib.util, json, sys
name = sys.argv[1]
parts = name.split(".")
spec = importlib.util.find_spec(".".join(parts[:2]))
for i in range(3, len(parts) + 1):
    if spec is None:
        break
    spec = importlib.machinery.PathFinder.find_spec(".".join(parts[:i]), spec.submodule_search_locations)
told = {"file": spec.origin if spec else "", "path": sys.path, "value": None}
if spec:
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    import numpy
    index, sample = numpy.zeros(4, dtype=numpy.int16), numpy.zeros(4, dtype=numpy.int64)
    module.build_blending_indices(index, sample, numpy.array([0.5, 0.5]), 2, 4, False)
    told["value"] = [index.tolist(), sample.tolist()]
print("JOBSPEC" + json.dumps(told))
"""
# Two data sets of equal weight, four samples: taken in turn.
_PROVED = [[0, 1, 0, 1], [0, 0, 1, 1]]


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
        what = f"the helpers cannot be built on this node: {problem.strerror or problem}"
        fix = "set node_local to a writable folder with space"
        result = HelpersResult(
            findings=(error("helpers.io", what, str(problem), fix, file=str(problem.filename or "")),)
        )
    return HelpersResult(
        result.folder, result.library, result.cached, result.findings, time.monotonic() - start
    )


def _build(
    helpers: HelpersPlan, node_local: str, python: str, report: Report, env: Dict[str, str], deadline: float
) -> HelpersResult:
    asked = _ask(python, helpers, env)
    core = _core_folder(helpers, asked["places"], python)
    compiler = _compiler(env)
    if not compiler and not helpers.source:
        return _prebuilt(core, asked["suffix"], python, env)
    toolchain = _toolchain(compiler, asked, env, python)
    key = _key(core, toolchain, asked)
    home = os.path.join(nodelock.own_folder(node_local, "mcore"), key)
    os.makedirs(home, mode=0o750, exist_ok=True)
    tree, library = _layout(home, asked["suffix"])

    def waiting(holder: str, seconds: float) -> None:
        report("waiting", {"name": "helpers", "holder": holder, "seconds": round(seconds, 1)})

    with nodelock.hold(os.path.join(home, "lock"), deadline, waiting):
        cached = os.path.isfile(library) and not _unproved(library, tree, python, env)
        if not cached:
            source = os.path.join(core, "datasets", "helpers.cpp")
            built = _compile(toolchain, asked, source, home, env, report, deadline)
            _mirror(core, tree, built, library)
            findings = _unproved(library, tree, python, env)
            if findings:
                os.unlink(library)
                return HelpersResult(findings=findings)
    return HelpersResult(tree, library, cached)


def _layout(home: str, suffix: str) -> Tuple[str, str]:
    tree = os.path.join(home, "tree")
    return tree, os.path.join(tree, "megatron", "core", "datasets", "helpers_cpp" + suffix)


def _run(argv: Sequence[str], env: Mapping[str, str], timeout_s: float) -> Tuple[int, str, str]:
    """(status, stdout, stderr) of a command. Raises: JobspecError when it hangs; OSError."""
    try:
        done = subprocess.run(
            argv,
            env=dict(env),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=timeout_s,
            cwd="/",
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise fail(
            "helpers.timeout", f"`{argv[0]}` has not ended after {timeout_s:.0f} s", " ".join(argv)[:400]
        ) from None
    return done.returncode, done.stdout.decode("utf-8", "replace"), done.stderr.decode("utf-8", "replace")


def _told(stdout: str) -> Dict[str, Any]:
    """The answer among whatever else start-up files print. Raises: ValueError without one."""
    for line in stdout.splitlines():
        if line.startswith("JOBSPEC"):
            told: Dict[str, Any] = json.loads(line[len("JOBSPEC") :])
            return told
    raise ValueError("no answer")


def _ask(python: str, helpers: HelpersPlan, env: Mapping[str, str]) -> Dict[str, Any]:
    """What the interpreter says of itself. Raises: JobspecError."""
    argv = [python, "-c", _ASK] + ([_package(helpers)] if not helpers.source else [])
    why = ""
    try:
        _, out, err = _run(argv, env, ASK_TIMEOUT_S)
        why = " / ".join(err.strip().splitlines()[-2:])
        return _told(out)
    except (OSError, ValueError) as problem:
        raise fail(
            "helpers.python",
            f"`{python}` does not run",
            why or str(problem),
            "set container.python to the job's interpreter",
        ) from problem


def _package(helpers: HelpersPlan) -> str:
    name = helpers.package or "megatron.core"
    return name[: -len(".datasets")] if name.endswith(".datasets") else name


def _core_folder(helpers: HelpersPlan, places: Sequence[str], python: str) -> str:
    """The `megatron/core` folder that has the source. Raises: JobspecError naming where it was looked for."""
    if helpers.source:
        wanted = [os.path.join(helpers.source, "megatron", "core")]
        fix = (
            "name the folder that contains megatron/core (helpers: {repo, subdir}), and check out submodules"
        )
    else:
        wanted = list(places)
        fix = f"install megatron-core for `{python}`, or name a checkout"
    for folder in wanted:
        if os.path.isfile(os.path.join(folder, "datasets", "helpers.cpp")):
            return os.path.realpath(folder)
    seen = ", ".join(f"`{os.path.join(folder, 'datasets', 'helpers.cpp')}`" for folder in wanted)
    what = "Megatron-Core's `helpers.cpp` is not there"
    raise fail(
        "helpers.source",
        what,
        f"looked at {seen}" if seen else f"`{python}` finds no `{_package(helpers)}`",
        fix,
    )


def _compiler(env: Mapping[str, str]) -> str:
    """The C++ compiler of the driver's environment: CXX, then g++, c++, clang++; empty without one."""
    for name in (env.get("CXX", ""), "g++", "c++", "clang++"):
        found = shutil.which(name, path=env.get("PATH")) if name else None
        if found:
            return found
    return ""


@dataclass(frozen=True)
class _Toolchain:
    compiler: str
    version: str
    includes: Tuple[str, ...]


def _toolchain(compiler: str, asked: Mapping[str, Any], env: Mapping[str, str], python: str) -> _Toolchain:
    """Everything a build needs. Raises: JobspecError with one finding for each thing that is missing."""
    findings = []
    if not compiler:
        findings.append(
            error("helpers.compiler", "no C++ compiler on PATH", f"PATH={env.get('PATH', '')}", _APT_COMPILER)
        )
    headers = [folder for folder in asked["includes"] if os.path.isfile(os.path.join(folder, "Python.h"))]
    if not headers:
        why = f"`{python}` says that it lies in {' or '.join(dict.fromkeys(asked['includes']))}"
        findings.append(error("helpers.headers", "`Python.h` is missing", why, _APT_HEADERS))
    pybind = asked["pybind11_include"]
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
    _, out, _ = _run([compiler, "--version"], env, ASK_TIMEOUT_S)
    return _Toolchain(compiler, out.split("\n")[0], tuple(dict.fromkeys([*headers, pybind])))


_APT_COMPILER = "use an image with g++ (Debian: `apt-get install g++`), or name the compiler in CXX"
_APT_HEADERS = "use an image with the interpreter's headers (Debian: `apt-get install python3-dev`)"


def _key(core: str, toolchain: _Toolchain, asked: Mapping[str, Any]) -> str:
    """Same source folder and bytes, ABI, compiler and pybind11: same library, and same tree of links."""
    with open(os.path.join(core, "datasets", "helpers.cpp"), "rb") as stream:
        state = hashlib.sha256(stream.read())
    names = sorted(os.listdir(core)) + sorted(os.listdir(os.path.join(core, "datasets")))
    facts = [
        asked["suffix"],
        asked["version"],
        asked["pybind11"],
        toolchain.version,
        *toolchain.includes,
        *FLAGS,
    ]
    state.update(json.dumps([TREE_VERSION, core, names, facts]).encode())
    return state.hexdigest()[:20]


def _compile(
    toolchain: _Toolchain,
    asked: Mapping[str, Any],
    source: str,
    home: str,
    env: Mapping[str, str],
    report: Report,
    deadline: float,
) -> str:
    """Path of a freshly built library below a temporary name. Raises: JobspecError with the first error."""
    temp = os.path.join(home, f"build-{os.getpid()}{asked['suffix']}")
    includes = [part for folder in toolchain.includes for part in ("-I", folder)]
    argv = [toolchain.compiler, *FLAGS, *includes, source, "-o", temp]
    report("build", {"command": argv})
    remaining = max(1.0, deadline - time.monotonic())
    status, out, err = _run(argv, {**env, "LC_ALL": "C", "TMPDIR": home}, remaining)
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


def with_folder(env: Mapping[str, str], folder: str) -> Dict[str, str]:
    """`env` with `folder` first on PYTHONPATH."""
    rest = env.get("PYTHONPATH", "")
    return {**env, "PYTHONPATH": folder + (os.pathsep + rest if rest else "")}


def _unproved(library: str, folder: str, python: str, env: Mapping[str, str]) -> Tuple[Finding, ...]:
    """`()` when `python` finds, loads and can call exactly `library` by its dotted name.

    `folder` goes first on PYTHONPATH, as in the driver; empty leaves PYTHONPATH alone.
    """
    status, out, err = _run(
        [python, "-c", _PROVE, MODULE], with_folder(env, folder) if folder else env, ASK_TIMEOUT_S
    )
    try:
        told = _told(out)
    except ValueError:
        last = err.strip().splitlines()[-1:] or [f"status {status}"]
        fix = "install what is missing in the job's environment; `ldd` shows missing libraries"
        return (
            error(
                "helpers.import",
                f"the library built does not load: {last[0]}",
                f"`import {MODULE}`",
                fix,
                file=library,
            ),
        )
    if os.path.realpath(told["file"] or "/") != os.path.realpath(library):
        why = f"expected `{library}`; sys.path: {' : '.join(told['path'])}"
        fix = (
            "remove what comes before it on the python path (a .pth file, an editable install, sitecustomize)"
        )
        found = told["file"] or "nowhere"
        return (error("helpers.elsewhere", f"`import {MODULE}` takes `{found}`", why, fix, file=library),)
    if told["value"] != _PROVED:
        what = f"`build_blending_indices` gives {told['value']}, not {_PROVED}"
        return (
            error("helpers.wrong", what, "", "look at the source's own changes to helpers.cpp", file=library),
        )
    return ()


def _prebuilt(core: str, suffix: str, python: str, env: Mapping[str, str]) -> HelpersResult:
    """The library that the package brought, where there is no compiler: good if it loads for this Python."""
    library = os.path.join(core, "datasets", "helpers_cpp" + suffix)
    here: List[str] = sorted(n for n in os.listdir(os.path.dirname(library)) if n.startswith("helpers_cpp"))
    if not os.path.isfile(library):
        why = f"the package has {', '.join(here) or 'no library'}, this interpreter needs helpers_cpp{suffix}"
        return HelpersResult(
            findings=(error("helpers.compiler", "no C++ compiler on PATH", why, _APT_COMPILER),)
        )
    findings = _unproved(library, "", python, env)
    if findings:
        return HelpersResult(findings=findings)
    what = "no C++ compiler on PATH; the package's own library is used"
    return HelpersResult(
        "", library, True, (warning("helpers.prebuilt", what, "it loads and works", file=library),)
    )
