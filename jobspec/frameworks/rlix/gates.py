"""Level `gates`: RLix's own tests of gate 2.5, without pipelines.

`run_gate2_5.sh` starts the second part on two GPUs, where it skips itself with exit code 0, and leaves out
the others where a package or a GPU is missing. So each part is started by itself, as its own file says, and
passes only by its own last line. Source: rlops/rlix `nemo` f77d913, tests/integration. Gate 2 has no
published test.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from jobspec.finding import Finding, error, warning
from jobspec.frameworks.base import Context, FrameworkPlan
from jobspec.frameworks.rlix import checkout
from jobspec.frameworks.shared.known_variants import unknown_variants
from jobspec.frameworks.shared.metric_deliverables import missing_status
from jobspec.frameworks.shared.repo_tests import check_commands
from jobspec.log_search import Hints, find_lines
from jobspec.log_text import strip_ansi
from jobspec.plan import CommandPlan, ExpectPlan
from jobspec.verdict import Deliverable, EvidenceItem, Status

if TYPE_CHECKING:
    from jobspec.evidence.evidence import Evidence

COMMAND, MODEL, GPUS = "gates", "Qwen/Qwen2.5-0.5B", 4
FOLDER = "tests/integration"


@dataclass(frozen=True)
class Gate:
    """One part: its file, its processes, what it shows, and how its last line begins."""

    name: str
    processes: int
    shows: str
    passed: str

    @property
    def file(self) -> str:
        return f"{FOLDER}/test_gate2_5_{self.name}.py"


GATES = (
    Gate("nccl_destroy", 2, "NCCL groups destroyed and built again", "ALL GATE 2.5 PART 1 CHECKS PASSED"),
    Gate("selective_sync", 4, "weights sent to a part of the ranks", "ALL PART 2 CHECKS PASSED"),
    Gate("qwen_train_sync", 4, "trained weights received bit by bit", "ALL GATE 2.5 PART 3 CHECKS PASSED"),
)
BEGINS, ENDED = "jobspec: gate", re.compile(r"jobspec: gate (?P<name>\w+) ended with exit code (?P<code>\d+)")
SKIPS = re.compile(r"\bSKIP\b:? (?P<why>.*)")
FAILS = re.compile(r"\bFAIL\b:? (?P<why>.*)|^(?P<raised>\w+Error: .*)")
LACKS = re.compile(r"No module named '(?P<module>[\w.]+)'")
HINTS = (BEGINS, "CHECKS PASSED", "SKIP", "FAIL", "Error: ", "No module named")


def check(context: Context) -> Iterator[Finding]:
    yield from unknown_variants(context, "rlix.variant")
    rlix = checkout.roots(context)[0]
    if not rlix:
        fix = "name a checkout of RLix, branch `nemo`, in `repos`"
        yield error("rlix.checkout", "no repository of the spec is RLix", fix=fix, path="repos")
    missing = [gate.file for gate in GATES if not Path(rlix, gate.file).is_file()]
    if rlix and Path(rlix).is_dir() and missing:
        what, fix = f"the RLix checkout has no `{missing[0]}`", "use branch `nemo`, f77d913 or later"
        yield error("rlix.gates", what, "level `gates` runs the checkout's own tests", fix, path="repos")
    if context.gpus_per_node < GPUS or context.spec.resources.nodes > 1:
        what = f"level `gates` needs one node with {GPUS} GPUs"
        why = "on fewer GPUs two of its three tests skip themselves, and none goes beyond a node"
        yield error("rlix.gates", what, why, "ask for them", path="resources.gpus_per_node")
    model = context.spec.model
    if model is None or model.id != MODEL:
        what = f"one of the tests loads `{MODEL}` by its name"
        fix = f"set `model.id: {MODEL}`, so that it is staged"
        yield warning("rlix.gates", what, "it asks the hub where the cache lacks it", fix, path="model")


def plan(context: Context) -> FrameworkPlan:
    """One command for all, so that the failure of one hides no other."""
    lines = ["status=0"]
    for gate in GATES:
        start = f"{shlex.quote(context.container.python)} -m torch.distributed.run --standalone"
        lines += [
            f'echo "{BEGINS} {gate.name} begins"',
            "code=0",
            f"{start} --nproc-per-node={gate.processes} {gate.file} || code=$?",
            f'echo "{BEGINS} {gate.name} ended with exit code $code"',
            '[ "$code" = 0 ] || status=1',
        ]
    text = "\n".join([*lines, "exit $status"]) + "\n"
    root = checkout.roots(context)[0]
    command = CommandPlan(COMMAND, (text,), shell=True, cwd=root)  # noqa: S604 - plain data, starts nothing
    spec = context.spec
    expect = ExpectPlan(
        level=context.level.name, metrics_require=spec.metrics.require, files=spec.artifacts.require
    )
    checks = check_commands(context, context.container.python)
    return FrameworkPlan(commands=(command,), checks=checks, ray_mode="none", expect=expect)


def judge(evidence: Evidence) -> Iterator[Deliverable]:
    found = {gate.name: _Seen() for gate in GATES}
    for log in evidence.last.own_logs if evidence.last else ():
        _read(evidence.root / log.path, log.path, found)
    for gate in GATES:
        yield _judged(gate, found[gate.name], missing_status(evidence))


@dataclass
class _Seen:
    passed: EvidenceItem | None = None
    trouble: EvidenceItem | None = None
    status: Status = Status.FAIL
    why: str = ""
    code: int | None = None


def _read(path: Path, name: str, found: dict[str, _Seen]) -> None:
    """What one log says of each part; other lines belong to the part that began last."""
    now: _Seen | None = None
    for hit in find_lines(path, Hints(HINTS)):
        text = strip_ansi(hit.text).strip()
        item = EvidenceItem(name, hit.number, text[:300])
        if ended := ENDED.search(text):
            found.get(ended["name"], _Seen()).code = int(ended["code"])
            now = None
        elif BEGINS in text:
            now = found.get(text.split()[2])
        elif passed := next((gate for gate in GATES if gate.passed in text), None):
            found[passed.name].passed = item
        elif now is not None and now.trouble is None:
            _take(text, item, now)


def _take(text: str, item: EvidenceItem, seen: _Seen) -> None:
    if lacks := LACKS.search(text):
        seen.status, seen.why = Status.BLOCKED, f"Python has no `{lacks['module']}`"
    elif skips := SKIPS.search(text):
        seen.status, seen.why = Status.BLOCKED, f"the test skipped itself: {skips['why']}"
    elif fails := FAILS.search(text):
        seen.status, seen.why = Status.FAIL, fails["why"] or fails["raised"]
    seen.trouble = item if seen.why else None


def _judged(gate: Gate, seen: _Seen, lost: Status) -> Deliverable:
    name = f"Gate 2.5: {gate.shows}"
    if seen.trouble is not None:
        return Deliverable(name, seen.status, (seen.trouble,), seen.why)
    if seen.code:
        return Deliverable(name, Status.FAIL, reason=f"`{gate.file}` ended with exit code {seen.code}")
    if seen.passed is None:
        return Deliverable(name, lost, reason=f"jobspec found no line `{gate.passed}`")
    return Deliverable(name, Status.PASS, (seen.passed,), f"`{gate.file}` passed every check of its own")
