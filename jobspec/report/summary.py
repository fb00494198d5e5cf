"""The short form that the guides of Megatron-Bridge ask for at the end of a validation: text to paste.

The guides set the fields and their order. The text says what a status leaves open, so that nobody has to
guess.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence

from jobspec.evidence.repo_tests import BRIDGE, BRIDGE_CHECKS
from jobspec.plan import CommandPlan, RepoPlan
from jobspec.report.content import Report
from jobspec.report.lines import MAX_LINE, place
from jobspec.triage.signatures import masked
from jobspec.verdict import (
    AGENT_KILLED,
    NAMED,
    RESIDUAL_NOISE,
    SUSPICIOUS,
    Deliverable,
    EvidenceItem,
    Result,
    Status,
    is_void,
)
from jobspec.words import some

MAX_KEY_LINES = 6
MAX_COMMAND = 300
MAX_DIRTY = 20  # files named; the patch in the run directory has all
# Behind `Result` and `Requested coverage`, in their order.
FIELDS = ("Model", "Deliverables", "Evidence", "Limitations", "Follow-ups")
UNKNOWN = "jobspec found no line that names it"
NOT_EVIDENCE = "this is not evidence against {}"
# Deliverables of every run: the short form shows them only when they went wrong.
GENERAL = frozenset(
    {"Preflight", "Code that ran", "Staging", "Dataset helpers", "Import proof", "Ray cluster", "Run",
     "Artifacts", "Required metrics"}
)  # fmt: skip


def render_summary(report: Report) -> str:
    """`Result` to `Follow-ups`, for every framework; with a guide, its deliverables come first."""
    verdict = report.verdict
    lines = [
        f"Result: {overall(verdict.result)} - {sentence(report)}",
        f"Requested coverage: {coverage(report)}",
        f"Model: {report.model or UNKNOWN}",
        "Deliverables:",
        *_items(_deliverables(report)),
        "Evidence:",
        *_items(_evidence(report)),
        "Limitations:",
        *_items(_limitations(report)),
        "Follow-ups:",
        *_items(_follow_ups(report)),
    ]
    return "\n".join(lines) + "\n"


def guide_form(report: Report, before: str = "", after: str = "\n") -> str:
    """The short form between `before` and `after`; nothing for a framework without a guide."""
    if not report.guide:
        return ""
    return f"{before}{render_summary(report)}{after}"


def _items(lines: Iterator[str]) -> list[str]:
    return [f"- {_one_line(line)}" for line in lines] or ["- none"]


def _one_line(text: str) -> str:
    return re.sub(r"\s+", " ", text).strip()


def overall(result: Result) -> str:
    """The result in the guides' words, which have no `nothing ran`: such a run is `Blocked`."""
    return str(Result.BLOCKED if result is Result.NOTHING_RAN else result)


def _tested(report: Report) -> str:
    return "the Bridge provider" if report.guide else "what is tested"


def sentence(report: Report) -> str:
    """What the result means, in one line."""
    return _one_line(_in_words(report))


def _in_words(report: Report) -> str:
    verdict = report.verdict
    if verdict.result is Result.PASS:
        # Of a run of others a level without a guide says what its files prove, and no more.
        proves = "" if report.foreign and not report.guide else verdict.proves
        return proves or verdict.reason
    if verdict.result is Result.FAIL:
        return verdict.reason
    reason = verdict.reason.rstrip(".")
    if _void(report):
        return f"{reason}; neither a pass nor a failure of it is evidence about the local Bridge"
    if verdict.first_cause is not None and verdict.first_cause.kind == AGENT_KILLED:
        return "; ".join(filter(None, (reason, _how_far(report).removesuffix(", and "))))
    return f"{reason}; {_how_far(report)}{NOT_EVIDENCE.format(_tested(report))}"


def _void(report: Report) -> bool:
    return is_void(report.verdict.deliverables)


def _how_far(report: Report) -> str:
    """Where the run was stopped; empty where no file says so."""
    if any(item.name == "Run" and item.status is Status.PASS for item in report.verdict.deliverables):
        return ""  # it ended by itself: only its results are not as they must be
    steps = [attempt.steps for attempt in report.verdict.attempts if attempt.steps is not None]
    if steps:
        return f"it was stopped after train step {max(last for _, last in steps)}, and "
    if not report.driver_started:
        return "it was stopped before any model was built, and "
    return ""


def coverage(report: Report) -> str:
    verdict = report.verdict
    level = (
        f"Level {verdict.number} ({verdict.level})"
        if verdict.number is not None
        else f"Level {verdict.level}"
    )
    variants = f"variants {', '.join(report.variants)}" if report.variants else "no variants"
    return f"{level}, {variants}"


def _deliverables(report: Report) -> Iterator[str]:
    """All deliverables of the guide, in its order; then others, unless general and without a problem."""
    deliverables = report.verdict.deliverables
    by_name = {item.name: item for item in deliverables}
    for name in report.guide:
        item = by_name.get(name) or Deliverable(name, Status.SKIPPED, reason=report.verdict.reason)
        yield _deliverable(item)
    for item in deliverables:
        quiet = item.name in GENERAL and item.status in (Status.PASS, Status.NOT_REQUESTED, Status.SKIPPED)
        if item.name not in report.guide and not quiet:
            yield _deliverable(item)


def _deliverable(item: Deliverable) -> str:
    shown = next((place(part) for part in item.evidence if part.file), "")
    reason = item.reason or ("proved" if item.status is Status.PASS else "no reason was recorded")
    where = f" [{shown}]" if shown and shown not in reason else ""
    # The guides always ask for these tests: without a request they were skipped.
    skipped = item.name == BRIDGE_CHECKS and item.status is Status.NOT_REQUESTED
    return f"{item.name}: {Status.SKIPPED if skipped else item.status} - {reason}{where}"


# -- evidence ----------------------------------------------------------------------------------------


def _evidence(report: Report) -> Iterator[str]:
    yield from _repos(report)
    for what, image in report.images.items():
        yield f"{what.capitalize()}: {image}"
    yield from (f"New provider, {line}" for line in report.provider)
    yield f"Command: {_commands(report)}"
    lines = [_key_line(item) for item in _key_lines(report)]
    yield f"Key lines: {'; '.join(lines) if lines else 'none was found'}"


def _repos(report: Report) -> Iterator[str]:
    """Each repository with its commit and uncommitted files; the guide's two come even without a name."""
    named: set[str] = set()
    for label, repo in _labelled(report):
        named.add(repo.name if repo is not None else "")
        yield f"{label} repo: {state(report, repo)}"
    for repo in report.repos:
        if repo.name not in named:
            yield f"{repo.name} repo: {state(report, repo)}"


def _labelled(report: Report) -> Iterator[tuple[str, RepoPlan | None]]:
    if not report.guide:
        return
    bridge = next((repo for repo in report.repos if repo.name == report.bridge), None)
    yield "Bridge", bridge
    framework = _letters(report.framework)
    others = [repo for repo in report.repos if repo is not bridge]
    framework_repo = next((repo for repo in others if _letters(repo.name).startswith(framework)), None)
    # The guide's second deliverable ends with the framework's name as its people write it.
    yield report.guide[1].rpartition(" in ")[2], framework_repo


def _letters(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())


def state(report: Report, repo: RepoPlan | None) -> str:
    """What was submitted, and what ran where that is known or was looked for."""
    if repo is None:
        return (
            "not looked for" if report.foreign else "the spec names no repository: the image's own was used"
        )
    submitted = _at(repo.commit, report.dirty_files.get(repo.name, ()), repo.dirty)
    ran = report.ran.get(repo.name)
    if ran is None:
        return submitted
    if ran.unknown:
        return f"submitted {submitted}; its state at the start cannot be told: {ran.unknown}"
    if not ran.differs(repo):
        return f"{submitted}, unchanged when it started"
    changed = f" (changed: {some(ran.changed, MAX_DIRTY)})" if ran.changed else ""
    word = "ran" if report.driver_started else "found"  # a blocked run executed none of it
    return f"submitted {submitted}; {word} {_at(ran.commit, ran.uncommitted, bool(ran.uncommitted))}{changed}"


def _at(commit: str, files: Sequence[str], dirty: bool) -> str:
    more = f" plus uncommitted {some(files, MAX_DIRTY) or 'files'}" if dirty else ", no uncommitted files"
    return (commit or "no commit recorded") + more


def _commands(report: Report) -> str:
    if report.foreign or not report.planned:
        return _cut(report.command) or UNKNOWN
    shown = [shown_command(command) for command in report.planned]
    return "; then ".join(shown) + " (in full in driver.sh)"


def shown_command(command: CommandPlan) -> str:
    """The command in one line, cut where it holds a whole script."""
    text = command.argv[0] if command.shell else shlex.join(command.argv)
    lines = re.sub(r"\\\n\s*", "", text).splitlines()  # a continued line is one
    return _cut(_one_line("; ".join(line.strip() for line in lines if line.strip())))


def _cut(text: str) -> str:
    text = masked(text)
    return text if len(text) <= MAX_COMMAND else f"{text[:MAX_COMMAND]} …"


def _key_lines(report: Report) -> Iterator[EvidenceItem]:
    """The first cause; else evidence lines of the deliverables, one of each in turn."""
    cause = report.verdict.first_cause
    if cause is not None:
        yield EvidenceItem(cause.file, cause.line, cause.text)
        return
    items = [item for item in report.verdict.deliverables if item.name not in GENERAL]
    parts = [[part for part in item.evidence if part.text and part.line] for item in items]
    in_turn = (row[at] for at in range(MAX_KEY_LINES) for row in parts if at < len(row))
    yield from list(dict.fromkeys(in_turn))[:MAX_KEY_LINES]


def _key_line(item: EvidenceItem) -> str:
    value = f"{item.metric} = {item.value:.6g} " if item.metric and item.value is not None else ""
    return f"{value}{item.text[:MAX_LINE]} ({place(item)})" if item.file else item.text[:MAX_LINE]


# -- what is open ------------------------------------------------------------------------------------


def _limitations(report: Report) -> Iterator[str]:
    yield from report.verdict.limitations
    for finding in report.verdict.findings:
        if finding.rule in (SUSPICIOUS, RESIDUAL_NOISE):
            yield f"{finding.what} ({finding.file}:{finding.line})"


def _follow_ups(report: Report) -> Iterator[str]:
    verdict, cause = report.verdict, report.verdict.first_cause
    if verdict.result is Result.PASS:
        return
    if _void(report):
        yield f"needed rerun: with the tested checkout in front of every other `{BRIDGE}`"
        return
    outside = verdict.result is not Result.FAIL and not (cause and cause.kind == AGENT_KILLED)
    word = "environment fix" if outside else "fix"
    if cause is not None and cause.fix:
        yield f"{word}: {cause.fix}"
    elif cause is not None:
        yield f"{word}: what {place(cause) or 'the first cause'} shows"
    else:
        yield from _from_deliverables(verdict.deliverables)
    yield from (f"node: {item.fix}" for item in verdict.findings if item.rule == NAMED)
    command = "the command, corrected where it is the cause," if report.foreign else "the same spec"
    yield f"needed rerun: {command} after that"


def _from_deliverables(items: Sequence[Deliverable]) -> Iterator[str]:
    for item in items:
        if item.required and item.status in (Status.FAIL, Status.BLOCKED, Status.SKIPPED):
            word = "provider fix" if item.status is Status.FAIL and item.name == BRIDGE_CHECKS else "open"
            yield f"{word}: {item.name}: {item.reason}"
