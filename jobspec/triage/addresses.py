"""Where the processes of a run say they are, and where they were told to meet."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from itertools import chain

from jobspec.log_search import line_at
from jobspec.log_text import clean
from jobspec.triage.blocks import View
from jobspec.triage.landmarks import Kind, find_first, kind, present
from jobspec.triage.match import Match
from jobspec.words import some

OWN = (
    kind("Bootstrap : Using"),
    kind("Bootstrap: Using"),
    kind("NET/Socket : Using"),
    kind("NET/IB : Using"),
)
_HERE = r"[\"'`]?[=:, ]+[\"'`]?(?:localhost|127\.\d+\.\d+\.\d+)\b"
HERE = tuple(
    kind(name, name + _HERE)
    for name in ("MASTER_ADDR", "master_addr", "master-addr", "rdzv_endpoint", "rdzv-endpoint")
)
_COUNT, _RANK = r"[\"'`]?[=:, ]+[\"'`]?(?:[2-9]|[1-9]\d+)\b", r"[\"'`]?[=:, ]+[\"'`]?[1-9]\d*\b"
SEVERAL = (
    *(kind(name, rf"(?i:\b{name}){_COUNT}") for name in ("NNODES", "nnodes", "SLURM_NNODES", "num_nodes")),
    *(kind(name, rf"\b{name}{_RANK}") for name in ("NODE_RANK", "node_rank", "node-rank")),
)
RUN_ID = (kind("run_id"),)
ALL = (*OWN, *HERE, *SEVERAL, *RUN_ID)
_USED = re.compile(rb"(?:Bootstrap ?|NET/\w+ ): Using ([^\n]*)")
_IP = re.compile(rb"([\w.-]+):(\d+(?:\.\d+){3})<")
# Interfaces of containers and virtual machines of one machine.
_OF_ONE_MACHINE = re.compile(r"(?:br-|docker|virbr|veth|cni|podman|lxc|cali)")
# torchrun's launch configuration, and its warning where `--rdzv-id` is empty.
_RUN_ID = re.compile(rb"(generated a random )?\brun_id *: (\S+)")
_CALLED = re.compile(r"\b[Cc]onnect to (\d+(?:\.\d+){3})<")
MOST_NAMES = 8
NOT_MET = frozenset({"network.too-few", "network.rendezvous"})
NOBODY = "network.no-route"
ONE_PLACE = (
    "`localhost` is another machine on each node: set MASTER_ADDR (torchrun: `--rdzv-endpoint`) on all of"
    " them to the name of one, mostly the first (`scontrol show hostnames $SLURM_JOB_NODELIST | head -n1`)."
    " Else"
)
BRIDGE = (
    "an interface of that name is mostly one of containers or virtual machines, by which another node cannot"
    " be reached: set `network.interface` (NCCL_SOCKET_IFNAME, GLOO_SOCKET_IFNAME) to one that all nodes"
    " share"
)
ONE_RUN = (
    "launchers meet only under one run id, and one that is made at random no other node has: give torchrun"
    " the same id on all nodes of a job (`--rdzv_id=$SLURM_JOB_ID`, or a fixed word; is the variable that it"
    " is taken from set on each node?)"
)


@dataclass
class Addresses:
    """What an attempt's log shows: addresses that NCCL uses with their interfaces, the first line that names
    this machine as the place to meet, the first that counts several nodes, and the launchers' run ids, each
    with its line and whether it was made at random."""

    own: dict[str, str] = field(default_factory=dict)
    here: tuple[int, str] | None = None
    several: tuple[int, str] | None = None
    run_ids: dict[str, tuple[int, bool]] = field(default_factory=dict)

    def add(self, view: View, number: int, hints: Set[str]) -> None:
        """Take the view's own lines; `number` is that of the first."""
        if present(OWN, hints):
            found = chain.from_iterable(_IP.findall(used) for used in _USED.findall(view.text))
            self.own.update((address.decode(), interface.decode()) for interface, address in found)
        self.here = self.here or _first(view, number, present(HERE, hints))
        self.several = self.several or _first(view, number, present(SEVERAL, hints))
        for run_id in _RUN_ID.finditer(view.text) if present(RUN_ID, hints) else ():
            line = number + view.offset(run_id.start()) - view.start
            self.run_ids.setdefault(run_id[2].decode("utf-8", "replace"), (line, run_id[1] is not None))


def with_addresses(matches: Sequence[Match], logs: Sequence[tuple[str, Addresses]]) -> list[Match]:
    """The matches; a connection to an address of no process that these logs show says so, and ranks that did
    not meet say where several nodes were told to meet on their own machine."""
    own = {address: name for _, log in logs for address, name in log.own.items()}
    here = next(((file, *log.here) for file, log in logs if log.here), None)
    several = next(((file, *log.several) for file, log in logs if log.several), None)
    found = [_with_addresses(match, own, here, several) for match in matches]
    apart = _apart(logs) if several is not None else ""
    return [
        replace(match, facts=(*match.facts, apart), fix=ONE_RUN)
        if apart and match.signature in NOT_MET
        else match
        for match in found
    ]


def _apart(logs: Sequence[tuple[str, Addresses]]) -> str:
    """The run ids of launchers that cannot meet under them; "" where there is one that was given."""
    ids = {run: (file, *place) for file, log in logs for run, place in log.run_ids.items()}
    if len(ids) < 2 and not any(random for _, _, random in ids.values()):
        return ""
    told = [
        f"{run} ({file}:{line}{', made at random' if random else ''})"
        for run, (file, line, random) in sorted(ids.items())
    ]
    return f"run ids of the launchers: {some(told, MOST_NAMES)}"


def _with_addresses(
    match: Match,
    own: Mapping[str, str],
    here: tuple[str, int, str] | None,
    several: tuple[str, int, str] | None,
) -> Match:
    if match.signature == NOBODY:
        called = _CALLED.search(match.text)
        if called is not None and _OF_ONE_MACHINE.match(own.get(called[1], "")):
            fact = f"in these logs NCCL has {called[1]} from the interface {own[called[1]]}"
            return replace(match, facts=(*match.facts, fact), fix=BRIDGE)
        if called is None or called[1] in own or len(own) < 2:
            return match
        fact = f"{called[1]} is none of the addresses that NCCL uses in these logs: {_names(own)}"
        return replace(match, facts=(*match.facts, fact))
    if match.signature in NOT_MET and here is not None and several is not None:
        fact = (
            f"{_shown(here)} names the machine itself as the place to meet, {_shown(several)} several nodes"
        )
        return replace(match, facts=(*match.facts, fact), fix=f"{ONE_PLACE} {match.fix}")
    return match


def _first(view: View, number: int, kinds: tuple[Kind, ...]) -> tuple[int, str] | None:
    """Number and text of the first line of one of the kinds."""
    at = find_first(view.text, kinds)
    if at < 0:
        return None
    line = view.text[at : line_at(view.text, at)[1]].decode("utf-8", "replace")
    return number + view.offset(at) - view.start, clean(line).strip()


def _shown(place: tuple[str, int, str]) -> str:
    return f"{place[0]}:{place[1]}: {place[2][:80]}"


def _names(names: Collection[str]) -> str:
    return some(sorted(names), MOST_NAMES)
