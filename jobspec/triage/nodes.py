"""Which nodes say a failure: said by several it is the set-up's, said by one of several it is that node's."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence, Set
from dataclasses import replace
from pathlib import PurePath

from jobspec.log_text import strip_ansi
from jobspec.triage.match import Match
from jobspec.triage.signatures import BLOCKED
from jobspec.words import some

# Kinds of failures for which the node matters.
KINDS = frozenset({"node", "container", "mount", "gpu"})
# Of these it is told which nodes say it: what is not there may be there on others.
PLACES = frozenset({"env", "image", "config", "storage"})
STEP_ENDED = "effect.step-ended"
CRASHED = "host.sigsegv"
FIRST_TASK = re.compile(r"\btasks? 0: ")  # rank 0 does more than the others: its node is no suspect for that
SUSPECT = (
    "start again with `--exclude={node}`, which shows whether it is the node; look there at `nvidia-smi` and"
    " `dmesg` (Xid, segfault), compare its driver with the others', and have it drained. Where another node"
    " crashes then, it is mostly the set-up: frames below the line, where there are any, name the library;"
    " compare its build with torch, glibc and driver"
)
MOST_LINES, MOST_NAMES = 200, 8
_ADDRESS = re.compile(r"[\d.]+|.*:.*")
_LABEL = re.compile(r"(\d+): ")
_TASK_ENDED = re.compile(r"^srun: error: ([\w.-]+): task (\d+): ")
UNTOLD = "?"  # processes whose lines Ray does not repeat
_SPEAKER = re.compile(
    r"\bip=(?P<ip>[\d.]+)\)|^(?:\[?\d{4}-\d\d-\d\d[ T][\d:.,]+\]? )?(?P<nccl>[a-z][\w.-]*):\d+:\d+ \[\d+\] |"
    r"^(?:\d+: )?(?:srun: error: |slurmstepd-|\[)?"
    r"(?!(?:rank|gpu|worker|task|step|tp|dp|pp|ep|cuda|fp|bf|int|uint|float|mxfp|nvfp)\d+\b|python|torch|lib)"
    r"(?P<name>[a-z][a-z.-]*\d[a-z0-9.-]*)(?:: |\])"
)


def speaker(line: bytes) -> str:
    """The node that a line names as its own, else an empty text; `UNTOLD` where Ray left others out."""
    if b"[repeated " in line:
        return UNTOLD
    match = _SPEAKER.search(strip_ansi(line[:400].decode("utf-8", "replace")))
    name = (match["ip"] or match["nccl"] or match["name"]) if match is not None else ""
    return short(name)


def short(name: str) -> str:
    """A node's name without its domain, which not all programs give; an address as it is."""
    return name if _ADDRESS.fullmatch(name) else name.partition(".")[0]


def with_nodes(matches: Sequence[Match], speakers: Sequence[Mapping[str, Set[str]]]) -> list[Match]:
    """The matches with the fact of which nodes say the same. `speakers`: nodes by signature, for each log."""
    said: dict[str, set[str]] = {}
    for log in speakers:
        for signature, names in log.items():
            said.setdefault(signature, set()).update(names)
    files: dict[str, set[str]] = {}
    for match in matches:
        node = match.node or _in_name(match.file, said.get(STEP_ENDED, ()))
        said.setdefault(match.signature, set()).update({short(node)} - {""})
        files.setdefault(match.signature, set()).add(match.file)
    every = set[str]().union(*said.values()) - {UNTOLD}
    if len({_ADDRESS.fullmatch(name) is None for name in every}) > 1:
        every = set()  # as many addresses as names: how many nodes these are is not known
    tasks = {ended[2]: ended[1] for match in matches if (ended := _TASK_ENDED.search(match.text))}
    return [_with_nodes(match, said, files[match.signature], every, tasks) for match in matches]


def _in_name(file: str, nodes: Collection[str]) -> str:
    """Which of the nodes a log's own name has; empty where that is none, or more than one."""
    told = {name for name in nodes if re.search(rf"(?<!\w){re.escape(name)}(?!\w)", PurePath(file).name)}
    return told.pop() if len(told) == 1 else ""


def _with_nodes(
    match: Match,
    said: Mapping[str, Set[str]],
    files: Set[str],
    every: Set[str],
    tasks: Mapping[str, str],
) -> Match:
    crashed = match.signature == CRASHED and match.verdict == BLOCKED and not FIRST_TASK.search(match.text)
    if (match.kind not in KINDS | PLACES and not crashed) or UNTOLD in said[match.signature]:
        return match
    if len({_ADDRESS.fullmatch(name) is None for name in said[match.signature]}) > 1:
        return match  # an address and a name may be one node
    if crashed:
        return _suspect(match, said[match.signature], every)
    names, ended = said[match.signature], set(said.get(STEP_ENDED, ())) - {UNTOLD}
    if match.kind in PLACES:
        return replace(match, facts=(*match.facts, f"said by {_names(names)}")) if len(names) > 1 else match
    if len(names) > 1:
        fact = f"said by {_names(names)}: excluding one node does not help"
    elif not names and len(files) > 1:
        fact = f"said in {_names(files)}: if these are of different nodes, it is no matter of one"
    elif names and len(every) > 1:
        fact = _alone(names, every)
        match = replace(match, node=match.node or min(names))
    elif not names and len(ended) > 1:
        task = _task(match)
        labelled = any(_LABEL.match(line.lstrip()) for line in match.context)
        label = " (a number `N:` before it is srun's, of the task)" if labelled else ""
        where = f"the line names no node{label}"
        if task in tasks:
            where = f"the line is of task {task}, which srun puts on {tasks[task]}"
        fact = f"srun tells of failed tasks on {_names(ended)}, of which some may be effects; {where}"
    else:
        return match
    return replace(match, facts=(*match.facts, fact))


def _task(match: Match) -> str:
    """The number that `srun --label` wrote before the line; empty without one."""
    lines = (line for line in match.context if match.text and match.text in line)
    return next((found[1] for line in lines if (found := _LABEL.match(line))), "")


def _suspect(match: Match, names: Set[str], every: Set[str]) -> Match:
    """The crash before the training; as the node's where only one of several nodes tells of it."""
    if len(names) != 1 or len(every) == 1:
        return match
    node, fact = min(names), _alone(names, every)
    return replace(
        match,
        kind="node",
        title=f"{match.title}, inferred: {node} is the suspect, as only its lines tell of a crash",
        fix=SUSPECT.format(node=node),
        facts=(*match.facts, fact),
    )


def _alone(names: Set[str], every: Set[str]) -> str:
    """Of other nodes these logs may name more: those count whose lines are known."""
    return f"only {_names(names)} says it, of {len(every)} nodes with lines that triage knows"


def _names(nodes: Set[str]) -> str:
    return some(sorted(nodes), MOST_NAMES)
