"""Level `checkpoint`: a save that was finished, and a second process that really loaded it and trained on.

Source: verl 0.7.0 to 0.10.0.dev, `utils/checkpoint` and both trainers. The tracker is written last; from
release 0.9.0 on each role's manifest marks its save as complete.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from jobspec.evidence.evidence import Checkpoint, Evidence
from jobspec.frameworks.shared.answer import Answer, blocked, failed, passed, unseen
from jobspec.frameworks.verl.log_lines import LogFacts
from jobspec.frameworks.verl.run_facts import Seen
from jobspec.verdict import EvidenceItem, Status

TRACKER, MANIFEST = "latest_checkpointed_iteration.txt", "ckpt_contents.json"


def judge_resume(seen: Seen) -> Answer:
    """Both halves, each with its proof."""
    saved, facts = _saved(seen), seen.resumed
    if saved.status is Status.FAIL or (saved.status is Status.BLOCKED and not trained_nothing(seen)):
        return saved
    if facts is None or facts.resumed is None:
        fresh = seen.any_line("scratch")
        if fresh is not None:
            return failed("the second process trained from scratch", [fresh])
        reason = "jobspec found no line that shows that training continued from a checkpoint"
        return unseen(seen.evidence.foreign, reason, saved.items)
    start, line = facts.resumed
    items = [*saved.items, line, *facts.loaded.values()]
    problem = _problem(seen, facts, start)
    if problem:
        return failed(problem, items)
    unloaded = _unloaded(seen, facts)
    if unloaded:
        reason = f"jobspec found no line that shows that a worker loaded {', '.join(unloaded)}"
        return unseen(seen.evidence.foreign, reason, items)
    text = f"{saved.reason}, loaded after step {start}, and trained on to step {seen.planned}"
    return passed(text, items)


def trained_nothing(seen: Seen) -> bool:
    """Whether a process went on from a checkpoint and its log shows no step of its own."""
    return seen.resumed is not None and not _trained_after(seen, seen.resumed)


def _problem(seen: Seen, facts: LogFacts, start: int) -> str:
    """What is wrong with the resume, or nothing."""
    resume_from = seen.evidence.plan.expect.options.get("resume_from") or start
    after = _trained_after(seen, facts)
    checks = (
        (
            start != resume_from,
            f"training continued from step {start}, not from the planned step {resume_from}",
        ),
        (start >= seen.planned, f"training continued after step {start} of {seen.planned}: none was left"),
        (start < 1, "training continued from step 0: nothing was resumed"),
        (_later(facts.scratch, facts), "the log of the resume also says `Training from scratch`"),
        (facts.no_adapter, "the resume found no adapter checkpoint"),
        (
            after != set(range(start + 1, seen.planned + 1)),
            f"the resume trained steps {sorted(after)}, not {start + 1} to {seen.planned}",
        ),
        (facts.no_loader_state, "the resume found no state of the data loader"),
    )
    return next((text for wrong, text in checks if wrong), "")


def _unloaded(seen: Seen, facts: LogFacts) -> list[str]:
    """What no worker says that it loaded."""
    return [
        f"{role} {kind}"
        for role in (["actor", "critic"] if seen.has_critic else ["actor"])
        for kind in ("optimizer", "model")
        if not any(r == role and _is_kind(what, kind) for r, what in facts.loaded)
    ]


def _later(item: EvidenceItem | None, facts: LogFacts) -> bool:
    """Whether a line comes from the resumed process: one log may hold both halves, one after the other."""
    if item is None or facts.resumed is None:
        return False
    before = [line.line for line in facts.trained.values() if line.line < facts.resumed[1].line]
    return item.line > max(before, default=0)


def _trained_after(seen: Seen, facts: LogFacts) -> set[int]:
    """Steps that the resumed process trained: metrics, and lines of the process that saved, are not its own.

    Ray splits a process's output over files. Another log counts where its steps begin after the resume and
    it shows no start of a process.
    """
    start, item = facts.resumed or (0, EvidenceItem())
    steps = {step for step, line in facts.trained.items() if line.line > item.line}
    for other in seen.logs:
        whole = other.resumed is not None or other.scratch is not None
        if other is not facts and not whole and min(other.trained, default=0) > start:
            steps |= set(other.trained)
    return steps


def _is_kind(what: str, kind: str) -> bool:
    """Whether a loaded thing is the role's optimizer, or its model: adapter, shards or exported weights."""
    if what == "Megatron-FSDP":  # one folder for both
        return True
    if kind == "optimizer":
        return "optimizer" in what
    return any(word in what for word in ("adapter", "model", "bridge"))


def _saved(seen: Seen) -> Answer:
    """The last save, by its files; by the log when a foreign run brings no checkpoints."""
    checkpoints, planned = _checkpoints(seen.evidence), seen.planned
    if not checkpoints and seen.evidence.foreign:
        return _saved_by_log(seen)
    last = next((item for item in checkpoints if item.step == planned), None)
    if last is None:
        return unseen(seen.evidence.foreign, f"no checkpoint of step {planned} was found")
    tracker = Path(last.path).parent / TRACKER
    try:
        text = tracker.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError):
        return failed(f"`{TRACKER}` cannot be read: no save was finished")
    items = [EvidenceItem(str(tracker), 1, text), EvidenceItem(last.path, text=f"{last.bytes} bytes")]
    if text != str(planned):
        return failed(f"`{TRACKER}` says step {text[:20]}, not {planned}", items)
    roles = ["actor", "critic"] if seen.has_critic else ["actor"]
    if cut := _cut_off(last, roles):
        return failed(cut, items)
    problem = _incomplete(last, roles)
    # Somebody else's folder may be a copy without the large files.
    return unseen(seen.evidence.foreign, problem, items) if problem else passed("saved", items)


def _incomplete(saved: Checkpoint, roles: Sequence[str]) -> str:
    """What a checkpoint lacks, or nothing."""
    if not saved.bytes:
        return f"every file of the checkpoint of step {saved.step} is empty"
    if "data.pt" not in saved.files:
        return f"the checkpoint of step {saved.step} has no `data.pt`"
    empty = [role for role in roles if not any(name.startswith(f"{role}/") for name in saved.files)]
    if empty:
        return f"the checkpoint of step {saved.step} has no `{empty[0]}`"
    return ""


def _cut_off(saved: Checkpoint, roles: Sequence[str]) -> str:
    """What shows that a save did not end, or nothing. Before release 0.9.0 there are no manifests."""
    manifests = [name for name in saved.files if name.endswith(f"/{MANIFEST}")]
    missing = [role for role in roles if f"{role}/{MANIFEST}" not in manifests]
    if manifests and missing:
        return f"`{missing[0]}` of step {saved.step} has no `{MANIFEST}`: its save was cut off"
    return ""


def _saved_by_log(seen: Seen) -> Answer:
    """The last save, by its first log line: verl logs no end. A loaded checkpoint was saved whole."""
    line = next((facts.saved[seen.planned] for facts in seen.logs if seen.planned in facts.saved), None)
    if line is None:
        what = f"no checkpoint was found, and jobspec found no line that shows a save of step {seen.planned}"
        return blocked(f"not shown: {what}")
    return passed("saved according to the log (no checkpoint was found)", [line])


def _checkpoints(evidence: Evidence) -> tuple[Checkpoint, ...]:
    """Checkpoints of the last attempt. Without a folder in the plan they are in the run's own directory."""
    from jobspec.evidence.read import read_checkpoints  # it pulls in all readers

    if evidence.foreign:
        return evidence.checkpoints
    base = (
        Path(evidence.plan.checkpoint_dir) if evidence.plan.checkpoint_dir else evidence.root / "checkpoints"
    )
    number = evidence.last.number if evidence.last else 1
    folders = [base / evidence.run_id / f"attempt-{number}", base / f"attempt-{number}", base]
    return next(
        (checkpoints for folder in folders if (checkpoints := read_checkpoints(folder))), evidence.checkpoints
    )
