"""Bash that runs a file of jobspec where jobspec is not installed: the plan carries the file's text."""

from __future__ import annotations

import json
import shlex
from importlib import resources
from typing import Any

END = "JOBSPEC_PROBE"


def piped_script(package: str, name: str, python: str, request: Any) -> str:
    """`python` runs the file `name` of `package` with `request` as its JSON argument."""
    text = resources.files(package).joinpath(name).read_text(encoding="utf-8")
    return f"{shlex.quote(python)} - {shlex.quote(json.dumps(request))} <<'{END}'\n{text}{END}"


def import_probe(python: str, request: dict[str, Any]) -> str:
    """The probe of imports; `import_probe.py` says what `request` holds."""
    return piped_script("jobspec.frameworks.shared", "import_probe.py", python, request)
