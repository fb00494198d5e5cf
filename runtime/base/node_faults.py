"""Lines that name a node as broken: its GPU, its port to the fabric, a mount. Pure; standard library only.

The wrong node is worse than none. A line counts where it says itself which node it is of: the kernel's name,
NCCL's, or the address that Ray puts before a line. Where it names none the log decides, if only processes of
one node write it. An exception may have been raised elsewhere and be told on: none counts behind Ray's or
torch's words for that.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Dict, Iterable, Iterator, List, Mapping, Sequence, Set, Tuple

from jobspec.plan import Plan

MAX_TEXT = 300
TOLD_ON = 400  # lines behind the head of an exception that comes from another process


@dataclass(frozen=True)
class Fault:
    """A kind of line. `sure`: no program, image or setting causes it.

    `alone`: it counts where other nodes do not say it. `printed`: by the driver or library on the spot, never
    as part of an exception.
    """

    kind: str
    pattern: "re.Pattern[bytes]"
    sure: bool = False
    alone: bool = False
    printed: bool = False


@dataclass(frozen=True)
class Named:
    """A node, what is broken there, and the line that says so."""

    node: str
    kind: str
    text: str
    file: str = ""
    line: int = 0
    sure: bool = False
    alone: bool = False


# Sources: NVIDIA's catalogue of Xid errors and CUDA's names of errors; NCCL's net_ib.cc; errno(3). Errors of
# files count with a path, and only those of a node's own mount: a daemon of FUSE that is gone, a client of
# Lustre that was evicted. A stale handle or an I/O error may be the program's or the server's.
FAULTS = (
    Fault(
        "gpu",
        re.compile(
            rb"NVRM: Xid \([^)]{1,80}\): (?:48|6[34]|74|79|92|9[45]|1(?:19|2[01]|4[04-9]|50))\b"
            rb"|NVRM: .{0,80}GPU has fallen off the bus"
        ),
        printed=True,  # by the kernel, perhaps long ago: a program shows its log
    ),
    Fault(
        "gpu",
        re.compile(
            rb"(?:^|\) |\]: |what\(\):\s+)(?:[\w.]+: )?CUDA error: uncorrectable (?:ECC|NVLink) error"
            rb"|CUDA_ERROR_(?:ECC|NVLINK)_UNCORRECTABLE"
            rb"|NCCL WARN .{0,200}uncorrectable (?:ECC|NVLink) error"
            rb"|Unable to determine the device handle for GPU.{0,60}GPU is lost"
        ),
        sure=True,
    ),
    Fault("gpu", re.compile(rb"Error 802: system not yet init|CUDA_ERROR_SYSTEM_NOT_READY"), alone=True),
    Fault(
        "fabric",
        re.compile(
            rb"NCCL WARN NET/IB : .{0,60}Got (?:non-fatal |fatal )?async event ?: ?"
            rb"(?:port error|local .{0,12}catastrophic error)"
        ),
        printed=True,
    ),
    Fault("mount", re.compile(rb"\[Errno 10[78]\] [\w ]+: '/"), alone=True),
)
HINT = re.compile(
    rb"Xid \(|off the bus|uncorrectable|_UNCORRECTABLE|GPU is lost|Error 802|NOT_READY|async event"
    rb"|\[Errno 10[78]"
)
KINDS = {"gpu": "a GPU", "fabric": "a port to the fabric", "mount": "a mount or disk", "stall": "what hangs"}

# What the runtime found on a node itself, by its rule: where others are well it is the node's fault.
FOUND = {
    "preflight.gpus": "gpu",
    "preflight.shared-dir": "mount",
    "preflight.node-local": "mount",
    "stall.outside": "stall",
}

_COLOUR = re.compile(rb"\x1b\[[0-9;]*m")
_TIME = rb"(?:\w{3} +\d+ [\d:]{8}|\d{4}-\d\d-\d\d[T ][\d:.,+-]+Z?)"
_KERNEL = re.compile(rb"^(?:" + _TIME + rb" )?([A-Za-z0-9][\w.-]*) kernel: ")
_NCCL = re.compile(rb"(?:^|[) ])([A-Za-z0-9][\w.-]*):\d+:\d+ \[\d+\] ")
_RAY = re.compile(rb"\bip=([\d.]+)")
_TELLS_ON = re.compile(
    rb"ray::|RayTaskError|RemoteTraceback|\(RANK \d+\)|\[[Rr]ank[ =]\d|first observed failure"
)
# A trace of commands, the line of a listing, a text within a program or a message.
_NO_SAYING = re.compile(rb"^\s*(?:[+#>$]|\d+[:-](?!\d))|[\"'`]\s*(?:in\b|,|\)|:)")


def scan(lines: Iterable[bytes], file: str, own: str, nodes: Mapping[str, str]) -> Iterator[Named]:
    """The nodes that the lines of a log name. `nodes`: those of the attempt, with their addresses.

    `own` is the node whose processes alone write the log; empty where others may write it too.
    """
    told_on = -TOLD_ON
    for number, line in enumerate(lines, 1):
        if _TELLS_ON.search(line):
            told_on = number
        if not HINT.search(line):
            continue
        line = _COLOUR.sub(b"", line)
        if _NO_SAYING.search(line) or b"[repeated " in line:
            continue
        fault = next((fault for fault in FAULTS if fault.pattern.search(line)), None)
        if fault is None:
            continue
        node = speaker(line, own, nodes, second_hand=not fault.printed and number - told_on < TOLD_ON)
        if node:
            text = line.decode("utf-8", "replace").strip()[:MAX_TEXT]
            yield Named(node, fault.kind, text, file, number, fault.sure, fault.alone)


def own_logs(plan: Plan) -> bool:
    """Whether processes of that node alone write a node's log: Ray and ssh bring the lines of others."""
    alone = plan.mode == "srun" and all(command.on == "all" for command in plan.commands)
    return alone or plan.nodes == 1


def speaker(line: bytes, own: str, nodes: Mapping[str, str], second_hand: bool = False) -> str:
    """The node of the attempt that a line is of; empty where it names none of them, or several."""
    for form in (_KERNEL, _NCCL):
        match = form.search(line)
        if match is not None:
            return _known(match[1], nodes)
    addresses = set(_RAY.findall(line))
    if second_hand or len(addresses) > 1:
        return ""
    return _known(addresses.pop(), nodes) if addresses else own


def _known(said: bytes, nodes: Mapping[str, str]) -> str:
    """The one node of that name, with or without its domain, or of that address."""
    name = said.decode("ascii", "replace")
    short = name if name.replace(".", "").isdigit() else name.split(".")[0]
    found = [node for node, ip in nodes.items() if name == ip or short == node.split(".")[0]]
    return found[0] if len(found) == 1 else ""


def of_findings(rows: Iterable[Tuple[str, str, str]]) -> Iterator[Named]:
    """What the runtime found on nodes themselves, out of each finding's rule, node and text."""
    for rule, node, what in rows:
        if rule in FOUND and node:
            yield Named(node, FOUND[rule], what, alone=True)


def decide(named: Sequence[Named], count: int) -> List[Named]:
    """One entry for each broken node of `count`, of several the surest, then the first.

    What more than half of several nodes say is the set-up's; on a single node what is not sure may be, too.
    """
    said: Dict[Tuple[str, bool], Set[str]] = {}
    for one in named:
        said.setdefault((one.kind, one.alone), set()).add(one.node)
    kept: Dict[str, Named] = {}
    for one in named:
        common = 2 * len(said[one.kind, one.alone]) > count and (count > 1 or one.alone)
        if not common and (one.node not in kept or (one.sure and not kept[one.node].sure)):
            kept[one.node] = one
    return [kept[node] for node in sorted(kept)]
