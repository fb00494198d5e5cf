"""Compares the versions that a checkout locks with those of the environment that a run brings itself.

SkyRL's own way to start is `uv run`, which builds what uv.lock says. An image or a virtual environment may
hold other versions, and a wrong version shows late: vllm-router 0.1.17 from PyPI ended a run after two
minutes on the GPU, where the lock of a9564572 has 0.1.14.post1. So the run first prints its versions.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from pathlib import Path, PurePath
from typing import Any

from jobspec.frameworks.shared.piped_script import piped_script
from jobspec.verdict import Deliverable, EvidenceItem, Status

ENVIRONMENT = "Environment"
PACKAGES = (
    "vllm", "vllm-router", "ray", "torch", "transformers",
    "megatron-core", "megatron-bridge", "transformer-engine",
)  # fmt: skip
HINT = "jobspec: package"
SAID = re.compile(rf"^{HINT} (\S+) is (\S+), locked (\S+)\s*$")
PYTHON = re.compile(r"python(\d(\.\d+)?)?$")
# Where SkyRL's GPUs are. A lock has entries of other platforms as well, told by their markers.
PLATFORMS = tuple({"sys_platform": "linux", "platform_machine": machine} for machine in ("x86_64", "aarch64"))
CLAUSE = re.compile(r"(platform_machine|sys_platform) (==|!=) '([^']*)'")
MEGATRON_ONLY = frozenset(name for name in PACKAGES if name.startswith(("megatron", "transformer-engine")))


def locked(checkout: Path) -> dict[str, list[str]]:
    """Versions of `PACKAGES` that uv.lock has for Linux with GPUs; empty without a lock that can be read."""
    try:
        entries = tomllib.loads((checkout / "uv.lock").read_text(encoding="utf-8")).get("package", [])
    except (OSError, ValueError):
        return {}
    versions: dict[str, list[str]] = {}
    for entry in entries:
        name, version = entry.get("name"), _comparable(entry)
        wanted = name in PACKAGES and version and _is_for_gpus(entry)
        if wanted and version not in versions.setdefault(name, []):
            versions[name].append(version)
    return versions


def _is_for_gpus(entry: Mapping[str, Any]) -> bool:
    """Whether one of the entry's markers holds on a platform with GPUs.

    uv writes them as conjunctions; a clause about anything else than the platform counts as true.
    """
    markers = entry.get("resolution-markers", [])
    return not markers or any(
        all((where[key] == word) == (sign == "==") for key, sign, word in CLAUSE.findall(marker))
        for marker in markers
        for where in PLATFORMS
    )


def probe(launcher: tuple[str, ...], checkout: Path, strategy: str) -> str:
    """Bash that prints the versions that `launcher`'s Python has; empty for `uv`, or without a lock."""
    packages = locked(checkout)
    if strategy != "megatron":
        packages = {name: versions for name, versions in packages.items() if name not in MEGATRON_ONLY}
    if not packages or not brings_own(launcher):
        return ""
    return piped_script("jobspec.frameworks.skyrl", "installed_versions.py", launcher[0], packages)


def brings_own(launcher: tuple[str, ...]) -> bool:
    """Whether the run starts by a Python of its own, and not by `uv` with what the checkout locks."""
    return "-m" in launcher and PYTHON.match(PurePath(launcher[0]).name) is not None


def judge(messages: list[tuple[re.Match[str], EvidenceItem]]) -> Deliverable:
    """Whether the packages are those of the lock. Not required: other versions may work as well."""
    differ = [
        (match, item)
        for match, item in messages
        if not any(_same(match[2], wanted) for wanted in match[3].split(","))
    ]
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


def _comparable(entry: Mapping[str, Any]) -> str:
    """The entry's version, with the local part only where that names a commit: `2.11.0+cu130` is 2.11.0."""
    version = str(entry.get("version", ""))
    return version if "git" in entry.get("source", {}) else version.partition("+")[0]


def _same(found: str, wanted: str) -> bool:
    """Whether the versions are alike; git shortens a commit to as many letters as it needs."""
    (release, _, commit), (locked_release, _, pinned) = found.partition("+"), wanted.partition("+")
    if release != locked_release or not (commit and pinned):
        return found == wanted
    return commit.startswith(pinned) or pinned.startswith(commit)
