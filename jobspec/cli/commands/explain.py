"""Show every resolved value of a spec and where it came from: file and line, --set, site profile, default.

KEY, for example `train.steps` or `resources`, limits the list to that value or section. KEY `memory` prints
the memory that a Megatron run needs on GPUs and hosts.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from jobspec import pipeline
from jobspec.cli import output, parser
from jobspec.finding import fail, stop_on_errors
from jobspec.planning.run_site import WORDS
from jobspec.spec.paths import parse_path

if TYPE_CHECKING:
    from jobspec.plan import Plan, SlurmPlan
    from jobspec.planning.resolve import Resolved


def add_arguments(into: argparse.ArgumentParser) -> None:
    parser.add_spec(into)
    into.add_argument(
        "key", metavar="KEY", nargs="?", default="", help="dotted path of a value or a section, or `memory`"
    )
    into.add_argument(
        "--plan", action="store_true", help="print the whole plan as JSON, as render and submit use it"
    )
    parser.add_json(into)


def run(args: argparse.Namespace) -> int:
    resolved = pipeline.resolve(parser.request(args))
    if args.plan:
        from jobspec.plan import to_json

        stop_on_errors(resolved.findings)
        print(to_json(resolved.ready_plan), end="")
        return 0
    if args.key == "memory":
        from jobspec.cli.commands.memory import print_memory

        return print_memory(resolved, args.json)
    found = values(resolved, args.key)
    if args.json:
        output.print_json({key: {"value": value, "origin": origin} for key, (value, origin) in found.items()})
        return 0
    rows = [(key, _shown(value), origin) for key, (value, origin) in found.items()]
    output.print_table(("KEY", "VALUE", "FROM"), rows)
    output.print_findings(resolved.findings)
    return 2 if any(finding.is_error for finding in resolved.findings) else 0


def values(resolved: Resolved, section: str = "") -> dict[str, tuple[Any, str]]:
    """Dotted key -> (value, origin) of a value or section, else of all. Raises: JobspecError for none."""
    known = _values(resolved)
    found = {key: value for key, value in known.items() if _below(key, section)}
    if not found:
        raise _unknown(section, list(known))
    return found


def _values(resolved: Resolved) -> dict[str, tuple[Any, str]]:
    """Dotted key -> (value, origin) of everything that has an origin."""
    planned = _planned(resolved.plan)
    return {
        key: (_value(resolved, planned, key), f"{origin.kind} {origin.where}".strip())
        for key, origin in sorted(resolved.origins.items())
        if not (key == "lock" and origin.kind == "default")  # only a lock has one
    }


def _planned(plan: Plan | None) -> dict[str, Any]:
    """Values that the resolver chooses where the spec leaves them open."""
    if plan is None:
        return {}
    return {
        "coverage.level": plan.expect.level,
        "train.steps": plan.expect.steps or None,
        "resources.gpus_per_node": plan.gpus_per_node,
        "resources.time": plan.slurm.time or None,
        "hf_cache.home": plan.hf_home or None,
        **{f"{at}container.python": one.python for at, one in plan.containers},
        **{f"{at}container.image": one.image or None for at, one in plan.containers},
        "checkpoint.dir": plan.checkpoint_dir or None,
        "cluster": plan.cluster,
        **_slurm(plan.slurm),
        **_groups(plan),
    }


def _groups(plan: Plan) -> dict[str, Any]:
    found: dict[str, Any] = {"resources.nodes": plan.nodes} if plan.groups else {}
    for index, group in enumerate(plan.groups):
        found[f"groups[{index}].gpus_per_node"] = group.gpus_per_node
        found[f"groups[{index}].cpus_per_node"] = group.cpus_per_node
    return found


def _slurm(slurm: SlurmPlan) -> dict[str, Any]:
    """The options of `slurm` as they are asked for, the site's included."""
    mail = {"slurm.mail.events": list(slurm.mail_events), "slurm.mail.user": slurm.mail_user}
    names = (*WORDS, "exclude", "extra_sbatch")
    words = {f"slurm.{name}": getattr(slurm, name) or None for name in names}
    return {**words, **mail, "slurm.avoid_listed": slurm.avoid_listed}


def _value(resolved: Resolved, planned: Mapping[str, Any], key: str) -> Any:
    """The value of a key: the resolver's choice, the spec's value, the plan's, or the model's default."""
    if (key in resolved.chosen or key == "coverage.level") and planned.get(key) is not None:
        return planned[key]  # a level by its name, even if the spec has its number
    path = parse_path(key)
    value = find_value(resolved.loaded.data, path)
    if value is None:
        value = planned.get(key)
    return find_value(resolved.spec, path) if value is None else value


def find_value(data: Any, path: tuple[str | int, ...]) -> Any:
    """The value at a path through mappings, sequences and structs; None when there is none."""
    for part in path:
        if isinstance(data, msgspec.Struct):
            names = {item.encode_name: item.name for item in msgspec.structs.fields(data)}
            data = getattr(data, names.get(str(part), ""), None)
        elif isinstance(data, dict):
            data = data.get(part)
        elif isinstance(data, list | tuple) and isinstance(part, int) and part < len(data):
            data = data[part]
        else:
            return None
    return data


def _below(key: str, section: str) -> bool:
    return not section or key == section or key.startswith((f"{section}.", f"{section}["))


def _shown(value: Any) -> str:
    text = value if isinstance(value, str) and value else json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= 72 else f"{text[:69]}..."


def _unknown(key: str, known: list[str]) -> Exception:
    from difflib import get_close_matches

    sections = {known_key[:at] for known_key in known for at, mark in enumerate(known_key) if mark in ".["}
    close = get_close_matches(key, [*known, *sorted(sections), "memory"], n=1)
    return fail(
        "usage.key",
        f"the spec has no value `{key}`",
        why=f"did you mean `{close[0]}`?" if close else "",
        fix="`jobspec explain SPEC` lists all keys",
    )
