"""From matches to a first cause: survived failures, verdicts by the run's course, and the order.

More than 400 lines: rules that overrule each other stand in one place.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace

from jobspec.triage.course import CRASHED, Course, at_boundary
from jobspec.triage.landmarks import Landmark
from jobspec.triage.match import Match
from jobspec.triage.signatures import NOTE
from jobspec.triage.silence import STALL
from jobspec.triage.times import CLOCK

# A step that ends so soon after a failure on another node may have begun before it: clocks differ.
SAME_MOMENT_S = 5.0
# Kinds that stay causes though the run goes on. They are about the training itself, or the scheduler's last
# word, whose time may be in another zone than the program's.
NEVER_SURVIVED = frozenset(
    {"numerics", "learning", "checkpoint", "refit", "data-plane", "time-limit", "preempted", "secret"}
)
# Unless an evaluation logged the value.
OF_EVALUATION = re.compile(r"(?i)(?<![a-z])(?:eval|val|valid|validation|test)[ _/.-](?:\w+/)*\w*loss\b")
# Kinds of failures after which a process seldom goes on.
DEADLY = frozenset({"gpu-memory", "gpu", "node", "host-memory"})
ENDS = frozenset({"time-limit", "cancelled"})
# A launcher's refusal: nothing that it was to start has run.
LAUNCHER = re.compile(
    r"^(?:srun|sbatch|salloc|torchrun|accelerate|deepspeed|mpirun): (?:fatal|error: (?:Unable to|un|arg"
    r"|Batch job submission failed|Job submit/allocate failed))"
    r"|^(?:\d+: )?slurmstepd: error: execve\(\): "
)
ACCEPTED = "note.submitted"
# What Slurm, the kernel, a container's hook, a server or a process that could not join says last, of which
# earlier lines of these kinds, or signatures, are effects.
TOLD_LAST = {
    "network.host-unresolved": frozenset({"network"}),
    "slurm.node-fail": frozenset({"ray", "network"}),
    **dict.fromkeys(("gpu.bad-node", "gpu.gsp"), frozenset({"gpu", "collective"})),
    **dict.fromkeys(
        ("container.driver", "container.gpu-cli", "container.gpu-hook"), frozenset({"container"})
    ),
    "gpu.driver-reload": frozenset({"container"}),
    "engine.weight-group-open": frozenset({"network"}),
    **dict.fromkeys(
        (
            *("container.image-missing", "container.kube-secret", "container.registry-trust"),
            "container.nfs-mount",
        ),
        frozenset({"container.kube-start"}),
    ),
    "build.compiler": frozenset({"image.build-extension"}),
    "container.device-plugin": frozenset({"container.kube-unschedulable"}),
    "slurm.daemon-fatal": frozenset({"slurm.nodes-down"}),
    "ray.start-timeout": frozenset({"ray.gpus-missing", "node-not-joined"}),
}
TERMINATED = "effect.terminated"
KILLED, ABORTED = "effect.killed", "effect.aborted"
# A launcher, or the shell, says of a process that its end is the one that failed.
SIGKILL, FAILED_FIRST = "host.sigkill", re.compile(r"\bfailed \(exitcode: -9\)|: line \d+: +\d+ Killed\b")
HANGS = frozenset({"effect.nccl-watchdog", "effect.nccl-stuck", "effect.store-timeout"})
GAVE_UP = frozenset({"effect.nccl-watchdog"})  # a wait of its whole time-out: not one for a peer that ends
ENGINE_DIED, DRIVERS = "effect.engine-died", frozenset({"effect.driver", "effect.ray-task"})
SAY_LEAST = frozenset({TERMINATED, "effect.driver"})  # every other effect says more
GPUS_MISSING, HEAD_UNREACHED = "ray.gpus-missing", "ray.gcs-unreachable"
CLIENT, REFUSED = "effect.client", "network.request-refused"
TRANSPORT, DROPPED = "network.infiniband", re.compile(r"(?:status ?= ?|error )5\b|vendor err 249|WR_FLUSH")
LAST_TRY = re.compile(r"\bRetryError\[<Future at \w+ state=finished raised (?P<name>\w+)>")  # of tenacity
KEY_REFUSED, NO_SIGNAL = "network.key-refused", "provider.zero-gradient"
# Requests whose answers the training uses; without those to a tracker it goes on.
ASKED_FOR_ANSWERS = re.compile(
    r"(?i)reward|scor(?:e|ing)|verif|judge|grader|sandbox|/generate|/completions|/rm\b"
)
EXCEPTION, STEP_ENDED = "effect.exception", "effect.step-ended"
CODE_RAISED, TOLD_END = frozenset({EXCEPTION, "effect.rollout"}), frozenset({*DRIVERS, STEP_ENDED})
# What is not there may be what an earlier program of the script was to make.
ABSENT = frozenset({"disk.file-missing", "hub.repository", "data.missing", "train.checkpoint-missing"})
NAMED = "effect.exception-named"  # often one of a chain, or caught: last of its level
BY_SIGNAL = re.compile(r"\b1[34]\d\b|-\d+\b|[Tt]erminated|[Kk]illed|[Aa]bort|[Ss]ignal")
FLUSHED, SAME_WORDS = 2, 40  # lines; characters
SHUTDOWN_S = 600.0  # after the end of a run, in which other processes complain that it is gone
ENDED_WITH_IT = frozenset({"ray", "network", "rollout"})  # kinds of complaints of processes that outlive it
NOT_SUBMITTED = "Batch job submission failed"  # a script that goes on has not outlived it
# What processes say of each other while a run ends; a retry that succeeds says the same.
PARTING = frozenset({CLIENT, "effect.cancelled", "effect.server-ended", "effect.connection", TERMINATED})
# DeepSpeed asks the linker at its import whether a library is there, and goes on without it. The words of a
# build that failed: its tool, its compiler, or who started it.
LINKER = frozenset({"build.linker", "image.build-extension"})
LINKED = re.compile(r"\bld: |^collect2: ")
BUILD_FAILED = re.compile(
    r"(?i)ninja|(?:Compil\w*|Inductor|Link)Error|BackendCompilerFailed|subprocess-exited"
    r"|build(?:ing)?\b.*\b(?:extension|wheel|failed)|failed to build"
    r"|(?<!\w)(?:g?cc|[cg]\+\+|nvcc|clang|c?make)(?!\w)"
)
EFFECT = "effect"  # the kind of lines that repeat a failure without a word about what failed
STALL_LEVEL, NOTES = 2, 8  # levels of `rank`


def settle(matches: Iterable[Match], courses: Mapping[str, Course]) -> list[Match]:
    """One match per signature and log, judged by the run's course, in the order of `rank`."""
    found = _caught(list(matches))
    found = [_asked_linker(match, found) for match in found]
    settled = [_survived(match, courses, found) for match in found]
    settled = [at_boundary(match, courses) for match in _one_each(settled)]
    settled = [_after_driver(_after_hang(match, settled), settled) for match in settled]
    settled = [_of_none(match, settled) for match in settled]
    settled = [_of_no_signal(match, settled) for match in settled]
    settled = _last_tries(settled)
    failing = any(match.verdict != NOTE and not match.survived for match in settled)
    return rank(settled if failing else [_as_note(match) for match in settled])


def _caught(matches: list[Match]) -> list[Match]:
    """The matches; what another process raised again was not caught for good."""
    raised = {match.text for match in matches if not match.caught}
    return [replace(match, caught=match.caught and match.text not in raised) for match in matches]


def _asked_linker(match: Match, found: Iterable[Match]) -> Match:
    """The match; as survived where the linker says it, no build is said to have failed, and the program went
    on until something else raised an exception."""
    if match.signature not in LINKER or not LINKED.search(match.text):
        return match
    own = (one for one in found if one.file == match.file and one.line > match.line and one.verdict != NOTE)
    later = [one for one in own if not LINKED.search(one.text)]
    if any(BUILD_FAILED.search(one.text) for one in later) or all(one.wrapper for one in later):
        return match
    return replace(match, survived=True, generic=True)


def rank(matches: Iterable[Match]) -> list[Match]:
    """The matches, the likeliest first cause first.

    Levels in order: specific lines, weak lines, a stall, survived lines, wrappers that say what ended,
    wrappers of kind `effect`, survived wrappers, notes. Within a level time decides if every match has a
    time. Otherwise the reading order decides, since a line without a time has no place between two.
    """
    unordered = list(matches)
    timed = {
        level: all(match.time is not None for match in unordered if _level(match) == level)
        for level in range(NOTES + 1)
    }
    moments = _moments(unordered)
    ordered = sorted(
        unordered,
        key=lambda m: (
            _level(m),
            (m.caught and m.generic) or m.signature == NAMED,
            moments[id(m)] if timed[_level(m)] else 0.0,
            m.order,
        ),
    )
    for launch in [match for match in ordered if LAUNCHER.search(match.text)]:
        _move_up(launch, ordered)
    for lost in [match for match in ordered if match.signature in TOLD_LAST]:
        effects = TOLD_LAST[lost.signature]
        named = (at for at, m in enumerate(ordered) if effects & {m.kind, m.signature})
        shown = (at for at in named if ordered[at].signature not in TOLD_LAST)
        place = next(shown, len(ordered))
        if place < ordered.index(lost) and _level(ordered[place]) == _level(lost):
            ordered.remove(lost)
            ordered.insert(place, lost)
    return _joiner_first(_server_first(_maker_first(ordered)))


def _maker_first(ordered: list[Match]) -> list[Match]:
    """The matches; where the first is of a thing that is not there, and an earlier program of the same script
    had ended with an exception of its own, that one stands before it: the script went on."""
    if not ordered or ordered[0].signature not in ABSENT or not ordered[0].main:
        return ordered
    own = [match for match in ordered if match.file == ordered[0].file and match.line < ordered[0].line]
    end = max((match.line for match in own if match.signature == STEP_ENDED), default=0)
    failed = (m for m in own if m.line < end and m.main and m.generic and not (m.wrapper or m.survived))
    maker = min(failed, key=lambda match: match.line, default=None)
    return ordered if maker is None else [maker, *(match for match in ordered if match is not maker)]


def _joiner_first(ordered: list[Match]) -> list[Match]:
    """The matches; where the first says that the cluster lacks GPUs, and another log that a process did not
    reach its head, that one stands before it, unless the times show that it came later."""
    if not ordered or ordered[0].signature != GPUS_MISSING:
        return ordered
    first = ordered[0]
    apart = (m for m in ordered if m.signature == HEAD_UNREACHED and m.file != first.file and not m.survived)
    lost = next((m for m in apart if m.time is None or first.time is None or m.time <= first.time), None)
    return ordered if lost is None else [lost, *(match for match in ordered if match is not lost)]


def _server_first(ordered: list[Match]) -> list[Match]:
    """The matches; where the first is of a connection that was refused, or of a transfer that was dropped as
    its connection ended, the end of a process that another log shows stands before it, unless the times show
    that it came later: nobody refuses before his end."""
    if not ordered:
        return ordered
    first, dropped = ordered[0], ordered[0].signature == TRANSPORT and DROPPED.search(ordered[0].text)
    if first.signature != REFUSED and not dropped:
        return ordered
    ends = (
        m
        for m in ordered
        if m.file != first.file
        and not (m.wrapper or m.survived or m.verdict == NOTE)
        and (
            m.time <= first.time + SAME_MOMENT_S
            if m.time is not None and first.time is not None
            else dropped or m.signature != EXCEPTION
        )
        and (m.kind in DEADLY or m.signature in (EXCEPTION, CRASHED))
    )
    end = next(ends, None)
    if end is None:
        return ordered
    return [end, replace(first, generic=True), *(m for m in ordered if m is not end and m is not first)]


def _moments(matches: Iterable[Match]) -> dict[int, float]:
    """The time of each match by its id. A line that tells none has it from a neighbour: where a log has such
    a line after another one of nearly the same moment, their places in it decide."""
    latest, moments = dict[str, float](), dict[int, float]()
    for match in sorted(matches, key=lambda match: (match.file, match.line)):
        time, before = match.time or 0.0, latest.get(match.file, 0.0)
        near = time < before <= time + SAME_MOMENT_S and CLOCK.search(match.text.encode()) is None
        moments[id(match)] = before if near else time
        latest[match.file] = max(moments[id(match)], before)
    return moments


def _move_up(launch: Match, ordered: list[Match]) -> None:
    """Put what a launcher refused before all that its log shows after it, whatever times these have and
    however much they say."""
    if launch.wrapper or launch.survived or launch.verdict == NOTE:
        return
    at = ordered.index(launch)
    accepted = any(
        match.signature == ACCEPTED and match.file == launch.file and match.line > launch.line
        for match in ordered
    )
    for place, match in enumerate(ordered[:at]):
        if accepted and _level(match) < _level(launch):
            continue
        if match.file == launch.file and match.line > launch.line:
            ordered.insert(place, ordered.pop(at))
            return


def first_cause(matches: Iterable[Match]) -> Match | None:
    """The match that explains a failure, or None: a note never does."""
    return next((match for match in rank(matches) if match.verdict != NOTE), None)


def _level(match: Match) -> int:
    if match.verdict == NOTE:
        return NOTES
    if match.wrapper:
        effect = match.kind == EFFECT or match.kind in ENDS
        if match.survived:
            return 7
        return 6 if match.signature in SAY_LEAST else 4 + effect
    if match.kind == STALL:
        return STALL_LEVEL
    return 3 if match.survived else int(match.generic)


def is_end(match: Match) -> bool:
    """Whether the line only says that something outside ended the run, or a part of it."""
    return match.kind in ENDS


def demote_end(match: Match, stall: Match) -> Match:
    """A match of a run that stood still. Its end is an effect, and a weak line before the last sign of work
    is no cause, since work went on after it."""
    if is_end(match):
        return replace(match, generic=True, wrapper=True)
    weak = match.generic and not match.wrapper and match.verdict != NOTE
    return replace(match, survived=True) if weak and not _comes_after(match, stall) else match


def _comes_after(match: Match, stall: Match) -> bool:
    if match.file == stall.file:
        return match.line > stall.line
    return (match.time or 0.0) >= (stall.time or 0.0)


def _survived(match: Match, courses: Mapping[str, Course], found: Iterable[Match]) -> Match:
    """The match, weakened where the run went on after it or had ended before it."""
    if match.verdict == NOTE or (match.kind in NEVER_SURVIVED and not OF_EVALUATION.search(match.text)):
        return match
    if NOT_SUBMITTED in match.text and not any(course.last_step for course in courses.values()):
        return match  # what the script says at its end is of itself
    went_on = any(
        _after(mark, match, file)
        for file, course in courses.items()
        for mark in (course.last_step, course.closed)
    )
    parting = match.signature in PARTING and any(course.finished for course in courses.values())
    weak = (
        went_on
        or parting
        or _as_before(match, courses, found)
        or _before_good_end(match, courses)
        or _in_shutdown(match, courses, found)
    )
    # A time that only a line below tells, as below another command's output, is no place among the steps.
    placed = match.time != match.until
    trained_on = any(
        _after(course.last_step, match, file)
        for file, course in courses.items()
        if placed or file == match.file
    )
    return replace(match, survived=True, generic=True, trained_on=trained_on) if weak else match


def _as_before(match: Match, courses: Mapping[str, Course], found: Iterable[Match]) -> bool:
    """Whether its code had raised the same before, training went on, and nothing ended by it."""
    if match.signature not in CODE_RAISED or match.main:
        return False
    own = [other for other in found if other.file == match.file]
    if any(other.signature in TOLD_END and other.line > match.line for other in own):
        return False
    step = courses.get(match.file, Course()).last_step
    # Ray prints the frames of the same exception once for many workers.
    same = [other for other in own if other.text[:SAME_WORDS] == match.text[:SAME_WORDS]]
    same = [other for other in same if other.place == match.place or not (other.place and match.place)]
    return any(other.line < match.line and _after(step, other, other.file) for other in same)


def _before_good_end(match: Match, courses: Mapping[str, Course]) -> bool:
    """Whether the trainer had said before that it was at its end, and a good end is stated after it."""
    course = courses.get(match.file, Course())
    if not course.ended_well or course.done is None or course.stated_end is None:
        return False
    return course.done.line < match.line < course.stated_end.line


def _in_shutdown(match: Match, courses: Mapping[str, Course], found: Iterable[Match]) -> bool:
    """Whether the match only shows that the run had ended, or was about to end well."""
    if not match.generic and match.kind not in ENDED_WITH_IT:
        return False
    if match.signature == SIGKILL and FAILED_FIRST.search(match.text):
        return courses.get(match.file, Course()).ended_well  # killed while it saved, as a rule
    if match.signature in GAVE_UP:
        return courses.get(match.file, Course()).ended_well  # what it waited for was never given up by itself
    well = match.generic and courses.get(match.file, Course()).ended_well
    if not well and not any(_ended(course, match, file) for file, course in courses.items()):
        return False
    if match.main and not match.wrapper:
        return False  # the program ended by it, after the training
    if match.signature != EXCEPTION:
        return True
    later = (other for other in found if other.file != match.file or other.line > match.line)
    return well or not any(_failed(other) for other in later)


def _ended(course: Course, match: Match, file: str) -> bool:
    """Whether the match comes from the shutdown after this end."""
    if course.done is None:
        return False
    if file == match.file:
        return course.done.line < match.line
    if course.done.time is None or match.time is None:
        return match.wrapper
    if not match.wrapper and match.kind not in ENDED_WITH_IT:
        return False  # a log of another program
    return 0 <= match.time - course.done.time <= SHUTDOWN_S


def _failed(match: Match) -> bool:
    """Whether a launcher says that a process failed by itself, not by a signal."""
    return match.signature == STEP_ENDED and BY_SIGNAL.search(match.text) is None


def _after_hang(match: Match, matches: Iterable[Match]) -> Match:
    """The match; as an effect if it is the kill of a process that had given up a collective before, and no
    earlier than that if it is its abort, whose time is mostly that of another line."""
    if match.signature not in (KILLED, ABORTED):
        return match
    before = (other for other in matches if other.file == match.file and other.line < match.line)
    hangs = [other for other in before if other.signature in HANGS]
    if not hangs:
        return match
    if match.signature == KILLED:
        return replace(match, wrapper=True)
    times = [other.time for other in (match, *hangs) if other.time is not None]
    return replace(match, time=max(times)) if match.time is not None else match


def _after_driver(match: Match, matches: Iterable[Match]) -> Match:
    """The match; as survived if it is the end of an engine whose driver another exception had ended some
    seconds before."""
    if match.signature != ENGINE_DIED or match.time is None:
        return match
    before = [other for other in matches if other.file == match.file and other.line < match.line]
    ends = [other.time for other in before if other.signature in DRIVERS and other.time is not None]
    told = any(other.signature not in DRIVERS and other.verdict != NOTE for other in before)
    gone = told and bool(ends) and min(ends) + SAME_MOMENT_S < match.time
    return replace(match, survived=True) if gone else match


def _of_none(match: Match, matches: Iterable[Match]) -> Match:
    """The match; a request that failed is a cause where the code stumbled over a None after it, and no step
    came between."""
    if match.signature != CLIENT or match.survived or ASKED_FOR_ANSWERS.search(match.text) is None:
        return match
    later = (other for other in matches if other.file == match.file and other.line > match.line)
    none = next((other for other in later if other.signature == EXCEPTION and "NoneType" in other.text), None)
    if none is None:
        return match
    fact = f"inferred: the None at {none.file}:{none.line} is an answer that was not given"
    return replace(match, wrapper=False, kind="network", facts=(*match.facts, fact))


def _last_tries(matches: list[Match]) -> list[Match]:
    """The matches; where an exception names another one that the last try raised, and a line before it is of
    that name, that line is the cause and the exception repeats it."""
    for match in matches:
        told = LAST_TRY.search(match.text)
        if told is None or match.verdict == NOTE or match.survived:
            continue
        own = (
            one for one in matches if one.file == match.file and one.line < match.line and not one.survived
        )
        raised = [one for one in own if re.search(rf"\b{told['name']}\b(?=:|\s*$)", one.text)]
        if raised:
            last = max(raised, key=lambda one: one.line)
            kind = "network" if last.signature == CLIENT else last.kind
            fact = f"inferred: it is what the last try raised, of which {match.file}:{match.line} tells"
            cause = replace(last, wrapper=False, kind=kind, facts=(*last.facts, fact))
            others = {id(last): cause, id(match): replace(match, wrapper=True)}
            return [others.get(id(one), one) for one in matches]
    return matches


def _of_no_signal(match: Match, matches: Iterable[Match]) -> Match:
    """The match; a service that refused its key was not outlived where the gradient is zero after it."""
    if match.signature != KEY_REFUSED or not match.survived:
        return match
    zero = next((other for other in matches if other.signature == NO_SIGNAL and _follows(other, match)), None)
    if zero is None or zero.verdict == NOTE:
        return match
    alike = "inferred: without its answers the rewards are alike"
    fact = f"{alike}, and the gradient is zero at {zero.file}:{zero.line}"
    return replace(match, survived=False, generic=False, facts=(*match.facts, fact))


def _follows(later: Match, match: Match) -> bool:
    if later.file == match.file:
        return later.line > match.line
    return later.time is not None and match.time is not None and later.time > match.time


def _after(mark: Landmark | None, match: Match, file: str) -> bool:
    if mark is None:
        return False
    if file == match.file:
        # What the main program had printed before may be written out when it ends, below its traceback.
        return mark.line > match.line + (FLUSHED if match.main else 0)
    # A listing of the past below the line, as by `dmesg`, makes it no older.
    latest = max((time for time in (match.time, match.until) if time is not None), default=None)
    return mark.time is not None and latest is not None and mark.time > latest + SAME_MOMENT_S


def _one_each(matches: Iterable[Match]) -> Iterable[Match]:
    """One match per signature and log: the first that was not survived, of these one that was neither caught
    nor handled by code that then raised another."""
    best: dict[tuple[str, str], Match] = {}
    for match in matches:
        key = (match.file, match.signature)
        if key not in best or _said_later(match) < _said_later(best[key]):
            best[key] = match
    return best.values()


def _said_later(match: Match) -> tuple[bool, bool, bool]:
    return match.survived, match.caught and match.generic, match.wrapper


def _as_note(match: Match) -> Match:
    if match.verdict == NOTE:
        return match
    return replace(match, verdict=NOTE, why=f"{match.title}; the run went on or was at its end")
