"""Says which file each module is imported from; its text is also run by itself as `python -c`.

Therefore it imports nothing but the standard library and nothing of jobspec: a proof must not depend on
the runtime being importable in the environment that it looks at. The parent is `imports`.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import os
import socket
import sys
import traceback
from typing import Any, Dict, List, Sequence


def probe(name: str) -> Dict[str, Any]:
    """Import `name` for real; its file, all folders of a package, and what went wrong.

    `spec` is where the import system finds it, `file` where the loaded module says that it lies:
    they differ when a module replaces itself in `sys.modules`.
    """
    report: Dict[str, Any] = {"module": name, "file": "", "spec": "", "paths": [], "real": ""}
    report.update(error="", trace="")
    try:
        spec = importlib.util.find_spec(name)
        report["spec"] = str(getattr(spec, "origin", "") or "")
        module = importlib.import_module(name)
    except BaseException as problem:  # noqa: BLE001 - a module may raise anything, SystemExit included
        report["error"] = f"{type(problem).__name__}: {problem}"
        report["trace"] = traceback.format_exc()[-4000:]
        return report
    report["file"] = str(getattr(module, "__file__", None) or "")
    report["paths"] = [str(path) for path in getattr(module, "__path__", [])]
    place = report["file"] or (report["paths"][0] if report["paths"] else "")
    report["real"] = os.path.realpath(place) if place else ""  # only this node can follow its links
    report["built_in"] = report["spec"] in ("built-in", "frozen")
    return report


def probe_module(names: Sequence[str]) -> Dict[str, Any]:
    """For a Ray task: `{"host", "executable", "sys_path", "modules": [probe(name), ...]}` as plain data."""
    modules: List[Dict[str, Any]] = [probe(name) for name in names]
    return {
        "host": socket.gethostname(),
        "executable": sys.executable,
        "sys_path": list(sys.path),
        "modules": modules,
    }


def main(argv: Sequence[str]) -> None:
    """`FD NAME...`: write one JSON line before and one after each import to the open file FD.

    Not stdout: modules print. The line before lets the parent name the import that hangs.
    """
    sys.path[:] = [entry for entry in sys.path if entry]  # the folder that `-c` adds is not the driver's
    with os.fdopen(int(argv[0]), "w", encoding="utf-8") as out:
        out.write(
            json.dumps({"event": "start", "executable": sys.executable, "sys_path": list(sys.path)}) + "\n"
        )
        for name in argv[1:]:
            out.write(json.dumps({"event": "begin", "module": name}) + "\n")
            out.flush()
            out.write(json.dumps({"event": "done", **probe(name)}) + "\n")
            out.flush()
    sys.stdout.flush()
    os._exit(0)  # a module's exit handlers (CUDA, MPI, threads) are not part of the proof


if __name__ == "__main__":
    main(sys.argv[1:])
