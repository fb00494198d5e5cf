"""The silence before a run's end: whether it worked until its time was up, or had stood still for long."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace

from jobspec.triage.match import Match
from jobspec.triage.signatures import BLOCKED
from jobspec.triage.work import DAY_S, Sign, Work

STALL = "stall"  # the class of such an end
LEAST_S = 1800.0  # no shorter silence is one
LEAST_GUESSED_S = 3600.0  # where the time of the last sign is inferred, or no pause is known to compare with
PAUSES = 5  # times the longest pause between two signs of work
SOON_S = 600.0
FEW_SIGNS = 3
FEW_LINES = 20  # without a time, which a run that does nothing may print
# Slurm's clock may show another zone than the program's: whole hours, and India's.
ZONES_S = tuple(3600.0 * hours for hours in (*range(1, 15), 5.5))
FIX = (
    "find what it waited for from that line on, here and in the logs of other workers and servers,"
    " if any; if it stands still again, take stacks (`py-spy dump`) before it ends"
)


SAVE_BEGAN = re.compile(
    r"\bStarted: '(?:\w+_)?save_|\bTimer save\w* start\b"
    r"|\b[Ss]aving checkpoint\b(?!.*\b(?:done|took|finished)\b)"
)
SAVE_LAST = (
    "the log does not show that this save ended: look whether its files are whole, and whether the storage"
    " is slow, full or over its quota; if it stands still again, take stacks of all ranks (`py-spy dump`)"
    " before it ends: they show whether the ranks wait for each other in the save, or for a file"
)

# The first use of NCCL in an engine; nothing of the set-up stands between it and the weights.
NCCL_BEGAN = re.compile(r"\bpynccl\.py:\d+\] vLLM is using nccl\b")
NCCL_LAST = (
    "inferred: the engine's workers wait for each other in their first NCCL communication. Try"
    " `NCCL_P2P_DISABLE=1` and `--disable-custom-all-reduce`; where that helps, suspect peer-to-peer between"
    " the GPUs (IOMMU, ACS, driver) and tell the admins. Else `NCCL_DEBUG=INFO` and stacks (`py-spy dump`) of"
    " all workers"
)

# A resumed run of transformers reads the batches again that it has trained on; its bar stands at 0 meanwhile.
SKIPS = re.compile(r"\bWill skip the first \d+ epochs then the first [1-9]\d* batches\b")
AT_ZERO = re.compile(r"\| *0/\d+ \[")
SKIPS_FIX = (
    "see by other lines, or by stacks (`py-spy dump`), whether it was still skipping: then it needs more"
    " time, or data that can begin at that place (a stateful loader, `skip` on shards), or"
    " `ignore_data_skip=True`, which trains on the first batches again; else find what it waited for"
)

WAITED = "collective"  # the class of a hang whose cause the log shows
# A save whose end is logged as well. SkyRL says `Finished` of one that failed, too.
SAVE = re.compile(
    r"\bStarted: '(?:\w+_)?save_|\bsaving checkpoint at iteration\b|\bSaving checkpoint\. This may take"
    r"|\bModel checkpoint of size \S+ GiB saved to\b"  # torchtune: one file of many
    r"|\bSaving model checkpoint to\b"  # transformers
)
# What one rank, or one for each node, does while the others wait at a barrier; a bar that is full is over.
ALONE = re.compile(
    r"^(?:Running tokenizer|Tokeniz\w+|Pre-?process\w*|Map\b|Filter\b|Packing|Grouping|Converting"
    r"|Generating \w+ split|Downloading|Fetching \d+ files|Saving the dataset)[^|]*?(?<!\d)\d{1,2}%\|"
)
ALONE_FIX = (
    "inferred: the other ranks waited at a barrier for the rank that still did this. Do it beforehand, in a"
    " job of its own (prepare the data set once and load it, download the model first), with more processes"
    " (`num_proc`), or raise the time limit of the process group (`ddp_timeout`,"
    " `init_process_group(timeout=...)`). Where it was not one rank alone"
)
SAVE_ENDED = re.compile(r"\bFinished: '(?:\w+_)?save_")
SAVE_FIX = (
    "inferred: the ranks waited while files were saved. See how long earlier saves took, and whether the"
    " storage is slow, full or over its quota; save less often, to a faster disk,"
    " from all ranks (sharded) or the adapter alone, or raise the time limit of the process group"
    " (`init_process_group(timeout=...)`); where saves are quick"
)


@dataclass(frozen=True)
class Silence:
    """The last sign of work, or the last line where there is no sign, and the seconds from it to the end.

    It is `doubtful` where two clocks in different zones may explain the seconds; it lasted so long at `least`
    where no line of the program's clock shows when the end came.
    """

    file: str
    last: Sign
    work: Work
    seconds: float
    doubtful: bool
    least: bool = False

    @property
    def span(self) -> str:
        return f"{'at least ' if self.least else ''}{_span(self.seconds)}"

    @property
    def is_long(self) -> bool:
        sure = self.last.timed and self.work.count >= FEW_SIGNS
        return self.seconds > max(LEAST_S if sure else LEAST_GUESSED_S, PAUSES * self.work.longest)


def with_silence(end: Match, works: Mapping[str, Work]) -> Match | None:
    """The end after a long silence: as a stall, at the last sign of work, or, in doubt, with what is known.

    None where the run worked on, or nothing is known.
    """
    silence = _silence(end, works)
    if silence is not None:
        silence = _at_last_word(silence)
    if silence is None or not silence.is_long:
        return None
    skips = silence.work.phase
    said = SKIPS.search(skips.text) if skips is not None else None
    if skips is not None and said is not None and _right_after(skips, silence):
        fact = f"{silence.file}:{skips.line} says `{said[0]}`, and no step is known after it"
        return replace(end, facts=(*end.facts, fact), fix=SKIPS_FIX)
    if silence.doubtful:
        where = f"{silence.file}:{silence.last.line}, {_span(silence.seconds)} before"
        fact = f"no known sign of work after {where}, if all clocks show one zone"
        return replace(end, facts=(*end.facts, fact), fix=f"see whether it worked until then: {end.fix}")
    return replace(
        end,
        facts=(*end.facts, *_after(silence)),
        signature="run.stall",
        kind=STALL,
        verdict=BLOCKED,
        file=silence.file,
        line=silence.last.line,
        text=silence.last.text,
        time=None
        if silence.last.time is None or end.time is None
        else end.time - silence.seconds
        if silence.work.dateless
        else silence.last.time,
        context=(),
        generic=False,
        wrapper=False,
        place="",
        title=f"no known sign of work for {silence.span} before the end",
        why=_why(end, silence),
        fix=_fix(silence.last.text),
        source="",
    )


def with_last_work(hang: Match, works: Mapping[str, Work]) -> Match:
    """A watchdog's complaint, with the last sign of work before it."""
    signs = [
        (work.last.time or 0.0, file, work.last)
        for file, work in works.items()
        if work.last is not None and (work.last.line < hang.line if file == hang.file else work.known)
    ]
    waited = _waited(hang, works)
    if waited is not None:
        file, last, advice = waited
        fact = f"the last phase that is known is {file}:{last.line}: {last.text[:100]}"
        return replace(
            hang, verdict=BLOCKED, kind=WAITED, facts=(*hang.facts, fact), fix=f"{advice}: {hang.fix}"
        )
    if not signs:
        return hang
    _, file, last = max(signs, key=lambda sign: sign[0])
    fact = f"the last line known as a sign of work is {file}:{last.line}: {last.text[:100]}"
    return replace(hang, facts=(*hang.facts, fact))


def _waited(hang: Match, works: Mapping[str, Work]) -> tuple[str, Sign, str] | None:
    """What went on while the collective did not end, and the advice: a save, begun last before or said to end
    after it, or what one rank did alone."""
    work = works.get(hang.file)
    if work is None or work.last is None:
        return None
    last = work.last
    pattern = SAVE if last.line < hang.line else SAVE_ENDED
    if pattern.search(last.text):
        return hang.file, last, SAVE_FIX
    return (hang.file, last, ALONE_FIX) if ALONE.search(last.text) else None  # it may print on below


def _after(silence: Silence) -> tuple[str, ...]:
    """What the program says after its last sign of work: that it waits, and its last word."""
    work = silence.work
    lines = {sign.line: sign.text for sign in (work.wrote, work.waits, work.said) if sign is not None}
    return tuple(
        f"after it {silence.file}:{line} says: {text[:100]}"
        for line, text in sorted(lines.items())
        if line > silence.last.line
    )


def _at_last_word(silence: Silence) -> Silence:
    """The silence, at what the program said last, where that came so soon after the last sign of work that it
    is part of the work. A save that began stays: other processes may work on beside it."""
    last, work = silence.last, silence.work
    said = work.said if work.said is not None and work.said.line > last.line else work.wrote
    if said is None or said.time is None or last.time is None:
        return silence
    if not 0 <= said.time - last.time <= max(work.longest, SOON_S):
        return silence
    seconds = silence.seconds - said.time + last.time
    saves = SAVE_BEGAN.search(last.text) is not None
    named = last if saves else said
    return replace(silence, last=named, seconds=seconds, least=silence.least or saves or not said.timed)


def _silence(end: Match, works: Mapping[str, Work]) -> Silence | None:
    """The silence before the end; None where work, or a line without a time, may have come later."""
    signs = {file: work.last for file, work in works.items() if work.last is not None}
    if not signs:
        signs = {file: work.said for file, work in works.items() if work.said is not None}
        known = all(work.untimed <= FEW_LINES for work in works.values())
    else:
        known = all(works[file].known for file in signs)
    if not signs or not known:
        return None
    dated = {file: sign for file, sign in signs.items() if not works[file].dateless}
    if dated and len(dated) < len(signs):
        return None  # no order between clocks and times with a date
    file, last = max(signs.items(), key=lambda item: item[1].time or 0.0)
    if last.time is None or (file == end.file and last.line > end.line):
        return None
    clocks = [
        work.until for work in works.values() if work.until is not None and work.dateless == (not dated)
    ]
    heard = max(clocks, default=0.0) - last.time
    slurm = (end.time or 0.0) - last.time
    if not dated:
        slurm = slurm % DAY_S if end.time is not None else 0.0  # at least: it may have been days
        slurm = 0.0 if slurm > DAY_S - SOON_S else slurm  # its last words came after the end
    if heard > 0:  # by the program's own clock
        near = 0 < slurm <= heard + SOON_S  # both clocks show one zone
        least = not near and not works[file].parted
        told = Silence(file, last, works[file], slurm if near else heard, False, least)
        if told.is_long or slurm <= heard or any(work.parted for work in works.values()):
            return told
        slurm -= heard  # after the last line of any kind
    usual = max(works[file].longest, 300.0)
    zones = ZONES_S if dated else (*ZONES_S, *(DAY_S - zone for zone in ZONES_S))
    doubtful = any(-60 <= slurm - zone <= usual for zone in zones) and works[file].waited < LEAST_GUESSED_S
    return Silence(file, last, works[file], slurm, doubtful)


def _right_after(skips: Sign, silence: Silence) -> bool:
    """Whether the skip is the last sign of work, but for a bar at 0."""
    last = silence.work.last
    return last is not None and (last.line == skips.line or AT_ZERO.search(last.text) is not None)


def _fix(text: str) -> str:
    """The advice by the line at which the run stood still."""
    if SAVE_BEGAN.search(text):
        return SAVE_LAST
    return NCCL_LAST if NCCL_BEGAN.search(text) else FIX


def _why(end: Match, silence: Silence) -> str:
    file, last, work = silence.file, silence.last, silence.work
    wrote = last is work.wrote
    sign = "the last line before that" if wrote else "the last line with a time"
    sign = "the last line known as a sign of work" if last is work.last else sign
    parts = [f"{sign} is {file}:{last.line}, {silence.span} before {end.file}:{end.line}"]
    if wrote:
        parts.append("that line has no time: it came before the next one that has")
    elif not last.timed:
        parts.append("the time of that line is inferred from those above it")
    if work.count >= FEW_SIGNS and work.longest:
        parts.append(f"no pause between earlier signs of work was longer than {_span(_up(work.longest))}")
    if work.phase is not None and work.phase.line != last.line:
        phase = f"`{work.phase.text}` ({file}:{work.phase.line})"
        parts.append(f"the last line known to be about a phase is {phase}")
    if work.last is None:
        return "; ".join([*parts, "inferred: it never began to work, or works without a word"])
    return "; ".join([*parts, f"inferred: the run stood still, and the end ({end.title}) is an effect"])


def _up(seconds: float) -> float:
    """The next whole minute: nothing is longer than what is rounded up."""
    return math.ceil(seconds / 60) * 60


def _span(seconds: float) -> str:
    minutes = round(seconds / 60)
    return f"{minutes // 60} h {minutes % 60} min" if minutes >= 60 else f"{max(minutes, 1)} min"
