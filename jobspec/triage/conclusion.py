"""From what all logs hold to matches in order: attempts apart, the end of the last one told first."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from jobspec.triage.addresses import NOT_MET, with_addresses
from jobspec.triage.good_end import after_training, with_good_end
from jobspec.triage.jobs import Part, attempts_of, jobs_of, lives
from jobspec.triage.landmarks import Landmark
from jobspec.triage.match import Match
from jobspec.triage.nodes import with_nodes
from jobspec.triage.quiet_causes import (
    NOT_LEARNED,
    with_failed_rewards,
    with_server,
    without_gpu,
    without_server,
)
from jobspec.triage.ranking import (
    ABORTED,
    CLIENT,
    DEADLY,
    EFFECT,
    HANGS,
    NEVER_SURVIVED,
    OF_EVALUATION,
    SAME_MOMENT_S,
    demote_end,
    first_cause,
    is_end,
    rank,
    settle,
)
from jobspec.triage.shown_above import DISKS
from jobspec.triage.signatures import NOTE
from jobspec.triage.silence import STALL, with_last_work, with_silence

# Of a run without a train step these explain more than its end, though other processes may have gone on.
EXCEPTIONS = frozenset({"effect.exception", "effect.rollout", "effect.text-read"})
# What a library says about how it was started, where processes never came.
STARTED_ALONE, STARTED_TWICE, RAY_HERE = "note.srun-unused", "note.srun-launchers", "note.ray-here"
# What comes of launchers that are started several times on a node.
OF_TWO_LAUNCHERS = frozenset({"network.port-in-use", "network.listen", "network.duplicate-rank"})
RAY_NOT_MET = frozenset({"ray.gcs-stale", "ray.gcs-unreachable", "ray.gpus-missing", "ray.join-timeout"})
AFTER_END = (
    "a training had ended: where nothing else was to follow, look at what kept the job after it (an upload, a"
    " tracker that cannot reach its server: WANDB_MODE=offline and `wandb sync` later; a process that does"
    " not end), and whether its output is whole; else raise `resources.time` for what was to come"
)
ABORT_TIME = re.compile(r"\bSIGABRT received at time=(\d+)")
ZONE_S = 900.0  # zones differ by quarters of an hour
CHECKED = re.compile(r"terminate called|what\(\):|[Cc]heck failed|[Aa]ssert|[Ff]atal error|[Ww]atchdog")
ABORT_OF_HUNG = (
    "read the Python stack below the abort, where there is one (`Current thread`): it shows what the process"
    " was in when the signal came. Code that takes one answer or row after the other (a reward, a"
    " parser, a regular expression) needs a time-out for each; else see what that frame waits for, and take"
    " stacks (`py-spy dump`) of the other processes when it stands still again"
)
FOLLOWED = "inferred: another attempt followed"
NETWORK, WAITS = "network", "train.waits"
GRADIENT = "provider.nan-gradient"
NO_NUMBER = frozenset({"provider.nan", GRADIENT})
MISSED = frozenset({"image.command", "image.command-sh"})
UNBOUND = "env.unbound"
START_UP_FILE = re.compile(r"/(?:etc/(?:bash\.)?(?:bashrc|profile)|\.bash\w+|\.profile)\b")
FROM_THE_START = (
    "look first at what the training starts from: of a resumed run the checkpoint (its weights, its optimizer"
    " and what the earlier log says of the same steps); else mask and rewards of the first batch (a group"
    " of one answer, no token that counts), weights that were not loaded, an overflow in fp16, code"
    " of the loss; `torch.autograd.set_detect_anomaly(True)` names the operation"
)


# Logs of Ray's own services. They go on while a run ends, and then tell of peers that are gone.
RAY_SERVICE = re.compile(
    r"(?:^|/)(?:dashboard\w*|gcs_server|raylet|monitor|log_monitor|runtime_env_agent)\.(?:log|out|err)(?:\.\d+)?(?:\.gz)?$"
)


def conclude(logs: Sequence[Sequence[Part]]) -> list[Match]:
    """All matches, in the order of `rank`; those of earlier attempts are notes."""
    logs = [[_of_service(part) for part in _begun(parts)] for parts in logs]
    *before, logs = jobs_of(logs)
    last = [parts[-1] for parts in logs]
    earlier = [
        [parts[at] for parts in logs if at < len(parts) - 1]
        for at in range(max(map(len, logs), default=1) - 1)
    ]
    starts = [part.attempt.start for part in last if part.attempt.start is not None]
    begun = max((start.time for start in starts if start.time is not None), default=None)
    if begun is not None and earlier:
        last, earlier[-1] = _by_time(last, earlier[-1], begun)
    found, ends = _settled(last), [_settled(parts) for parts in [*attempts_of(before), *earlier]]
    told = tuple(_told(at, matches) for at, matches in enumerate(ends, 1))
    if told:
        # Times, names and lines of a start show it; a second program of one script has such lines too.
        this = f"inferred: this is attempt {len(told) + 1} in these logs"
        found = [
            match if match.verdict == NOTE else replace(match, facts=(*match.facts, this, *told))
            for match in found
        ]
    cause = first_cause(found)
    if cause is not None and cause.wrapper and cause.kind == EFFECT:
        found = [_as_effect(match) if match is cause else match for match in found]
    elif cause is not None and cause.kind in DISKS:
        found = [with_server(match, found) if match is cause else match for match in found]
    return rank([*found, *(_as_earlier(match) for matches in ends for match in matches)])


def _of_service(part: Part) -> Part:
    """The part; in a log of Ray's services a line that is an effect at best explains nothing."""
    if RAY_SERVICE.search(part.file) is None:
        return part
    return part._replace(
        matches=[
            replace(match, verdict=NOTE, why=f"{match.title}; in a log named as those of Ray's services")
            if match.signature.startswith("effect.") and match.verdict != NOTE
            else match
            for match in part.matches
        ]
    )


def _as_effect(match: Match) -> Match:
    """The cause that is known to be none: nothing else was found."""
    cause = "it is an effect; of what, the lines around it may say, of which triage knows none as a cause"
    why = f"{match.why or match.title}; inferred: {cause}"
    return replace(match, why=why, kind=NETWORK if match.signature == CLIENT else match.kind)


def _begun(parts: Sequence[Part]) -> Sequence[Part]:
    """The attempts, without a last one that neither worked nor failed: its start may be none."""
    return parts if lives(parts[-1]) or len(parts) == 1 else _begun(parts[:-1])


def _by_time(last: list[Part], before: list[Part], begun: float) -> tuple[list[Part], list[Part]]:
    """Matches of logs that show no second start belong to the attempt of their time."""
    now, past = list[Part](), list(before)
    for part in last:
        old = [
            match
            for match in part.matches
            if part.attempt.start is None and match.time is not None and match.time < begun - SAME_MOMENT_S
        ]
        if old:
            past.append(part._replace(matches=old))
        now.append(part._replace(matches=[match for match in part.matches if match not in old]))
    return now, past


def _settled(parts: Sequence[Part]) -> list[Match]:
    """The matches of one attempt over all logs, with the silence before its end, if there was one."""
    matches = settle(
        [
            _script_went_on(match, part)
            for part in parts
            for match in with_good_end(part.matches, part.attempt)
        ],
        {part.file: part.attempt.course for part in parts},
    )
    matches = with_nodes(matches, [part.attempt.speakers for part in parts])
    matches = with_addresses(matches, [(part.file, part.attempt.addresses) for part in parts])
    matches = [_from_the_start(match, parts) for match in matches]
    attempts = {part.file: part.attempt for part in parts}
    matches = [
        after_training(match, attempts[match.file]) if match.file in attempts else match for match in matches
    ]
    works = {part.file: part.attempt.work for part in parts}
    matches = _with_launch(_with_late_effect(matches, parts))
    end = first_cause(matches)
    if end is not None and end.signature in NOT_LEARNED:
        return with_failed_rewards(end, matches)
    if end is not None and end.signature in HANGS:
        return [with_last_work(end, works) if match is end else match for match in matches]
    if end is not None and end.signature == ABORTED:
        hung = with_silence(_at_its_time(end), works) if _only_a_signal(end) else None
        if hung is None or hung.kind != STALL or any(part.attempt.course.done for part in parts):
            return matches
        return _beside(replace(hung, facts=end.facts, fix=ABORT_OF_HUNG), matches, worked=True)
    if end is None or not is_end(end):
        return matches
    dones = [(part.file, part.attempt.course.done) for part in parts]
    ends = [(f"{file}:{done.line}", _came_before(done, file, end)) for file, done in dones if done]
    blocked = next((match for match in matches if not ends and _held_up(match, parts)), None)
    if blocked is not None:
        return rank(_below_end(match, end, blocked) for match in matches)
    told = with_silence(end, works)
    waits = _that_waits(matches, parts) if told is None and not ends else None
    if waits is not None:
        return rank(_below_end(match, end, waits) for match in matches)
    if told is not None and told.kind != STALL and not ends:
        # Two clocks leave the silence in doubt; an exception that no work followed takes the doubt away.
        last = next((match for match in matches if _held_up(match, parts, silent=True)), None)
        if last is not None:
            return rank(_below_end(match, end, last) for match in matches)
    if ends:
        place, sure = max(ends, key=lambda known: known[1])
        fact = f"a trainer {'had said before' if sure else 'says as well'} that it was at its end ({place})"
        told = told if told is not None and told.kind == STALL else end
        fix = AFTER_END if sure and told.kind == "time-limit" else told.fix
        told = replace(told, facts=(*told.facts, fact), fix=fix)
    told = told or without_gpu(end, matches) or without_server(end, matches)
    if told is None:
        return matches
    if told.kind != STALL:
        return [told if match is end else match for match in matches]
    return _beside(told, matches, worked=any(work.last is not None for work in works.values()))


def _only_a_signal(abort: Match) -> bool:
    """Whether the line tells the signal and its time, and no line around it a check that failed."""
    return ABORT_TIME.search(abort.text) is not None and not any(map(CHECKED.search, abort.context))


def _at_its_time(abort: Match) -> Match:
    """The abort at the time of the next line that has one, where that is the one which it tells itself, in
    seconds since the epoch: the log's clock is one of some zone."""
    told = ABORT_TIME.search(abort.text)
    if told is None or abort.until is None:
        return abort
    apart = abs((abort.until - int(told[1]) + ZONE_S / 2) % ZONE_S - ZONE_S / 2)
    return replace(abort, time=abort.until) if apart < SAME_MOMENT_S else abort


def _script_went_on(match: Match, part: Part) -> Match:
    """The match; as survived if a shell missed a command, and its log shows work after that, if a start-up
    file of a shell missed a variable and a program failed later, or if a gradient norm was no number, its
    loss was one, and later norms of the log are: that update was skipped."""
    work, later = part.attempt.work.last, part.attempt.course.finite
    outlived = match.signature in MISSED and work is not None and work.line > match.line
    if match.signature == UNBOUND and START_UP_FILE.search(match.text):
        outlived = any(one.line > match.line and not (one.wrapper or is_end(one)) for one in part.matches)
    passed = match.signature == GRADIENT and later is not None and later.line > match.line
    return replace(match, survived=True) if outlived or passed else match


def _came_before(mark: Landmark, file: str, end: Match) -> bool:
    """Whether the logs show that the mark came before the end."""
    if file == end.file:
        return mark.line < end.line
    return mark.time is not None and end.time is not None and mark.time <= end.time


def _with_launch(matches: list[Match]) -> list[Match]:
    """The matches; where processes never came, or met their like, with how the program was started."""
    for signature, told in (
        (STARTED_ALONE, NOT_MET),
        (STARTED_TWICE, NOT_MET | OF_TWO_LAUNCHERS),
        (RAY_HERE, RAY_NOT_MET),
    ):
        start = next((match for match in matches if match.signature == signature), None)
        if start is not None:
            fact = f"at {start.file}:{start.line} {start.title}"
            matches = [
                replace(match, facts=(*match.facts, fact)) if match.signature in told else match
                for match in matches
            ]
    return matches


def _from_the_start(match: Match, parts: Sequence[Part]) -> Match:
    """The match; a value of the first step that is no number did not come from the steps before it. One of an
    evaluation says nothing of the training."""
    first = next((part.attempt.course.first_step for part in parts if part.file == match.file), None)
    if match.signature not in NO_NUMBER or first is None or first.line < match.line:
        return match
    if OF_EVALUATION.search(match.text):
        return match
    fact = "it is in the first step that this log shows"
    return replace(match, facts=(*match.facts, fact), fix=FROM_THE_START)


def _with_late_effect(matches: list[Match], parts: Sequence[Part]) -> list[Match]:
    """The matches; where only a weak line explains the end, the failure after which an engine's log shows no
    work comes first. Steps after it do not show that it was survived: what it had given was still trained on,
    or the clocks of the logs are those of two zones."""
    end = first_cause(matches)
    if end is None or not end.generic or end.survived or end.kind in NEVER_SURVIVED or is_end(end):
        return matches
    quiet = {
        part.file: part.attempt.work.last.line
        for part in parts
        if part.file != end.file and part.attempt.work.last is not None and not part.attempt.course.last_step
    }
    ended = {
        (match.file, match.line)
        for part in parts
        for match in part.matches
        if match.kind in DEADLY and not match.generic and match.line > quiet.get(match.file, match.line)
    }
    last = next((match for match in matches if match.survived and (match.file, match.line) in ended), None)
    if last is None or last.verdict == NOTE:
        return matches
    fact = "inferred: steps were trained after it, but its own log shows no known sign of work any more"
    cause = replace(last, survived=False, generic=False, facts=(*last.facts, fact))
    return rank(cause if match is last else match for match in matches)


def _beside(stall: Match, matches: list[Match], *, worked: bool) -> list[Match]:
    """The stall and the other matches. What work went on after is no cause of it, and is told."""
    after = [demote_end(match, stall) if worked or is_end(match) else match for match in matches]
    outlived = [
        new.order
        for new, old in zip(after, matches, strict=True)
        if new.survived and not old.survived and old.kind not in NEVER_SURVIVED and _has_order(old, stall)
    ]
    last = next((match for match in after if outlived and match.order == max(outlived)), None)
    if last is not None:
        stall = replace(
            stall, facts=(*stall.facts, f"work went on after {last.file}:{last.line}: {last.text[:100]}")
        )
    return rank([stall, *after])


def _has_order(match: Match, stall: Match) -> bool:
    """Whether lines or times show which came first: a line without a time in another log has no place."""
    return match.file == stall.file or (match.time is not None and stall.time is not None)


def _held_up(match: Match, parts: Sequence[Part], *, silent: bool = False) -> bool:
    """Whether the weak line is of a run that never began to train, or fell `silent`, and shows no sign of
    work after it."""
    if not match.generic or match.wrapper or match.survived or match.verdict == NOTE or is_end(match):
        return False
    began = any(part.attempt.course.first_step for part in parts)
    work = next((part.attempt.work.last for part in parts if part.file == match.file), None)
    if silent:
        return match.signature in EXCEPTIONS and work is not None and work.line < match.line
    return not began and (match.signature in EXCEPTIONS or work is None or work.line < match.line)


def _that_waits(matches: Sequence[Match], parts: Sequence[Part]) -> Match | None:
    """What a process said of its long wait, where nothing shows work after it and each log that shows a step
    ends with such a wait too."""
    waits = {match.file: match for match in matches if match.signature == WAITS and not match.survived}
    for part in parts:
        work, waited = part.attempt.work.last, waits.get(part.file)
        if waited is None and part.attempt.course.last_step is not None:
            return None
        if waited is not None and work is not None and work.line > waited.line:
            return None
    return next((match for match in matches if match.signature == WAITS and match.file in waits), None)


def _below_end(match: Match, end: Match, blocked: Match) -> Match:
    """What follows the end in its log comes from it."""
    if match.file == end.file and match.line > end.line and match.verdict != NOTE:
        return replace(match, survived=True)
    return demote_end(match, blocked)


def _told(number: int, matches: list[Match]) -> str:
    end = first_cause(matches)
    if end is None:
        return f"attempt {number} shows no failure that is known"
    return f"attempt {number}: {end.title} ({end.file}:{end.line})"


def _as_earlier(match: Match) -> Match:
    if match.verdict == NOTE:
        return match
    why = f"{match.title}; {FOLLOWED}"
    return replace(match, verdict=NOTE, survived=True, why=why)
