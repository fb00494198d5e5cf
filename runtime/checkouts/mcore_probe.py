"""What the job's interpreter says about Megatron-Core's helpers: what it needs, and which file it imports.

Nothing here runs under the agent's own interpreter. Standard library only, Python 3.9.
"""

from __future__ import annotations

import json
import os
import subprocess
from typing import Any, Dict, Mapping, Sequence, Tuple

from jobspec.finding import Finding, error, fail
from jobspec.runtime.base import procs

MODULE = "megatron.core.datasets.helpers_cpp"
ASK_TIMEOUT_S = 120.0

# What a build depends on.
_ASK = """
import importlib.util, json, sys, sysconfig
paths = sysconfig.get_paths()
facts = {"suffix": sysconfig.get_config_var("EXT_SUFFIX"), "version": sys.version}
facts["includes"] = [paths["include"], paths["platinclude"]]
facts.update({"pybind11": "", "pybind11_include": "", "places": []})
try:
    import pybind11
    facts["pybind11"], facts["pybind11_include"] = pybind11.__version__, pybind11.get_include()
except ImportError:
    pass
if len(sys.argv) > 1:
    try:
        spec = importlib.util.find_spec(sys.argv[1])  # imports `megatron` only
        facts["places"] = list(spec.submodule_search_locations or []) if spec else []
    except ImportError:
        pass
print("JOBSPEC" + json.dumps(facts))
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
proof = {"file": spec.origin if spec else "", "path": sys.path, "value": None}
if spec:
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    import numpy
    index, sample = numpy.zeros(4, dtype=numpy.int16), numpy.zeros(4, dtype=numpy.int64)
    module.build_blending_indices(index, sample, numpy.array([0.5, 0.5]), 2, 4, False)
    proof["value"] = [index.tolist(), sample.tolist()]
print("JOBSPEC" + json.dumps(proof))
"""
# Two data sets of equal weight, four samples: taken in turn.
_PROVED = [[0, 1, 0, 1], [0, 0, 1, 1]]


def run(argv: Sequence[str], env: Mapping[str, str], timeout_s: float) -> Tuple[int, str, str]:
    """(status, stdout, stderr) of a command. Raises: JobspecError when it hangs; OSError."""
    try:
        status, out, err = procs.output(argv, timeout_s, env, "/")
    except subprocess.TimeoutExpired:
        raise fail(
            "helpers.timeout", f"`{argv[0]}` has not ended after {timeout_s:.0f} s", " ".join(argv)[:400]
        ) from None
    return status, out.decode("utf-8", "replace"), err.decode("utf-8", "replace")


def _told(stdout: str) -> Dict[str, Any]:
    """The answer among whatever else start-up files print. Raises: ValueError without one."""
    for line in stdout.splitlines():
        if line.startswith("JOBSPEC"):
            answer: Dict[str, Any] = json.loads(line[len("JOBSPEC") :])
            return answer
    raise ValueError("no answer")


def ask(python: str, package: str, env: Mapping[str, str]) -> Dict[str, Any]:
    """What the interpreter says of itself and, unless it is empty, of a package. Raises: JobspecError."""
    argv = [python, "-c", _ASK, *([package] if package else [])]
    why = ""
    try:
        _, out, err = run(argv, env, ASK_TIMEOUT_S)
        why = " / ".join(err.strip().splitlines()[-2:])
        return _told(out)
    except (OSError, ValueError) as problem:
        raise fail(
            "helpers.python",
            f"`{python}` does not run",
            why or str(problem),
            "set container.python to the job's interpreter",
        ) from problem


def with_folder(env: Mapping[str, str], folder: str) -> Dict[str, str]:
    """`env` with `folder` first on PYTHONPATH."""
    rest = env.get("PYTHONPATH", "")
    return {**env, "PYTHONPATH": folder + (os.pathsep + rest if rest else "")}


def unproved(library: str, folder: str, python: str, env: Mapping[str, str]) -> Tuple[Finding, ...]:
    """`()` when `python` finds, loads and can call exactly `library` by its dotted name.

    `folder` goes first on PYTHONPATH, as in the driver; empty leaves PYTHONPATH alone.
    """
    status, out, err = run(
        [python, "-c", _PROVE, MODULE], with_folder(env, folder) if folder else env, ASK_TIMEOUT_S
    )
    try:
        proof = _told(out)
    except ValueError:
        last = err.strip().splitlines()[-1:] or [f"status {status}"]
        fix = "install what is missing in the job's environment; `ldd` shows missing libraries"
        return (
            error(
                "helpers.import",
                f"the built library does not load: {last[0]}",
                f"`import {MODULE}`",
                fix,
                file=library,
            ),
        )
    if os.path.realpath(proof["file"] or "/") != os.path.realpath(library):
        why = f"expected `{library}`; sys.path: {' : '.join(proof['path'])}"
        fix = (
            "remove what comes before it on the python path (a .pth file, an editable install, sitecustomize)"
        )
        taken = proof["file"] or "nowhere"
        return (error("helpers.elsewhere", f"`import {MODULE}` takes `{taken}`", why, fix, file=library),)
    if proof["value"] != _PROVED:
        what = f"`build_blending_indices` gives {proof['value']}, not {_PROVED}"
        return (
            error("helpers.wrong", what, "", "look at the source's own changes to helpers.cpp", file=library),
        )
    return ()
