"""Asks `jobspec.planning.far_side` on a login node: the program travels with the question, in one trip."""

from __future__ import annotations

import base64
import io
import json
import zipfile
from collections.abc import Mapping
from importlib import resources
from pathlib import Path
from typing import Any

from jobspec.finding import fail
from jobspec.launchers.access.command import Client

ASK_TIMEOUT_S = 1800.0  # the files of a checkout over a slow line, or a large checkout written
# A login node's `python3` may be older than what it has beside it. `JOBSPEC_PYTHON` names another one.
FIND_PYTHON = """\
for python in "$JOBSPEC_PYTHON" python3 python3.13 python3.12 python3.11 python3.10 python3.9; do
  "$python" -c 'import sys; sys.exit(sys.version_info < (3, 9))' </dev/null 2>/dev/null || continue
  exec "$python" -c "$1"
done
exit 69
"""
NO_PYTHON = 69
PROGRAM = """\
import base64, os, sys, tempfile
program = base64.b64decode(sys.stdin.readline())
with tempfile.TemporaryDirectory() as folder:
    file = os.path.join(folder, "program.pyz")
    with open(file, "wb") as target:
        target.write(program)
    sys.path.insert(0, file)
    from jobspec.planning.far_side import main
    sys.stdout.write(main(sys.stdin.readline()) + "\\n")
"""


# What runs there: `planning.far_side` and what it imports.
MODULES = (
    *("__init__", "finding", "plan"),
    *("planning/__init__", "planning/far_side", "planning/git_bundle", "planning/digests"),
    *("planning/image_stage", "planning/registry"),
    *("runtime/__init__", "runtime/base/__init__"),
    *("runtime/base/procs", "runtime/base/safe_write", "runtime/base/signals"),
    *("runtime/base/full_disk", "runtime/base/in_time", "runtime/base/node_lock"),
    *("runtime/staging/__init__", "runtime/staging/hfcache", "runtime/staging/hashing"),
    *("runtime/staging/image_cache", "runtime/staging/image_import", "runtime/staging/listing_checks"),
    *("runtime/checkouts/__init__", "runtime/checkouts/git", "runtime/checkouts/code_state"),
)


def program() -> bytes:
    """The zip archive that runs on the login node, by Python 3.9 or newer."""
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        for module in MODULES:
            folder, _, name = f"jobspec/{module}".rpartition("/")
            package = resources.files(folder.replace("/", "."))
            archive.writestr(f"{folder}/{name}.py", (package / f"{name}.py").read_bytes())
    return stream.getvalue()


class FarSide:
    """A login node that answers questions about its disks."""

    def __init__(self, client: Client) -> None:
        self._client = client

    @property
    def where(self) -> str:
        return self._client.where

    def ask(self, request: Mapping[str, Any], timeout_s: float = ASK_TIMEOUT_S) -> Mapping[str, Any]:
        """The answer of `far_side.main`. Raises: JobspecError when the login node cannot be asked."""
        words = f"{base64.b64encode(program()).decode()}\n{json.dumps(request)}"
        argv = ["bash", "-c", FIND_PYTHON, "bash", PROGRAM]
        done = self._client.run(argv, timeout_s=timeout_s, stdin=words)
        if done.code == NO_PYTHON:
            raise fail(
                "repo.elsewhere",
                f"`{self.where}` has no Python 3.9 or newer",
                why="the files of a cluster behind `access.login` are read by a program that runs there",
                fix="load one in the login shell's profile, or name it there by `export JOBSPEC_PYTHON=PATH`",
                path="repos",
            )
        try:
            answer = json.loads(done.stdout) if done.code == 0 else None
        except ValueError:
            answer = None
        if not isinstance(answer, dict):
            what = f"the checkouts on `{self.where}` cannot be read"
            fix = "try again; the login node needs git and room in its /tmp"
            raise fail("repo.elsewhere", what, done.complaint, fix, path="repos")
        return answer

    def send(self, local: Path, remote: str) -> None:
        self._client.send(local, remote)
