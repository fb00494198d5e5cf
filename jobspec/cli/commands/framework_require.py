"""`framework require`: the levels that a change of Megatron-Bridge asks for, and a spec that runs them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import asdict
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING

from jobspec.cli import output
from jobspec.cli.site_spec import quoted
from jobspec.finding import fail
from jobspec.frameworks.required_when import Need, required, rules_of
from jobspec.planning.changes import changes_since

if TYPE_CHECKING:
    from jobspec.frameworks.base import Framework

MAX_FILES = 5  # of one need that are named


def require(framework: Framework, repo: str, since: str, spec: str | None, as_json: bool) -> int:
    rules = rules_of(framework.name)
    folder = Path(repo).expanduser().absolute()
    changes = changes_since(folder, since)
    needs = required(rules, changes)
    together = [need for need in needs if need.rule.nodes == needs[0].rule.nodes]
    if spec and needs:
        _write(Path(spec), _spec_text(framework.name, folder, together))
    if as_json:
        rows = [{**asdict(need.rule), "asked_by": list(need.asked_by)} for need in needs]
        told = {"spec": spec, "not_in_spec": [row for row in rows if row["nodes"] != rows[0]["nodes"]]}
        answer = {"repo": str(folder), "since": since, "changed": len(changes), "needs": rows}
        output.print_json({**answer, **(told if spec and needs else {})})
        return 0
    print(f"{len(changes)} files changed in {folder} since `{since}`")
    names = {level.number: level.name for level in framework.levels}
    for need in needs:
        rule, more = need.rule, len(need.asked_by) - MAX_FILES
        where = f"{rule.nodes} nodes, {rule.gpus} GPUs" if rule.nodes > 1 else f"GPUs: {rule.gpus}"
        variant = f", variant `{rule.variant}`" if rule.variant else ""
        print(f"\nlevel {rule.level} `{names[rule.level]}`{variant}: {rule.why}")
        print(f"  {where}, time limit {rule.minutes} min")
        print(f"  {', '.join(need.asked_by[:MAX_FILES])}{f' and {more} more' if more > 0 else ''}")
    if not needs:
        print("no rule of the guide asks for a run: nothing below src/ changed that it names")
    elif spec:
        print(f"\nwritten: {spec}")
        for need in needs:
            if need not in together:
                print(
                    f"not in it: level {need.rule.level} `{need.rule.variant}` needs {need.rule.nodes} nodes"
                )
    return 0


def _spec_text(framework: str, repo: Path, needs: Sequence[Need]) -> str:
    """The framework's starter with the levels and variants, the checkout, and room for all of them."""
    text = files("jobspec.cli").joinpath(f"starters/{framework}.yaml").read_text("utf-8")
    levels = list(dict.fromkeys(need.rule.level for need in needs))
    variants = list(dict.fromkeys(need.rule.variant for need in needs if need.rule.variant))
    minutes = sum(need.rule.minutes for need in needs)
    gpus = max(need.rule.gpus // need.rule.nodes for need in needs)
    for pattern, new in (
        (r"  level: .*\n", f"  levels: {levels}   # one training after another, with one summary\n"),
        (r"  # levels: .*\n", ""),
        (r"  variants: .*\n", ""),
        (r"(  levels: .*\n)", rf"\1  variants: [{', '.join(variants)}]\n"),
        (r"  nodes: \d+", f"  nodes: {needs[0].rule.nodes}"),
        (r"gpus_per_node: \d+", f"gpus_per_node: {gpus}"),
        (r"  # time: .*\n", f'  time: "{minutes // 60:02d}:{minutes % 60:02d}:00"\n'),
        (r"path: ~/src/Megatron-Bridge", f"path: {quoted(str(repo))}".replace("\\", r"\\")),
    ):
        text = re.sub(pattern, new, text, count=1)
    return text


def _write(path: Path, text: str) -> None:
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError as problem:
        raise fail("usage.arguments", f"`{path}` is there already", fix="name another file") from problem
    except OSError as problem:
        what = f"`{path}` cannot be written: {problem.strerror}"
        raise fail("usage.arguments", what, fix="name another file") from problem
