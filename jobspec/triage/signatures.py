"""The table of failure signatures (`signatures.yaml` and the areas in `known/`), typed."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property, lru_cache
from importlib.resources import files
from typing import Any, cast

import yaml

_COUNTS = re.compile(r"\{\d*,?\d*\}")  # how often something comes, in a pattern
BLOCKED, FAIL, NOTE = "Blocked", "Fail", "Note"
SECRET = "secret"  # the kind of signatures whose matches must not be repeated
AREAS = (
    *("slurm", "shell", "containers", "gpus", "network", "memory"),
    *("storage", "hub", "ray", "engines", "packages", "training"),
)
# A line that names an exception, as Python prints it below a traceback, perhaps after a logger's prefix.
RAISED = re.compile(
    r"(?:^|[])] )(?!ray\.exceptions\.RayTaskError)(?:[A-Za-z_][\w.]*\.)?"
    r"(?:_?[A-Z]\w*)?(?:Error|Exception|Failure|Timeout|NotFound|Exit)(?=\(|:|\s*$)"
    r"|^(?:Value error|Assertion failed), "  # pydantic's own words below the head of its error
)
# A warning of what may happen, before the words of the failure that it names: nothing of it has happened.
POSSIBLE = re.compile(
    r"\b(?:may|might|c(?:an|ould)(?! not\b))(?: \w+){0,2} "
    r"(?:fail|crash|hang|break|cause|lead to|result in|raise|trigger|produce|see|get|run (?:into|out))\b"
    r"[^.]*$"
    r"|\b(?:to|will|should|helps?) (?:avoid|prevent)\b[^.]*$"
    r"|\b(?:if|when) you (?:see|get|hit|run into|encounter)\b[^.]*$"
    r"|\bhelp=[fr]?[\"']",  # what an option is for
    re.IGNORECASE,
)
# What Ray raises for a process that is gone: the frames show who waited for it, and no failure of theirs.
ECHO = re.compile(r"\b(?:(?:Ray)?Actor(?:Died|Unavailable)?Error|WorkerCrashedError)\b")
# A path of two folders or more, or of a file; and a pattern that looks for a part of one: by a mark of paths,
# or by the name of a library or a cache.
_PATH = re.compile(r"(?<![\w/:.+@=-])(?:[~.]{0,2}(?:/[\w.+@=-]+){2,}|(?:[\w.+@=-]+/)+[\w.+@=-]+\.\w{1,11})")
_OF_PATHS = re.compile(r"[/_]|\\\.|(?<!\?):|lib|cache")


class Later:
    """A pattern that is compiled at its first use: of well over a thousand, the lines of a log need a few."""

    def __init__(self, pattern: str) -> None:
        self.pattern = pattern

    def __getattr__(self, name: str) -> Any:
        """A method of the compiled pattern, which is found without this from then on."""
        method = getattr(re.compile(self.pattern), name)
        setattr(self, name, method)
        return method


@dataclass(frozen=True)
class Fix:
    """Steps with the words of a line that ask for them; the last one's are in every line."""

    steps: tuple[tuple[re.Pattern[str], str], ...]

    def fitting(self, said: str) -> str:
        """The first step whose words are there, with what their named groups hold in place of `{group}`.
        Words that name no path do not count inside of one."""
        told = _PATH.sub("/", said)
        return next(
            filled(step, found.groupdict(""))
            for words, step in self.steps
            if (found := words.search(said if _OF_PATHS.search(words.pattern) else told))
        )


@dataclass(frozen=True)
class Signature:
    """One entry of `signatures.yaml`; its head explains the fields."""

    id: str
    kind: str
    verdict: str
    title: str
    hints: tuple[str, ...]
    pattern: re.Pattern[str]
    fix: Fix
    why: str = ""
    source: str = ""
    generic: bool = False
    wrapper: bool = False
    trend: bool = False
    boundary: str = ""
    frames: re.Pattern[str] | None = None
    near: re.Pattern[str] | None = None
    at_near: bool = False
    below: re.Pattern[str] | None = None
    raised: bool = False
    own_words: bool = False
    order: str = ""
    samples: tuple[str, ...] = ()

    def shows(self, text: str) -> bool:
        """Whether the text matches, names an exception where it has to, and has `more` of two numbers."""
        match = self.pattern.search(text)
        if match is None or (self.raised and not RAISED.search(text)):
            return False
        if self.verdict != NOTE and POSSIBLE.search(text, 0, match.end()):
            return False
        if self.frames is not None and not self.wrapper and ECHO.search(text):
            return False
        groups = match.groupdict()
        return int(groups.get("more") or 1) > int(groups.get("less") or 0)

    @cached_property
    def numbered(self) -> bool:
        """Whether the pattern matches digits: then two lines of one shape may differ in their match."""
        return re.search(r"\d|\\d", _COUNTS.sub("", self.pattern.pattern)) is not None


@lru_cache(maxsize=1)
def load_signatures() -> tuple[Signature, ...]:
    """All signatures in order of precedence: specific ones before weak ones, and there the areas' first."""
    main, known = _read("signatures.yaml"), [item for area in AREAS for item in _read(f"known/{area}.yaml")]
    specific = [item for item in (*main, *known) if not item.generic]
    weak = [item for item in (*known, *main) if item.generic]
    return tuple(sorted((*specific, *weak), key=_place))


def masked(text: str) -> str:
    """The text without what the signatures of secrets match: that is `[secret]`."""
    for pattern in _secrets():
        text = pattern.sub("[secret]", text)
    return text


@lru_cache(maxsize=1)
def _secrets() -> tuple[re.Pattern[str], ...]:
    return tuple(item.pattern for item in load_signatures() if item.kind == SECRET)


def _place(signature: Signature) -> int:
    if signature.order == "first":
        return 0
    return 3 if signature.generic else 1 + (signature.order == "last")


def read_table(name: str) -> list[dict[str, Any]]:
    """The entries of a table beside this module, as they are written."""
    text = files("jobspec.triage").joinpath(name).read_text("utf-8")
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    return cast(list[dict[str, Any]], yaml.load(text, Loader=loader))


def _read(name: str) -> list[Signature]:
    return [_signature(item) for item in read_table(name)]


def _signature(item: dict[str, Any]) -> Signature:
    compiled: dict[str, Any] = {
        name: _later(item[name]) for name in ("pattern", "frames", "near", "below") if name in item
    }
    generic = bool(item.get("generic") or item.get("wrapper"))
    lists: dict[str, Any] = {name: tuple(item[name]) for name in ("hints", "samples") if name in item}
    return Signature(**{**item, **compiled, **lists, "generic": generic, "fix": _fix(item["fix"])})


def filled(step: str, groups: dict[str, str]) -> str:
    """The step with what each group holds in place of `{group}`."""
    for name, text in groups.items():
        step = step.replace(f"{{{name}}}", text)
    return step


def _fix(written: str | dict[str, str]) -> Fix:
    steps = {"": written} if isinstance(written, str) else written
    return Fix(tuple((_later(words), step) for words, step in steps.items()))


def _later(pattern: str) -> re.Pattern[str]:
    return cast(re.Pattern[str], Later(pattern))
