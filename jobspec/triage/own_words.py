"""What an exception that no signature knows shows by its own words, its frame and its statement.

`exceptions.yaml` says which words and frames show a class; where none of its entries fits the signature's
class stays, and the title gives the words and the frame alone.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import PurePosixPath
from typing import Any, NamedTuple

from jobspec.triage.own_advice import ASKS, with_advice
from jobspec.triage.signatures import Signature, filled, read_table
from jobspec.triage.traceback import Traceback

MAX_CHARS = 160  # of a program's words in a title
NO_PLACE = "the code that raised it"
UNKNOWN = "exception"  # the class of an exception as such: only this class is replaced
ROLLOUT = "rollout"
_RAISED = re.compile(r"(?:^|[ :])((?:[A-Za-z_]\w*\.)*_?[A-Z]\w*)(?::\s+(\S.*?))?:?\s*$")
# A logger's head may hold colons and words that look like an exception's name: its name comes behind them.
_LOGGED = re.compile(r"(?:^|[ :])((?:[A-Za-z_]\w*\.)*_?[A-Z]\w*(?:Error|Exception))(?::\s+(\S.*?))?:?\s*$")
# Their message stands below: all of it, and (`FIELDS`) the fields that are refused.
GOES_ON = re.compile(r"(?:Error|Exception|BackendCompilerFailed: .* raised):$|Config name is missing\.$")
_HANDLED = (
    "During handling of the above exception, another exception occurred",
    "The above exception was the direct cause of the following exception",
)
_ONE_WORD = re.compile(r"^KeyError: '[\w.:/-]+'$")  # what code that looks a key up tells in words of its own
_COMPILER = re.compile(r"(\S*BackendCompilerFailed): ")  # what it wraps stands behind it
FIELDS = re.compile(r"\b\d+ validation errors? for \S+$")
_STATE_DICT = re.compile(r"Error\(s\) in loading state_dict for \S+:$")  # the keys stand below
_NCCL, _LAST = re.compile(r"\bNCCL error in: \S+:\d+, "), "Last error:"  # what NCCL knows stands below
_KEYS = re.compile(
    r"\s*(?:(?:Missing|Unexpected) key\(s\) in state_dict|size mismatch for|While copying the parameter) ?"
)
# Frames that show a model at work, so one that is built, whatever lines stand above.
_AT_WORK = re.compile(
    r":(?:_wrapped_call_impl|forward|backward|forward_step|forward_backward\w*|training_step|train_step"
    r"|update_policy|update_actor|update_critic|compute_log_prob|get_logprobs|compute_loss|clip_grad\w*)$"
    r"|policy_worker\w*\.py:train$"
)


class Raised(NamedTuple):
    """The exception that a line names, and its message; the statement that raised it where it has none."""

    name: str
    message: str = ""
    statement: str = ""

    @property
    def words(self) -> str:
        said = self.message or (f"`{self.statement}`" if self.statement else "")
        return f"{self.name}: {said}" if said else self.name


class Told(NamedTuple):
    """What is said of a line: its class, its verdict with the boundary that decides it, title and advice."""

    kind: str
    verdict: str
    boundary: str
    title: str
    fix: str


@dataclass(frozen=True)
class Rule:
    """One entry of `exceptions.yaml`; its head explains the fields."""

    kind: str
    what: str
    fix: str
    verdict: str = ""
    name: re.Pattern[str] | None = None
    says: re.Pattern[str] | None = None
    whole: re.Pattern[str] | None = None
    frames: re.Pattern[str] | None = None
    at: re.Pattern[str] | None = None
    code: re.Pattern[str] | None = None

    def fits(self, raised: Raised, above: Traceback, message: str) -> bool:
        return all(_tests(self, raised, above, message))

    def told(self, message: str) -> str:
        """The fix with what the named groups of `whole` hold."""
        found = self.whole.search(message) if self.whole is not None else None
        return filled(self.fix, found.groupdict("") if found is not None else {})


def told(signature: Signature, text: str, above: Traceback, message: str = "") -> Told:
    """What the line says, in its own words where the signature asks for these; `message` is the text with the
    lines below that go on with it."""
    message = message or text
    fix = signature.fix.fitting("\n".join((text, *above.frames, above.code)))
    if fix.startswith(ASKS):
        fix = with_advice(fix, text, message, "")
    own = Told(signature.kind, signature.verdict, signature.boundary, signature.title, fix)
    raised = exception_in(text, above) if signature.own_words else None
    if raised is None:
        return own
    if signature.kind in (UNKNOWN, ROLLOUT):
        rule, wrapper = _rule_for(raised, above, message), _COMPILER.search(text)
        if rule is None and wrapper is not None:
            rule = _rule_for(Raised(wrapper[1], raised.words), above, message)
        advised = rule.told(message) if rule is not None else ""
        if (rule is None and signature.kind == UNKNOWN) or advised.startswith(ASKS):
            advised = with_advice(advised or fix, text, message, "{place}")
        if rule is not None and signature.kind == ROLLOUT:
            # Whose code it is says more than the words; what to do about them does not depend on it.
            own = (
                own._replace(fix=f"{advised}; an engine or server may say more in its own lines above")
                if rule.kind == UNKNOWN or (rule.code is not None and raised.message)
                else own
            )
        elif rule is not None:
            verdict, boundary = (rule.verdict, "") if rule.verdict else (own.verdict, own.boundary)
            own = Told(rule.kind, verdict, boundary, rule.what, advised)
        elif advised:
            own = own._replace(fix=advised)
    return own._replace(title=f"{own.title}: {_cut(raised.words)}{_where(above)}")


def exception_in(text: str, above: Traceback) -> Raised | None:
    """The exception that the text names."""
    match = _LOGGED.search(text) or _RAISED.search(text)
    if match is None:
        return None
    return Raised(match[1], match[2] or "", "" if match[2] else above.code)


def with_message(text: str, below: Iterable[str]) -> str:
    """The text; of an exception whose message stands below it (`RuntimeError:`, `1 validation error for X`)
    with its first words, of weights that do not fit with their keys, of NCCL with its last error."""
    if _STATE_DICT.search(text):
        words = [line.strip() for line in below if _KEYS.match(line)]
    elif _NCCL.search(text):
        words = list(below)
        last = words.index(_LAST) + 1 if _LAST in words else len(words)
        return f"{text} {_LAST} {words[last].strip()}" if words[last:] and words[last].strip() else text
    else:
        count = 1 if GOES_ON.search(text) else 2 if FIELDS.search(text) else 0
        words = [line.strip() for line in below if re.search(r"\w", line)][:count]
    return f"{text} {': '.join(words)}" if words else text


def is_silent(text: str, above: Traceback) -> bool:
    """Whether the text names an exception without a message, and its statement is known."""
    return bool(above.code) and re.search(r"(?:Error|Exception):?\s*$", text) is not None


def is_handled(signature: Signature, text: str, above: Traceback, below: Iterable[str]) -> bool:
    """Whether another exception was raised while one without a message, or with a key alone, was handled:
    that one has the words."""
    raised = exception_in(text, above)
    key = signature.own_words and _ONE_WORD.search(text) is not None
    silent = raised is not None and (not raised.message or key)
    return silent and any(words in line for line in below for words in _HANDLED)


def frame_at_work(above: Traceback) -> str:
    """The outermost frame that shows a built model at work, as `file:function`; empty without one."""
    return next((frame for frame in above.frames if _AT_WORK.search(frame)), "")


def place(text: str, above: Traceback) -> str:
    """Where it was raised; of an exception without a message with the statement, which says more."""
    return f"{above.place} (`{above.code}`)" if is_silent(text, above) else above.place


def advice(fix: str, text: str, above: Traceback) -> str:
    """The advice with the place; with the statement as well where the advice speaks of it. Below the place
    frames of libraries may be what is meant."""
    where = place(text, above)
    if above.code and not is_silent(text, above) and "statement at {place}" in fix:
        where = f"{where} (`{_cut(above.code)}`)"
    if above.place and not (above.innermost and _raises(above)):
        where += " or below" if where != above.place else " (or what it calls)"
    return fix.replace("{place}", where or NO_PLACE)


def with_statement(text: str, above: Traceback) -> str:
    """The text; of an exception without a message with the statement that raised it."""
    return f"{text.rstrip().removesuffix(':')} (`{above.code}`)" if is_silent(text, above) else text


def _tests(rule: Rule, raised: Raised, above: Traceback, message: str) -> Iterator[bool]:
    yield rule.name is None or rule.name.search(raised.name) is not None
    yield rule.says is None or rule.says.search(raised.message) is not None
    yield rule.whole is None or rule.whole.search(message) is not None
    yield rule.frames is None or any(rule.frames.search(frame) for frame in above.frames)
    yield rule.at is None or rule.at.search(above.own) is not None
    yield rule.code is None or rule.code.search(above.code) is not None


def _cut(words: str) -> str:
    return words if len(words) <= MAX_CHARS else f"{words[:MAX_CHARS]}..."


def _where(above: Traceback) -> str:
    file, _, function = above.place.rpartition(" ")
    word = "raised below" if not above.innermost else "raised in" if _raises(above) else "raised in or below"
    return f", {word} {PurePosixPath(file).name} {function}" if file else ""


def _raises(above: Traceback) -> bool:
    """Whether the statement of the innermost frame may raise itself: a bare call does not, and a log that is
    cut has no frame of what it calls."""
    return re.match(r"(?!raise\b|assert\b)[\w.]+\(", above.code) is None


def _rule_for(raised: Raised, above: Traceback, message: str) -> Rule | None:
    return next((rule for rule in _rules() if rule.fits(raised, above, message)), None)


@lru_cache(maxsize=1)
def _rules() -> tuple[Rule, ...]:
    return tuple(_rule(item) for item in read_table("exceptions.yaml"))


def _rule(item: dict[str, Any]) -> Rule:
    patterns: dict[str, Any] = {
        key: re.compile(item[key]) for key in ("name", "says", "whole", "frames", "at", "code") if key in item
    }
    return Rule(**{**item, **patterns})
