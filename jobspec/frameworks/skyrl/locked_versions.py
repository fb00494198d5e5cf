"""The versions that a checkout locks, against those of the environment that a run brings itself.

SkyRL's own way to start is `uv run`, which builds what uv.lock says. An image or a virtual environment may
hold anything, and what does not fit shows late: vllm-router 0.1.17 from PyPI ended a run after two minutes on
the GPU, where the lock of a9564572 has 0.1.14.post1. So the run says first what it has.
"""

from __future__ import annotations

import json
import re
import shlex
from importlib import resources
from pathlib import Path, PurePath

from jobspec.verdict import Deliverable, EvidenceItem, Status

ENVIRONMENT = "Environment"
PACKAGES = (
    "vllm", "vllm-router", "ray", "torch", "transformers",
    "megatron-core", "megatron-bridge", "transformer-engine",
)  # fmt: skip
ENTRY = re.compile(r'^name = "([\w.-]+)"\nversion = "([^"]+)"$', re.MULTILINE)
HINT = "jobspec: package"
SAID = re.compile(rf"^{HINT} (\S+) is (\S+), locked (\S+)\s*$")
PYTHON = re.compile(r"python(\d(\.\d+)?)?$")
MEGATRON_ONLY = frozenset(name for name in PACKAGES if name.startswith(("megatron", "transformer-engine")))


def locked(checkout: Path) -> dict[str, list[str]]:
    """Versions of `PACKAGES` in uv.lock, several where it has one for each platform; empty without a lock."""
    try:
        text = (checkout / "uv.lock").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return {}
    found: dict[str, list[str]] = {}
    for name, version in ENTRY.findall(text):
        if name in PACKAGES and _public(version) not in found.setdefault(name, []):
            found[name].append(_public(version))
    return found


def probe(launcher: tuple[str, ...], checkout: Path, strategy: str) -> str:
    """Bash that says what the interpreter of `launcher` has; empty when it is `uv`, or nothing is locked."""
    wanted = locked(checkout)
    if strategy != "megatron":
        wanted = {name: versions for name, versions in wanted.items() if name not in MEGATRON_ONLY}
    if not wanted or "-m" not in launcher or not PYTHON.match(PurePath(launcher[0]).name):
        return ""
    text = (
        resources.files("jobspec.frameworks.skyrl")
        .joinpath("installed_versions.py")
        .read_text(encoding="utf-8")
    )
    command = f"{shlex.quote(launcher[0])} - {shlex.quote(json.dumps(wanted))}"
    return f"{command} <<'JOBSPEC_PROBE'\n{text}JOBSPEC_PROBE"


def judge(said: list[tuple[re.Match[str], EvidenceItem]]) -> Deliverable:
    """Whether the packages are those of the lock. Others may work as well, so this alone decides nothing."""
    differ = [(match, item) for match, item in said if match[2] not in match[3].split(",")]
    if not differ:
        reason = f"{len(said)} packages are as the checkout locks them"
        first = tuple(item for _, item in said[:1])
        return Deliverable(ENVIRONMENT, Status.PASS, first, reason, required=False)
    told = "; ".join(f"{_installed(match)}, locked {match[3].replace(',', ' or ')}" for match, _ in differ)
    items = tuple(item for _, item in differ)
    return Deliverable(ENVIRONMENT, Status.FAIL, items, f"not as the checkout locks: {told}", required=False)


def _installed(match: re.Match[str]) -> str:
    return f"{match[1]} {match[2]}" if match[2] != "missing" else f"{match[1]} is missing"


def _public(version: str) -> str:
    """Without the local part, which names a build: `2.11.0+cu130` is 2.11.0."""
    return version.partition("+")[0]
