"""Dumps of all nodes, asked for by somebody or by the watch: two samples, what they say together, files.

`attempts/<n>/dumps/ask-ID` asks for one, `done-ID` names the folder of the answer. Whoever asks on the head's
node uses the same mount as the head, so a network file system shows both the files at once.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import threading
import time
import traceback
from dataclasses import asdict
from pathlib import Path
from typing import Any, Dict, List, Mapping, Optional, Sequence

from jobspec.runtime.base import procs
from jobspec.runtime.base.full_disk import refusal
from jobspec.runtime.base.safe_write import write_text
from jobspec.runtime.head.nodes import Nodes
from jobspec.runtime.node.agent import Node
from jobspec.runtime.stalls import cohorts, flight, kinds, ras, stacks, waits
from jobspec.runtime.stalls.cohorts import Cohort, View
from jobspec.runtime.stalls.explain import explain
from jobspec.runtime.stalls.explanation import Explanation
from jobspec.runtime.stalls.flight import Front
from jobspec.runtime.stalls.stacks import Process

APART_S, MOST_APART_S = 30.0, 300.0
NODE_S = 60.0  # for one sample of all nodes
RAY_S = 30.0
STATE = "jobspec.runtime.raycluster.state"
SHOWN_FRAMES, SHOWN_GROUPS = 12, 20
MODE = 0o600  # stacks may show what a program works on


class Dumps:
    """Takes dumps, one at a time, numbered from 1."""

    def __init__(self, folder: Path, hosts: Sequence[str], nodes: Nodes, node: Node) -> None:
        self._folder = folder
        self._hosts = hosts
        self._nodes = nodes
        self._node = node
        self._lock = threading.Lock()
        self.closed = threading.Event()

    def asked(self) -> List[Path]:
        try:
            return sorted(self._folder.glob("ask-*"))
        except OSError:
            return []

    def answer(self, ask: Path) -> None:
        """Take the dump that the file asks for, and say where it is."""
        apart = APART_S
        with contextlib.suppress(OSError, ValueError):
            apart = min(MOST_APART_S, max(0.0, float(ask.read_text())))
        ask.unlink(missing_ok=True)  # first: one that fails is not asked for again and again
        found = self.take("asked for", apart)
        write_text(self._folder / ask.name.replace("ask-", "done-"), f"{found[1].name}\n", mode=MODE)

    def failed(self, problem: OSError) -> None:
        """Say in agent.log, to which `jobspec dump` sends those who get no answer, why there is no dump."""
        self._node.say(f"no dump: {refusal(problem)[0]} (`{problem.filename}`)")

    def take(self, why: str, apart_s: float = APART_S) -> "tuple[Explanation, Path]":
        """Two samples and their explanation, in a folder of their own."""
        with self._lock:
            folder = self._folder / str(1 + sum(path.is_dir() for path in self._folder.glob("*")))
            folder.mkdir(parents=True, mode=0o700)
            first = self._sample(folder, 1)
            self.closed.wait(apart_s)
            second = self._sample(folder, 2) if apart_s else {}
            replies = second or first
            view = View(
                _processes(first),
                _processes(second),
                fronts=_fronts(replies, _processes(replies)),
                ray=self._ray(),
                complete=len(replies) == len(self._hosts),
                ras=_troubles(first, second),
            )
            found = _explained(view)
            write_text(
                folder / "report.txt", _report(found, view, replies, self._hosts, why, folder), mode=MODE
            )
            write_text(folder / "explanation.json", json.dumps(plain(found), indent=1) + "\n", mode=MODE)
            return found, folder

    def _sample(self, folder: Path, number: int) -> Mapping[str, Mapping[str, Any]]:
        """The answers of the nodes that gave one in time."""
        calls = self._nodes.call_all("dump")
        self._nodes.settle(calls, NODE_S)
        replies = {
            self._hosts[call.index]: call.reply for call in calls if call.reply and "text" in call.reply
        }
        for name, reply in replies.items():
            head = f"# sample {number} of node {name} at {time.strftime('%Y-%m-%dT%H:%M:%S%z')}\n"
            write_text(folder / f"{name}-{number}.txt", head + str(reply["text"]), mode=MODE)
            if reply.get("ras"):
                write_text(folder / f"{name}-{number}.ras.txt", str(reply["ras"]), mode=MODE)
            if reply.get("recorders"):
                told = json.dumps(reply["recorders"])
                write_text(folder / f"{name}-{number}.recorders.json", told, mode=MODE)
        return replies

    def _ray(self) -> Mapping[str, Any]:
        """What Ray waits for; nothing where no Ray runs or it does not answer."""
        address = self._node.env.get("RAY_ADDRESS", "")
        if not address:
            return {}
        try:
            status, out, _ = procs.output([sys.executable, "-m", STATE, address], RAY_S, self._node.env)
            told: Mapping[str, Any] = json.loads(out) if status == 0 else {}
        except (OSError, ValueError, subprocess.TimeoutExpired):
            return {}
        return told


def _explained(view: View) -> Explanation:
    """The explanation. A fault of its rules costs neither the stacks nor the watch."""
    try:
        return explain(view)
    except Exception as fault:  # noqa: BLE001 - whatever it is
        at = traceback.extract_tb(fault.__traceback__)[-1]
        told = f"{type(fault).__name__}: {fault} ({Path(at.filename).name}:{at.lineno} {at.name})"
        what = "jobspec failed to read what the stacks show, a fault of its own"
        return Explanation("unknown", what, told, "read the stacks, and report this line", inferred=True)


def _processes(replies: Mapping[str, Mapping[str, Any]]) -> List[Process]:
    return [one for name, reply in replies.items() for one in stacks.read(str(reply["text"]), name)]


def _fronts(replies: Mapping[str, Mapping[str, Any]], processes: Sequence[Process]) -> List[Front]:
    """What the flight recorders show together. An engine's ranks have the same numbers as the trainer's: only
    where one kind of process has answered, each rank once, do they belong together."""
    rows = [(node, row) for node, reply in replies.items() for row in reply.get("recorders", ())]
    owners = {(one.node, str(one.facts.get("nccl_rank"))): cohorts.role(one) for one in processes}
    kinds = {owners.get((node, str(row["rank"]))) for node, row in rows}
    if len(kinds) != 1 or None in kinds or len({row["rank"] for _, row in rows}) < len(rows):
        return []
    return flight.fronts(flight.from_compact(row) for _, row in rows)


def _troubles(
    first: Mapping[str, Mapping[str, Any]], second: Mapping[str, Mapping[str, Any]]
) -> List[ras.Trouble]:
    """What NCCL's RAS complains about in both samples. Any node tells of all; what moves is none."""
    texts = [
        next((str(reply["ras"]) for reply in replies.values() if reply.get("ras")), "")
        for replies in (first, second or first)
    ]
    before, now = (ras.read(text) for text in texts)
    said = {str(one) for one in before}
    return [one for one in now if str(one) in said]


def plain(found: Explanation) -> Dict[str, Any]:
    """The explanation as JSON data."""
    return {
        "kind": found.kind,
        "what": found.what,
        "why": found.why,
        "fix": found.fix,
        "blocked": found.blocked,
        "inferred": found.inferred,
        "frozen": found.frozen,
        "node": found.node,
        "frame": asdict(found.frame) if found.frame else None,
        "named": [
            {"rank": _rank(p, found), "node": p.node, "pid": p.pid, "command": p.command} for p in found.named
        ],
        "groups": [_group(group) for group in found.cohorts[:SHOWN_GROUPS]],
    }


def _rank(process: Process, found: Explanation) -> str:
    """Its rank. A run of one program has rank 0 alone, which has started all others, unless these are ranks
    of a group that it has made itself."""
    made = any(group.wait.kind in kinds.ON_RANKS for group in found.cohorts)
    alone = not made and not process.command.startswith("ray::")
    return process.rank or (str(process.facts.get("only_rank", "")) if alone else "")


def _group(group: Cohort) -> Dict[str, Any]:
    members = [{"rank": p.rank, "node": p.node, "pid": p.pid} for p in group.members]
    return {"does": cohorts.group_line(group), "kind": group.wait.kind, "members": members}


def _report(
    found: Explanation,
    view: View,
    replies: Mapping[str, Mapping[str, Any]],
    hosts: Sequence[str],
    why: str,
    folder: Path,
) -> str:
    """The text that `jobspec dump` prints."""
    lines = [f"what: {found.what}"]
    lines += [f"{name}: {text}" for name, text in (("why", _why(found, view)), ("fix", found.fix)) if text]
    taken = sum(bool(one.threads) for one in view.last)
    seen = f"stacks of {taken} process{'es' * (taken != 1)} on {len(replies)} of {len(hosts)} nodes"
    lines += ["", f"groups ({why}; {seen}):"]
    for group in found.cohorts[:SHOWN_GROUPS]:
        lines += [f"- {cohorts.group_line(group)}", *_stack(group)]
    rest = len(found.cohorts) - SHOWN_GROUPS
    lines += [f"- {rest} further group{'s' * (rest != 1)}"] if rest > 0 else []
    lines += _without_stack(view)
    lines += [
        f"Ray: {row}"
        for key in ("pending", "queued", "restarting", "retried", "dead")
        for row in view.ray.get(key, ())
    ]
    lines += [f"not taken on {name}: {note}" for name, reply in replies.items() for note in reply["notes"]]
    lines += [f"no answer of {name} within {NODE_S:.0f} s" for name in hosts if name not in replies]
    for name, reply in replies.items():
        facts = ", ".join(f"{key} {value}" for key, value in reply.get("node", {}).items())
        lines.append(f"{name}: {facts}")
    return "\n".join([*lines, f"files: {folder}", ""])


def _stack(group: Cohort) -> List[str]:
    """The stack of a group; where it is not that of all members, whose it is."""
    frames = group.wait.thread.frames if group.wait.thread else ()
    shown = [f"    {frame}{f'  | {frame.text}' if frame.text else ''}" for frame in frames[:SHOWN_FRAMES]]
    cut = len(frames) - SHOWN_FRAMES
    shown += [f"    ({cut} further frame{'s' * (cut != 1)})"] if cut > 0 else []
    differ = [one for one in group.members if (thread := waits.of(one).thread) and thread.frames != frames]
    if group.wait.kind == kinds.BUSY and shown:
        shown = ["    (taken while it ran: frames may be missing)", *shown]
    if not differ or not shown:
        return shown
    same = [one for one in group.members if one not in differ]
    return [f"    of {cohorts.names(same)}; that of {cohorts.names(differ)} is another one:", *shown]


def _without_stack(view: View) -> List[str]:
    """Programs for which a process waits, of which no stack was taken, such as those that are no Python."""
    seen = {(one.node, one.pid) for one in view.last}
    rows = {
        (one.node, row[0]): row
        for one in view.last
        if not cohorts.is_service(one)
        for behind in one.facts.get("behind", {}).values()
        for row in behind
        if (one.node, row[0]) not in seen
    }
    return [
        f"- pid {pid} (`{' '.join(str(command).split())}`) on `{node}`: no stack was taken"
        + (f"; it stands in `{call}`" if call else "")
        for (node, pid), (_, command, call, *_) in list(rows.items())[:SHOWN_GROUPS]
    ]


def _why(found: Explanation, view: View) -> str:
    differ = cohorts.changes(view)
    alike = (
        f"of the two samples' stacks these differ: {differ}"
        if differ
        else "both samples show the same stacks"
    )
    movers = [one for one in view.second if not cohorts.is_service(one) and cohorts.moved(one, view)]
    moved = (
        f"moved or used the CPU between the samples: at least {cohorts.names(movers)}" if movers else alike
    )
    told = {True: alike, False: moved}[found.frozen] if found.frozen is not None else ""
    inferred = "inferred" if found.inferred and "inferred" not in found.why else ""
    return "; ".join(part for part in (found.why, inferred, told or "") if part)


def ask(attempt: Path, apart_s: float, deadline_s: float, name: str) -> Optional[Path]:
    """Ask the head of a running attempt for a dump; its folder, None where no answer came in time."""
    folder = attempt / "dumps"
    folder.mkdir(parents=True, exist_ok=True)
    write_text(folder / f"ask-{name}", f"{apart_s}\n", mode=MODE)
    done, end = folder / f"done-{name}", time.monotonic() + deadline_s
    while time.monotonic() < end:
        with contextlib.suppress(OSError):
            number = done.read_text().strip()
            done.unlink()
            return folder / number
        time.sleep(0.2)
    with contextlib.suppress(OSError):
        (folder / f"ask-{name}").unlink()
    return None
