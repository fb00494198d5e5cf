"""What a run had beside its metrics, against another run or this machine: same, differs, can't tell.

A fact that one side does not record is never called the same.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from jobspec.plan import NOT_PINNED

if TYPE_CHECKING:
    from jobspec.evidence.evidence import Evidence
    from jobspec.plan import Plan

SAME, DIFFERS, UNKNOWN = "same", "differs", "can't tell"
COMMIT = re.compile(r"[0-9a-f]{40}")  # in its place a lock may say why there is none
PER_RUN = ("JOBSPEC_",)  # variables that name folders of one run


@dataclass(frozen=True)
class Fact:
    """One thing that could change a result, on both sides; empty where nobody recorded it."""

    name: str
    was: str = ""
    now: str = ""

    @property
    def word(self) -> str:
        if not (self.was and self.now):
            return UNKNOWN
        return SAME if self.was == self.now else DIFFERS


def compared(was: Mapping[str, str], now: Mapping[str, str]) -> tuple[Fact, ...]:
    """The facts of both sides, in the order in which they are known."""
    names = dict.fromkeys((*was, *now))
    return tuple(Fact(name, *_apart(was.get(name, ""), now.get(name, ""))) for name in names)


def _apart(was: str, now: str) -> tuple[str, str]:
    """Of texts of several lines, such as the environment, the lines that only one side has."""
    if not (was and now) or was == now:
        return was, now
    one, other = was.split("\n"), now.split("\n")
    left, right = ([line for line in some if line not in rest] for some, rest in ((one, other), (other, one)))
    return ", ".join(left) or "none", ", ".join(right) or "none"


def planned_facts(plan: Plan, lock: Mapping[str, Any]) -> dict[str, str]:
    """What a plan and the lock of the same spec pin. An empty text stands for what they leave open."""
    pinned = lock.get("lock") or {}
    facts = {code_of(repo.name): _code(pinned, repo.name) for repo in plan.repos} or {"code": ""}
    if plan.container.image:
        pin = _text(pinned, "image")
        facts["image"] = "" if pin == NOT_PINNED else pin
    for name in plan.service_containers:
        pin = _text(pinned, "services", name, "image")
        facts[f"image of service `{name}`"] = "" if pin == NOT_PINNED else pin
    for item in plan.stage:
        name = "model" if item.kind == "model" else f"data `{item.name}`"
        pinned_at = "" if item.layout == "plain" or item.moves else item.revision
        facts[name] = pinned_at or _text(pinned, "inputs", item.name)
    train = lock.get("train")
    seed = train.get("seed") if isinstance(train, Mapping) else None
    facts["seed"] = "" if seed is None else str(seed)
    facts["environment"] = _environment(plan)
    groups = [f"{part.name} {part.nodes} x {part.gpus_per_node}" for part in plan.groups]
    facts["GPUs per node"] = ", ".join(groups) or str(plan.gpus_per_node)
    facts["nodes"] = str(plan.nodes)
    facts["jobspec"] = str(pinned.get("jobspec") or "")
    facts["site profile"] = str(pinned.get("cluster_sha256") or "")[:12]
    return facts


def seen_facts(evidence: Evidence) -> dict[str, str]:
    """What the nodes of a run's last attempt said about themselves."""
    results = evidence.last.results if evidence.last is not None else None
    nodes = [node.facts for node in results.nodes] if results is not None else []
    facts = {"Python": _over(nodes, "python")}
    if evidence.plan.gpus_per_node:
        facts |= {"GPU type": _over(nodes, "gpu_type"), "driver": _over(nodes, "driver")}
    packages = [item.get("packages") for item in nodes]
    known = [item for item in packages if isinstance(item, Mapping)]
    names = sorted({str(name) for item in known for name in item})
    return facts | {f"package {name}": _over(known, name) for name in names}


def machine_facts(plan: Plan, was: Mapping[str, str]) -> dict[str, str]:
    """The same of this machine before a run: empty for what only the run's nodes and their Python know."""
    facts = dict.fromkeys(was, "")
    if plan.scheduler == "local" and plan.container.python == sys.executable:
        from jobspec.runtime.node.software import software

        here = software()
        facts |= {"Python": ".".join(map(str, sys.version_info[:3]))}
        if plan.gpus_per_node:
            facts |= {"GPU type": str(here["gpu_type"]), "driver": str(here["driver"])}
        found = here["packages"]
        facts |= {f"package {name}": text for name, text in found.items()} if isinstance(found, dict) else {}
    return facts


def code_of(repo: str) -> str:
    return f"code `{repo}`"


def _code(pinned: Mapping[str, Any], name: str) -> str:
    commit, patch = (_text(pinned, "repos", name, key) for key in ("commit", "patch_sha256"))
    if not COMMIT.fullmatch(commit) or _text(pinned, "repos", name, "left_out"):
        return ""
    return commit[:12] + (f" with changes {patch[:8]}" if patch else "")


def _text(data: Any, *keys: str) -> str:
    for key in keys:
        data = data.get(key) if isinstance(data, Mapping) else None
    return "" if data is None else str(data)


def _environment(plan: Plan) -> str:
    """The variables, with the run's folders by their kind: these lie elsewhere on another site."""
    folders = {repo.path: f"<{repo.name}>" for repo in plan.repos}
    folders |= {plan.hf_home: "<hf>", plan.runs: "<runs>", plan.node_local: "<local>"}
    named = sorted((item for item in folders.items() if item[0]), key=lambda item: -len(item[0]))
    return "\n".join(f"{name}={_under(value, named)}" for name, value in _variables(plan)) or "none"


def _variables(plan: Plan) -> Iterator[tuple[str, str]]:
    for name, value in sorted({**plan.env, **plan.container.env}.items()):
        if not name.startswith(PER_RUN):
            yield name, value


def _under(value: str, folders: list[tuple[str, str]]) -> str:
    for folder, name in folders:
        value = value.replace(folder, name)
    return value


def _over(nodes: list[Mapping[str, Any]], key: str) -> str:
    """What all nodes say; each distinct text once."""
    return ", ".join(sorted({str(node[key]) for node in nodes if node.get(key)}))
