"""Findings of bash and shellcheck about rendered scripts, before anything is submitted."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from jobspec.finding import Finding, error, fail

CHECK_TIMEOUT_S = 60.0
SHELLCHECK_OPTIONS = ("--shell=bash", "--severity=warning", "--format=gcc", "--norc")


def check_scripts(files: Mapping[str, bytes]) -> tuple[Finding, ...]:
    """Findings of bash, and of shellcheck where installed, about the rendered scripts.

    A missing bash is a finding; a missing shellcheck is not.
    """
    scripts = {name: text for name, text in files.items() if name.endswith((".sh", ".sub", ".sbatch"))}
    if not scripts:
        return ()
    bash = shutil.which("bash")
    if bash is None:
        return (error("render.no-bash", "`bash` is not installed", fix="install bash"),)
    shellcheck = shutil.which("shellcheck")
    with tempfile.TemporaryDirectory(prefix="jobspec-") as folder:
        paths = {str(Path(folder) / name.replace("/", "_")): name for name in scripts}
        for path, name in paths.items():
            Path(path).write_bytes(scripts[name])
        # Both at once, one process each: they take longer to start than to read the scripts.
        parser = _start((bash, "-c", 'for file; do "$BASH" -n "$file"; done', "bash", *paths))
        linter = _start((shellcheck, *SHELLCHECK_OPTIONS, *paths)) if shellcheck else None
        parsed = _findings("render.bash", _output(parser), paths)
        linted = _findings("render.shellcheck", _output(linter), paths) if linter else []
        return tuple(parsed or linted)


def sample(files: Mapping[str, bytes]) -> dict[str, bytes]:
    """The files to check: all, but of a sweep's points only the first and the last.

    The points' scripts come from one template and differ in quoted values; a check of 1000 takes minutes.
    """
    points = sorted({int(name.split("/")[1]) for name in files if name.startswith("points/")})
    kept = {f"points/{number}/" for number in (points[:1] + points[-1:])}
    return {
        name: text
        for name, text in files.items()
        if not name.startswith("points/") or any(name.startswith(prefix) for prefix in kept)
    }


def _findings(rule: str, output: bytes, paths: Mapping[str, str]) -> list[Finding]:
    """One finding for each script that a checker's output names; `paths` maps files to scripts' names."""
    findings = []
    for path, name in paths.items():
        messages = b"\n".join(line for line in output.splitlines() if line.startswith(path.encode() + b":"))
        if messages:
            findings.append(_script_finding(rule, name, messages.replace(path.encode(), name.encode())))
    return findings


def _start(argv: Sequence[str]) -> subprocess.Popen[bytes]:
    return subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)


def _output(checker: subprocess.Popen[bytes]) -> bytes:
    try:
        return checker.communicate(timeout=CHECK_TIMEOUT_S)[0]
    except subprocess.TimeoutExpired as cause:
        checker.kill()
        checker.communicate()
        raise fail(
            "render.checker",
            f"the check of the rendered scripts did not end within {CHECK_TIMEOUT_S:.0f} s",
            fix="try again on a machine that is less busy",
        ) from cause


def _script_finding(rule: str, name: str, output: bytes) -> Finding:
    text = output.decode(errors="replace").strip()
    return error(
        rule,
        f"`{name}` does not pass: {text.splitlines()[0] if text else 'no message'}",
        why=text[-400:],
        fix="look at `hooks.setup` of the site profile; anything else is a bug in jobspec: please report it",
        file=name,
    )
