"""The import proof: in the driver's environment, every proved module comes from the checkout it should.

One child interpreter imports all modules; the parent compares real paths, so links, zip files, editable
installs and namespace packages are judged by where the bytes are. Standard library only, Python 3.9.
"""

from __future__ import annotations

import contextlib
import json
import os
import pkgutil
import signal
import subprocess
import tempfile
import time
from dataclasses import dataclass, field
from typing import Any, Dict, List, Mapping, Sequence, Tuple

from jobspec.finding import Finding, error
from jobspec.plan import ImportProof
from jobspec.runtime.base.procs import KILL_S
from jobspec.runtime.checkouts.import_probe import probe_module

__all__ = ["ImportResult", "judge", "probe_module", "prove"]

# A cold `import megatron.core` from a loaded shared file system takes minutes, not seconds.
IMPORT_TIMEOUT_S = 600.0


@dataclass(frozen=True)
class ImportResult:
    """`files` maps each module to the file, or first folder, that it was imported from."""

    files: Mapping[str, str] = field(default_factory=dict)
    findings: Tuple[Finding, ...] = ()
    sys_path: Tuple[str, ...] = ()
    executable: str = ""
    seconds: float = 0.0

    @property
    def ok(self) -> bool:
        return not any(finding.is_error for finding in self.findings)


def prove(
    proofs: Sequence[ImportProof],
    python: str,
    env: Mapping[str, str],
    timeout_s: float = IMPORT_TIMEOUT_S,
    cwd: str = "/",
) -> ImportResult:
    """Import every proof's module in one child of `python` with exactly `env`, and judge the files.

    Ends the child and its children after `timeout_s`, naming the import that was under way.
    """
    if not proofs:
        return ImportResult()
    start = time.monotonic()
    names = list(dict.fromkeys(proof.module for proof in proofs))
    try:
        events, output, status = _run_child(python, names, env, timeout_s, cwd)
    except OSError as problem:
        what = f"`{python}` does not start"
        return ImportResult({}, (error("imports.python", what, str(problem), "set container.python"),))
    report = _report(events)
    findings = list(judge(proofs, report))
    reported = {module["module"] for module in report["modules"]}
    left = [name for name in names if name not in reported]
    if left:
        findings.append(_unfinished(left, events, output, status, timeout_s))
    return ImportResult(
        {m["module"]: _location(m) for m in report["modules"] if not m["error"]},
        tuple(findings),
        tuple(report["sys_path"]),
        report["executable"],
        time.monotonic() - start,
    )


def judge(proofs: Sequence[ImportProof], report: Mapping[str, Any]) -> Tuple[Finding, ...]:
    """Findings for a report of `probe_module`, from the child or from a Ray task on another node."""
    modules = {module["module"]: module for module in report["modules"]}
    order = _order(report.get("sys_path", ()))
    node = str(report.get("host", ""))
    findings = [
        finding
        for proof in proofs
        if proof.module in modules
        for finding in _judge_one(proof, modules[proof.module], order, node)
    ]
    return tuple(findings)


def _judge_one(proof: ImportProof, module: Mapping[str, Any], order: str, node: str) -> List[Finding]:
    whose = f" of repo `{proof.repo}`" if proof.repo else ""
    if module["error"]:
        last = str(module.get("trace", "")).strip().splitlines()[-3:]
        place = f"found at `{module['spec']}`; " if module["spec"] else ""
        return [
            error(
                "imports.failed",
                f"`import {proof.module}`{whose} fails: {module['error']}",
                f"{place}{' / '.join(line.strip() for line in last)}; {order}",
                f"install what is missing, or put `{proof.root}` on the python path",
                node=node,
            )
        ]
    location = _location(module)
    if _below(str(module.get("real", "")) or location, proof.root):
        return []
    return [
        error(
            "imports.elsewhere",
            f"`{proof.module}`{whose} is imported from `{location or 'the interpreter itself'}`",
            f"expected a file below `{proof.root}`; {order}",
            f"put the checkout first in pythonpath, or uninstall the other `{proof.module.split('.')[0]}`",
            file=location,
            node=node,
        )
    ]


def _location(module: Mapping[str, Any]) -> str:
    """The file of a module; a namespace package has none, there the folder that wins counts."""
    if module["file"]:
        return str(module["file"])
    return str(module["paths"][0]) if module["paths"] else ""


def _below(path: str, root: str) -> bool:
    """Whether `path` is `root` or lies in it, links resolved; a path inside a zip file counts."""
    if not path or not root:
        return False
    real, base = os.path.realpath(path), os.path.realpath(root)
    return real == base or real.startswith(base.rstrip(os.sep) + os.sep)


def _order(sys_path: Sequence[str]) -> str:
    return "sys.path: " + (" : ".join(sys_path) if sys_path else "not known")


def _report(events: Sequence[Mapping[str, Any]]) -> Dict[str, Any]:
    head = next((event for event in events if event["event"] == "start"), {})
    return {
        "sys_path": head.get("sys_path", []),
        "executable": head.get("executable", ""),
        "modules": [event for event in events if event["event"] == "done"],
    }


def _unfinished(
    left: Sequence[str], events: Sequence[Mapping[str, Any]], output: str, status: int, timeout_s: float
) -> Finding:
    begun = [event["module"] for event in events if event["event"] == "begin"]
    name = begun[-1] if begun and begun[-1] in left else left[0]
    tail = " / ".join(line.strip() for line in output.strip().splitlines()[-3:])
    if status == -signal.SIGKILL:
        what = f"`import {name}` has not ended after {timeout_s:g} s"
        fix = "look for a dead mount or a lock in the module's start-up"
    else:
        what = f"the interpreter ended with status {status} while it imported `{name}`"
        fix = f"run `python -X faulthandler -c 'import {name}'` in the container"
    return error("imports.ended", what, tail or "it printed nothing", fix)


def _run_child(
    python: str, names: Sequence[str], env: Mapping[str, str], timeout_s: float, cwd: str
) -> Tuple[List[Dict[str, Any]], str, int]:
    """(events, output, exit status); status -9 also when the time was up and we ended it."""
    source = pkgutil.get_data("jobspec.runtime.checkouts", "import_probe.py")  # also from inside runtime.pyz
    if source is None:
        raise FileNotFoundError("jobspec/runtime/checkouts/import_probe.py is not in this runtime")
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as results:
        fd = results.fileno()
        child = subprocess.Popen(
            [python, "-c", source.decode("utf-8"), str(fd), *names],
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            env=dict(env),
            cwd=cwd,
            pass_fds=[fd],
            start_new_session=True,
        )
        try:
            status = child.wait(timeout_s)
        except subprocess.TimeoutExpired:
            os.killpg(child.pid, signal.SIGKILL)
            status = -signal.SIGKILL
            # A dead mount may hold it for ever (state D), and nobody else waits for it.
            with contextlib.suppress(subprocess.TimeoutExpired):
                child.wait(KILL_S)
        results.seek(0)
        out.seek(0)
        return _parse(results.read()), out.read().decode("utf-8", "replace"), status


def _parse(data: bytes) -> List[Dict[str, Any]]:
    """The child's whole lines; one that was cut off by its end is left out."""
    lines = data.decode("utf-8", "replace").split("\n")[:-1]
    return [json.loads(line) for line in lines if line]
