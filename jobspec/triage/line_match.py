"""Which signature one line shows, alone or by the lines around it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple, cast

from jobspec.log_text import bare
from jobspec.triage import pods
from jobspec.triage.own_words import FIELDS, GOES_ON
from jobspec.triage.signatures import NOTE, Signature, load_signatures
from jobspec.triage.traceback import Traceback, lines_below, raised_below, traceback_above

MAX_LINE_CHARS = 4000  # a line is cut here; the longest metric lines of verl have about 6000, no error has
MAX_TRIES = 50  # lines of one shape that are tried in a block: only digits differ
NEAR_LINES = 40  # above a line, where what explains it is looked for
# Warnings and what Python's own shutdown prints hold the words of failures and are none.
NOISE = re.compile(
    r"(?:User|Future|Deprecation|Runtime|Resource)Warning\b(?!: CUDA initialization)"
    r"|resource_tracker|destroy_process_group"
    r"|^\s*Exception ignored (?:in|on|while)\b|^\s*raise |^\s*Error (?:shutting down|stopping) "
    r"|^\s*(?:assert\b.*|\)), *[fr]?[\"']|^\s*f[\"'].*[\"'],?\s*$"  # a statement that a traceback shows
    # A script that traces itself shows its text: what it would say, or explain, is not said. NeMo-RL's
    # ray.sub prints the whole of its node scripts that way into the log of every job.
    r"|^\s*# |\b(?:echo|printf) [\"']"
    # A command that a build shows before it runs it: its flags hold the words of failures.
    r"|^\s*(?:\[\d+/\d+\] )?(?:\S*/)?(?:s?ccache )?(?:\S*/)?(?:[\w.]+-)*"
    r"(?:[cg]\+\+|g?cc|clang(?:\+\+)?|nvcc|hipcc)(?:-\d+)? (?!fatal|error|warning).*\s-(?:[coDIL]|MMD|shared)"
    r"|^\s*(?:warnings\.warn|(?:logger|logging|log)\.[a-z]+)\("  # the statement of a warning, shown below it
    # The program says itself that it goes on: the line that ends it comes later.
    r"|\b[Ii]gnor(?:e|ing) (?:the |this )?error and continu|\b[Cc]ontinuing (?:without|anyway)\b"
    r"|\b[Ff]alling back (?:to|on)\b|\b[Rr]unning on (?:the )?CPU\b|\b[Ss]kipping (?:this |the )?batch\b"
    r"|^\s*except\b.*:\s*$|^\s*print\("  # a statement that would catch it, or say it
    r"|^mkdir -p failed for path "  # matplotlib, which then takes another folder
    r"|^\{'(?!error|detail)\w+': \{'"  # a configuration that is shown
    r"|^\[(?:prompt|response|ground_truth)\]"  # verl shows some of what the model was asked and answered
    r"|\[shutdown\] EngineCore: trigger received"  # so does every engine of vLLM that is no longer needed
    r"|Subprocesses exit with SIGTERM"  # what every `ray start --block` announces
    r"|\bmetric_exporter\.cc\b|\bExport metrics to agent failed"  # Ray goes on without its metrics
)
# A traceback that vLLM logs as a warning: it does without what could not be imported.
WARNED = re.compile(
    r"\bWARNING \d\d-\d\d [\d:]{8} \[[\w./]+:\d+\] +(?:[A-Za-z_][\w.]*)?(?:Error|Exception)\b(?=:|\s*$)"
)
_CHECK = re.compile(r"\s*(?:Value error|Assertion failed), ")  # in the words of pydantic


# A request that was not answered: a web server's own line, and that of httpx.
_NOT_ANSWERED = re.compile(
    r'(?P<request>"[A-Z]{3,7} [^\s?"]+)\S* HTTP/[\d.]+" 5\d\d '
    r'|HTTP Request: (?P<asked>[A-Z]{3,7} \S+ )"HTTP/[\d.]+ (?:429|5\d\d)'
)
_ANSWERED = re.compile(rb'" 200\b|"HTTP/[\d.]+ 200\b')


_EXPECTED_END = b"expected termination process in Ray"  # vLLM's word


class Hit(NamedTuple):
    """A signature and the part of the line that shows it, `below` lines under the one that is hot, or above
    it where that is negative."""

    signature: Signature
    text: str
    below: int = 0


def match_lines(
    lines: Sequence[bytes], offsets: Sequence[int], signatures: Sequence[Signature], hits: dict[int, Hit]
) -> None:
    """Add to `hits` the first match among lines of one shape, and of each signature that depends on digits.

    Lines of one shape differ in digits alone, so a few tries suffice; after a match, only lines with the
    words of a missing signature that depends on digits can show more.
    """
    missing = [signature for signature in signatures if signature.numbered]
    matched: set[str] = set()
    for offset in offsets[:MAX_TRIES]:
        if matched and not missing:
            break
        if matched and not _holds_words(lines[offset], missing):
            continue
        hit = hits.get(offset) or match_line(lines, offset, signatures)
        if hit is not None and hit.signature.id not in matched:
            hits[offset] = hit
            matched.add(hit.signature.id)
            missing = [signature for signature in missing if signature.id not in matched]


def match_line(lines: Sequence[bytes], offset: int, signatures: Sequence[Signature]) -> Hit | None:
    """The first signature by precedence that a part of the line shows."""
    for part, text in _states(lines[offset]):
        above: Traceback | None = None
        for signature in signatures:
            if not signature.shows(text):
                continue
            if signature.verdict != NOTE and (NOISE.search(text) or WARNED.search(part)):
                break
            if signature.below is not None:
                below, raised = raised_below(lines, offset)
                if signature.below.search(raised) and _known_by_traceback(lines, offset + below, raised):
                    return Hit(signature, raised, below)
                continue
            if signature.frames is None and signature.near is None and not signature.generic:
                return Hit(_of_field(lines, offset, text) or signature, text)
            above = above or traceback_above(lines, offset)
            if above.ignored or (signature.frames is not None and _told_below(lines, offset, text)):
                break
            if _surrounded(signature, above, lines, offset):
                return _at_near(signature, lines, offset) if signature.at_near else Hit(signature, text)
    return None


def _holds_words(line: bytes, signatures: Sequence[Signature]) -> bool:
    """Whether a part of the line has the words of one of the signatures, whatever surrounds it."""
    return any(signature.shows(text) for _, text in _states(line) for signature in signatures)


def _states(line: bytes) -> Iterator[tuple[str, str]]:
    """The parts of a line, as they are and without colours and prefixes."""
    for part in line.decode("utf-8", "replace").split("\r"):
        yield part, bare(part[:MAX_LINE_CHARS]).strip()


def kept_offsets(hits: Mapping[int, Hit], step: int) -> list[int]:
    """The offsets of hits that an attempt may keep: of each signature the first two and the last, before the
    step's line and after it."""
    offsets: dict[tuple[str, bool], list[int]] = {}
    for offset in sorted(hits):
        offsets.setdefault((hits[offset].signature.id, offset > step), []).append(offset)
    return sorted({offset for places in offsets.values() for offset in (*places[:2], places[-1])})


def answered_later(lines: Sequence[bytes], offset: int) -> bool:
    """Whether the server that did not answer the request of `lines[offset]` answers such a one below,
    Kubernetes starts the pod of whose failure an event tells, or Ray starts that had not met its head."""
    if pods.is_event(lines[offset]):
        return pods.went_on(lines, offset)
    if b" to connect to GCS" in lines[offset]:
        return any(b"Ray runtime started" in line for line in lines[offset + 1 :])
    refused = _NOT_ANSWERED.search(lines[offset][:MAX_LINE_CHARS].decode("utf-8", "replace"))
    if refused is None:
        return False
    request = (refused["request"] or refused["asked"]).encode()
    return any(request in line and _ANSWERED.search(line) for line in lines[offset + 1 :])


def is_expected_end(lines: Sequence[bytes], offset: int) -> bool:
    """Whether the line tells of a signal to end, and the engine says near it that its workers get it."""
    if b"SIGTERM" not in lines[offset]:
        return False
    around = lines[max(0, offset - NEAR_LINES) : offset + NEAR_LINES]
    return any(_EXPECTED_END in line for line in around)


def _known_by_traceback(lines: Sequence[bytes], offset: int, raised: str) -> bool:
    """Whether only the traceback above shows that the line is an exception: no signature knows its words."""
    above = traceback_above(lines, offset)
    if not above.frames or above.ignored:
        return False
    return not any(other.shows(raised) for other in load_signatures() if other.below is None)


def _told_below(lines: Sequence[bytes], offset: int, text: str) -> bool:
    """Whether the line names an exception alone, and a signature knows the message below it: that says more
    than the frames do."""
    if not GOES_ON.search(text):
        return False
    message = "".join(line.strip() for line in lines_below(lines, offset, 1))
    return any(
        other.frames is None and not other.generic and other.shows(message) for other in load_signatures()
    )


def _of_field(lines: Sequence[bytes], offset: int, text: str) -> Signature | None:
    """The signature of the check of its own by which a schema refuses a field or the whole."""
    if not FIELDS.search(text):
        return None
    words = next((line.strip() for line in lines_below(lines, offset, 2) if _CHECK.match(line)), "")
    known = (other for other in load_signatures() if other.frames is None and not other.generic)
    return next((other for other in known if other.verdict != NOTE and other.shows(words)), None)


def _at_near(signature: Signature, lines: Sequence[bytes], offset: int) -> Hit:
    """The hit at the last of the lines above that the signature asks for."""
    near = cast(re.Pattern[str], signature.near)
    above = ((at, bare(lines[at].decode("utf-8", "replace")).strip()) for at in range(offset - 1, -1, -1))
    at, text = next((at, text) for at, text in above if near.search(text))
    return Hit(signature, text[:MAX_LINE_CHARS], at - offset)


def _surrounded(signature: Signature, above: Traceback, lines: Sequence[bytes], offset: int) -> bool:
    """Whether the traceback and the lines above are what the signature asks for."""
    frames, near = signature.frames, signature.near
    if frames is not None and not any(frames.search(frame) for frame in above.frames):
        return False
    before = lines[max(0, offset - NEAR_LINES) : offset] if near is not None else ()
    return near is None or any(near.search(line.decode("utf-8", "replace")) for line in before)
