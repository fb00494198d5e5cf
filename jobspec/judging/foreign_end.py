"""How a run that jobspec did not launch ended: an exit code that a log states, or the failure it shows."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import replace

from jobspec.evidence.evidence import Attempt, Evidence
from jobspec.evidence.log_facts import Facts
from jobspec.evidence.resume_lines import resume_line
from jobspec.evidence.slurm_record import SlurmEnd
from jobspec.frameworks.shared.metric_deliverables import TRAINER_END
from jobspec.judging.first_cause import SCHEDULER_ENDS
from jobspec.log_search import Hints, find_lines
from jobspec.triage import Match
from jobspec.triage.signatures import NOTE
from jobspec.triage.silence import STALL
from jobspec.verdict import Cause, Deliverable, EvidenceItem, Status

RUN = "Run"
MEASURED = ("numerics", "learning")  # kinds of failure that the metrics show as well
# A launcher that got a signal itself: what it ends are its own processes. Source: torch `elastic`.
SIGNALLED = re.compile(r"SignalException: Process \d+ got signal: (?:1|2|15)\b")
TERMINATED = "effect.terminated"
LEFT = re.compile(r"^SystemExit\b")  # the program's own doing
BESIDE = re.compile(r"(?:^|[._/-])(?:eval\w*|inference|serve|server|generate|judge)(?:[._/-]|\d|$)", re.I)
FROM_OUTSIDE = {"time-limit", "cancelled", "preempted", "requeued", "node"}
HUNG = {"effect", "collective"}
TRAINER_LOGS = {"loss", "learning_rate", "epoch"}
MAX_CODES = 4  # logs named
EARLIER = "an exit code of 0 is stated by an earlier log than the last one"
ORDER = re.compile(r"(\d+)|first|second|third")  # what tells logs of several processes apart
BESIDE_EACH_OTHER = re.compile(r"(?i)(?:rank|node|worker|host|gpu|task|actor|replica|server)[-_.]?\d")
# Somebody, or a time limit.
SIGINT, SIGTERM = "SIGINT, as of Ctrl-C", "SIGTERM, as of a time limit or `kill`"
ENDED_FROM_OUTSIDE = {130: SIGINT, -2: SIGINT, 143: SIGTERM, -15: SIGTERM}
MIN_REPEATED = 3


def judge_end(
    facts: Facts, attempt: Attempt, others: Sequence[Deliverable], short: bool, slurm: SlurmEnd | None = None
) -> Deliverable:
    """How the run ended, where Slurm or a log states it; else the first failure line of a run without other
    proof, or of one that may have been `short`."""
    whole = _proved(others) and not short
    if slurm is not None and slurm.state in SCHEDULER_ENDS:
        reason = f"Slurm's own record says {slurm.state}: {SCHEDULER_ENDS[slurm.state][1]}"
        status = Status.SKIPPED if whole else Status.BLOCKED
        return Deliverable(RUN, status, (slurm.item,), reason, required=not whole)
    facts = _with_record(facts, slurm)
    code, item = _exit_code(facts)
    if item is not None and code and (facts.ended or facts.stated or not _proved(others)):
        status = Status.BLOCKED if code in ENDED_FROM_OUTSIDE else Status.FAIL
        what = "the run ended with exit code" if facts.ended else "a task of the job ended with exit code"
        if facts.stated and not facts.ended:  # a script says it of any of its commands
            what = "the last exit code that a log states is"
        meaning = f" ({ENDED_FROM_OUTSIDE[code]})" if code in ENDED_FROM_OUTSIDE else ""
        return Deliverable(RUN, status, (item,), f"{what} {code}{meaning}")
    lines = [match for match in attempt.matches if match.verdict != NOTE and not match.survived]
    if item is not None and facts.stated and not facts.ended and _failed_later(item, lines, facts):
        item = None
    if item is not None and (facts.ended or facts.stated):
        # The last command's code: a batch shell that got SIGTERM alone states 0 as well.
        if codes := _other_codes(facts):
            reason = f"the logs state several exit codes, and jobspec does not know the last one: {codes}"
            return Deliverable(RUN, Status.SKIPPED, (item,), reason, required=False)
        reason = "exit code 0, which alone proves nothing"
        return Deliverable(RUN, Status.PASS, (item,), reason, required=False)
    if any(item.status is Status.FAIL for item in others):  # they name the metric and its step
        lines = [match for match in lines if match.kind not in MEASURED]
    serious = next((match for match in lines if not match.generic or (short and not match.wrapper)), None)
    if item is not None and whole:
        reason = f"a task of the job ended with exit code {code}"
        return Deliverable(RUN, Status.SKIPPED, (item,), reason, required=False)
    broken = _broke_trainer(lines, attempt)
    if whole and broken is not None:
        serious, whole = broken, False
    if serious is None or whole:
        reason = "jobspec read no exit code of it" if not facts.stated else EARLIER
        return Deliverable(RUN, Status.SKIPPED, reason=reason, required=False)
    item = EvidenceItem(serious.file, serious.line, serious.text)
    status = Status.BLOCKED if serious.verdict == "Blocked" else Status.FAIL
    return Deliverable(RUN, status, (item,), serious.title or serious.kind)


def _failed_later(item: EvidenceItem, failures: Sequence[Match], facts: Facts) -> bool:
    """Whether the log of a later process, by its name, shows a failure and states no exit code."""
    series, place = _place(item.file)
    return any(
        match.file not in facts.stated and _place(match.file)[0] == series and _place(match.file)[1] > place
        for match in failures
    )


def _place(name: str) -> tuple[str, list[tuple[int, str]]]:
    """A log's name without what counts the processes, and that in their order."""
    return ORDER.sub("#", name), [(int(found[1] or 0), found[0]) for found in ORDER.finditer(name)]


def _broke_trainer(failures: Sequence[Match], attempt: Attempt) -> Match | None:
    """A failure below all that the Hugging Face Trainer logged, which then says no word of its end.

    It logs that behind its last step and save, and before a shutdown makes its noise. An end from outside is
    none: it leaves what is proved.
    """
    logged = {row.metric for row in attempt.metrics}
    if not logged.issuperset(TRAINER_LOGS) or TRAINER_END in logged:
        return None
    ends: dict[str, int] = {}
    for row in attempt.metrics:
        ends[row.source] = max(ends.get(row.source, 0), row.line or 0)
    below = [match for match in failures if match.line > ends.get(match.file, match.line)]
    if any(match.kind in FROM_OUTSIDE or match.signature == TERMINATED for match in below):
        return None
    ended = [match for match in below if not match.wrapper or match.kind in HUNG]
    return min(ended, key=lambda match: match.wrapper, default=None)


def as_stopped(attempt: Attempt) -> Attempt:
    """The attempt of a run that ended early: where its logs show a request to end and no failure, that.

    Such a request comes from outside of the programs whose logs these are.
    """
    failures = [match for match in attempt.matches if match.verdict != NOTE and not match.survived]
    asked = [
        match
        for match in failures
        if (match.signature == TERMINATED and not LEFT.search(match.text)) or SIGNALLED.search(match.text)
    ]
    if not asked or any(match not in asked and not match.wrapper for match in failures):
        return attempt
    title = "a signal asked the run to end, and jobspec read no failure beside it"
    fix = "ask who or what ended it: a person, the scheduler, a launcher on another node"
    first = replace(
        asked[0], kind="cancelled", verdict="Blocked", wrapper=False, title=title, why=title, fix=fix
    )
    others = (match for match in attempt.matches if match not in asked)
    return replace(attempt, matches=(first, *others))


def went_on(evidence: Evidence, attempt: Attempt) -> Attempt:
    """The attempt, where what ended an earlier process from outside is survived: another's log says that it
    goes on from a checkpoint."""
    ends = {match.file for match in attempt.matches if match.kind in FROM_OUTSIDE}
    if not ends or len(attempt.logs) < 2 or any(BESIDE_EACH_OTHER.search(log.path) for log in attempt.logs):
        return attempt
    # An evaluation loads a checkpoint, and trains on nothing.
    own = [log.path for log in attempt.logs if not BESIDE.search(log.path)]
    resumed = {path for path in own if resume_line(evidence.root, path) is not None}

    def later(name: str) -> bool:
        (series, place), others = _place(name), (_place(other) for other in resumed - {name})
        return bool(resumed) and (name not in resumed or any(s == series and p > place for s, p in others))

    over = {name for name in ends if later(name)}
    return replace(
        attempt,
        matches=tuple(
            replace(match, survived=True) if match.kind in FROM_OUTSIDE and match.file in over else match
            for match in attempt.matches
        ),
    )


def own_facts(facts: Facts, attempt: Attempt) -> Facts:
    """The facts without exit codes of evaluations that lie beside the run, by the names of their logs."""
    trained = {row.source for row in attempt.metrics}
    aside = {log.path for log in attempt.logs if BESIDE.search(log.path) and log.path not in trained}
    if not aside or len(aside) == len(attempt.logs):
        return facts
    stated = {name: end for name, end in facts.stated.items() if name not in aside}
    ended = [end for end in facts.ended if end[2].file not in aside]
    return replace(
        facts, ended=ended, stated=stated, tasks=[end for end in facts.tasks if end[1].file not in aside]
    )


def _with_record(facts: Facts, slurm: SlurmEnd | None) -> Facts:
    """The facts with the job's exit code by Slurm's record; one that a log states may be worse than its 0."""
    if slurm is None or facts.ended or (facts.stated and not slurm.code):
        return facts
    return replace(facts, ended=[("", slurm.code, slurm.item)])


def _exit_code(facts: Facts) -> tuple[int, EvidenceItem | None]:
    """The exit code of the last job by its stated end time; else what a script states, or a failed task's."""
    if facts.ended:
        _, code, item = max(facts.ended, key=lambda end: end[:2])
        return code, item
    task = next(((code, item) for code, item in facts.tasks if code), None)
    # Of several logs one may be an earlier attempt's: a code of 0 among them leaves the others open.
    stated = min(facts.stated.values(), key=lambda end: abs(end[0]), default=None)
    return stated or task or (0, None)


def _other_codes(facts: Facts) -> str:
    """The codes that scripts state in several logs, where they differ and no end time tells the last one."""
    codes = {code for code, _ in facts.stated.values()}
    if facts.ended or len(codes) < 2:
        return ""
    return ", ".join(f"{code} in `{name}`" for name, (code, _) in list(facts.stated.items())[:MAX_CODES])


def _proved(others: Sequence[Deliverable]) -> bool:
    statuses = [item.status for item in others if item.required and item.status is not Status.NOT_REQUESTED]
    return bool(statuses) and all(status is Status.PASS for status in statuses)


def is_short(evidence: Evidence, steps: int, framework_items: Sequence[Deliverable]) -> bool:
    """Whether planned steps are missing, or nothing says how many there were to be."""
    planned, last = _steps(evidence, steps)
    return last < planned if planned else not any(item.required for item in framework_items)


def missing_steps(evidence: Evidence, steps: int) -> Deliverable | None:
    """What is not shown of a run whose announced steps are not all logged."""
    planned, last = _steps(evidence, steps)
    if last >= planned:
        return None
    reason = f"not shown: {_last_read(evidence, planned, last)}, and jobspec read no exit code"
    return Deliverable(RUN, Status.BLOCKED, reason=reason)


def how_far(evidence: Evidence, steps: int, run: Deliverable) -> str:
    """The last step that was read of a run that something else stopped; empty where that is not known."""
    planned, last = _steps(evidence, steps)
    if run.status is not Status.BLOCKED or not 0 < last < planned or run.reason.startswith("not shown"):
        return ""
    if evidence.metrics.inferred:  # no file numbers the steps
        return ""
    return f"; {_last_read(evidence, planned, last)}"


def _last_read(evidence: Evidence, planned: int, last: int) -> str:
    """`last` counts from 1; the step's own number may not."""
    zero = "" if (evidence.metrics.last_step() or 0) == last else ", counted from 0,"
    return f"step {last - bool(zero)} of {planned}{zero} is the last that was read"


def waited(evidence: Evidence, run: Deliverable, cause: Cause | None) -> str:
    """How long a run that was ended from outside had stood still, or what it said again and again."""
    if run.status is not Status.BLOCKED or cause is None:
        return ""
    if cause.kind == STALL:
        return f"; {cause.why.partition(';')[0]}"
    words = max(re.findall(r"(?:^|(?<=\s))\D{20,}", cause.text), key=len, default="").strip()
    if evidence.metrics.steps_done() or not words or not cause.line:
        return ""
    end = run.evidence[0] if run.evidence else None
    until = end.line if end is not None and end.file == cause.file else math.inf
    hits = find_lines(evidence.root / cause.file, Hints((words,)))
    count = sum(cause.line <= hit.number < until for hit in hits)
    if count < MIN_REPEATED:
        return ""
    above = "" if until == math.inf else " above it"
    return f"; {count} lines{above} say `{words}`, the first is {cause.file}:{cause.line}"


def is_complete(evidence: Evidence, steps: int, run: Deliverable) -> bool:
    """Whether every requested or announced step is logged; where none is, whether its own exit code is 0."""
    planned, last = _steps(evidence, steps)
    return planned <= last if planned else run.status is Status.PASS


def _steps(evidence: Evidence, steps: int) -> tuple[int, int]:
    """The steps that were requested or announced, 0 where nothing says how many, and those done."""
    return steps or evidence.metrics.planned, evidence.metrics.steps_done()
