"""Compares the versions that a checkout locks with those of the environment that a run brings itself.

SkyRL's own way to start is `uv run`, which builds what uv.lock says. An image or a virtual environment may
hold other versions, and a wrong version shows late: vllm-router 0.1.17 from PyPI ended a run after two
minutes on the GPU, where the lock of a9564572 has 0.1.14.post1. So the run first prints its versions.
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
    versions: dict[str, list[str]] = {}
    for name, version in ENTRY.findall(text):
        if name in PACKAGES and _public(version) not in versions.setdefault(name, []):
            versions[name].append(_public(version))
    return versions


def probe(launcher: tuple[str, ...], checkout: Path, strategy: str) -> str:
    """Bash that prints the versions that `launcher`'s Python has; empty for `uv`, or without a lock."""
    packages = locked(checkout)
    if strategy != "megatron":
        packages = {name: versions for name, versions in packages.items() if name not in MEGATRON_ONLY}
    if not packages or "-m" not in launcher or not PYTHON.match(PurePath(launcher[0]).name):
        return ""
    text = (
        resources.files("jobspec.frameworks.skyrl")
        .joinpath("installed_versions.py")
        .read_text(encoding="utf-8")
    )
    command = f"{shlex.quote(launcher[0])} - {shlex.quote(json.dumps(packages))}"
    return f"{command} <<'JOBSPEC_PROBE'\n{text}JOBSPEC_PROBE"


def judge(messages: list[tuple[re.Match[str], EvidenceItem]]) -> Deliverable:
    """Whether the packages are those of the lock. Not required: other versions may work as well."""
    differ = [(match, item) for match, item in messages if match[2] not in match[3].split(",")]
    if not differ:
        reason = f"{len(messages)} packages have the versions that the checkout locks"
        first = tuple(item for _, item in messages[:1])
        return Deliverable(ENVIRONMENT, Status.PASS, first, reason, required=False)
    differences = "; ".join(
        f"{_installed(match)}, locked {match[3].replace(',', ' or ')}" for match, _ in differ
    )
    items = tuple(item for _, item in differ)
    reason = f"versions differ from the checkout's lock: {differences}"
    return Deliverable(ENVIRONMENT, Status.FAIL, items, reason, required=False)


def _installed(match: re.Match[str]) -> str:
    return f"{match[1]} {match[2]}" if match[2] != "missing" else f"{match[1]} is missing"


def _public(version: str) -> str:
    """Without the local part, which names a build: `2.11.0+cu130` is 2.11.0."""
    return version.partition("+")[0]
