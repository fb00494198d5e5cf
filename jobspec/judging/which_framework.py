"""Which framework wrote the files of a run: by the signs that adapters know, and never by a guess."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from jobspec import frameworks
from jobspec.evidence.found_logs import find_logs
from jobspec.finding import JobspecError, fail
from jobspec.frameworks.base import Framework
from jobspec.log_search import Hints, find_lines
from jobspec.log_text import clean
from jobspec.metrics import Table, read_file, read_metrics
from jobspec.runtime.base.metric_files import files_below
from jobspec.words import one_of

# What trackers keep of the command and its configuration, beside the logs.
ANY_PROGRAM = "command"
UNKNOWN = "jobspec recognized no framework: exit code, steps and metrics are judged, as of any program"
LEARNING = ("learning", "2")  # the level at which a framework's metric is to move
CONFIGURATIONS = frozenset({"config.yaml", "wandb-metadata.json", "overrides.yaml"})


@dataclass(frozen=True)
class Sign:
    """A text that only one framework writes, and where it stands; `line` is 0 for a metric's name."""

    text: str
    file: str
    line: int = 0

    def __str__(self) -> str:
        place = f"{self.file}:{self.line}" if self.line else self.file
        return f"`{self.text}` in {place}"


def framework_of(place: Path, level: str = "", learning: bool = False) -> tuple[Framework, str]:
    """The framework of the files at `place`, and a limitation that says how it was found.

    Where none fits it is `command`, which looks at exit code, steps and metrics alone, unless another `level`
    is asked for; with a metric that is to show `learning` the level of that name is no other.
    Raises: JobspecError, as `which_framework` does.
    """
    any_program = frameworks.get(ANY_PROGRAM)
    levels = {word for one in any_program.levels for word in (one.name, str(one.number))}
    asked = {"", *levels, *(LEARNING if learning else ())}
    if level in asked and not _fitting(place)[0] and _holds_evidence(place):
        return any_program, UNKNOWN
    framework, sign = which_framework(place)
    return framework, f"that `{framework.name}` ran is inferred from {sign}"


def _holds_evidence(place: Path) -> bool:
    """Whether there is a log or a metric; a folder without either is mostly another one than was meant."""
    with tempfile.TemporaryDirectory(prefix="jobspec-judge-") as unpacked:
        if find_logs(place.absolute(), Path(unpacked))[0]:
            return True
    return bool(len(_metrics(place)))


def _metrics(place: Path) -> Table:
    return read_metrics(place, relative_to=place) if place.is_dir() else read_file(place, place.name)


def which_framework(place: Path) -> tuple[Framework, Sign]:
    """The one framework whose signs the files at `place` hold, and its first sign.

    Raises: JobspecError when none or more than one fits.
    """
    fitting, owners = _fitting(place)
    if len(fitting) != 1:
        raise _unclear(place, fitting, owners)
    ((name, sign),) = fitting.items()
    return frameworks.get(name), sign


def _fitting(place: Path) -> tuple[dict[str, Sign], dict[str, str]]:
    """The frameworks that fit, with their first sign, and the owner of each sign there is."""
    known = {name: frameworks.get(name) for name in frameworks.names()}
    owners = {text: name for name, adapter in known.items() for text in getattr(adapter, "signs", ())}
    found: dict[str, Sign] = {}
    for sign in _signs(place, owners):
        found.setdefault(owners[sign.text], sign)
    driven = {name for owner in found for name in getattr(known[owner], "drives", ())}
    return {name: sign for name, sign in found.items() if name not in driven}, owners


def _signs(place: Path, owners: Mapping[str, str]) -> Iterator[Sign]:
    """Signs in logs and configurations; where they hold none, in the names of the metrics in files."""
    words = {text: re.compile(rf"(?<![\w-]){re.escape(text)}") for text in owners}
    hints, any_sign = Hints(words), False
    with tempfile.TemporaryDirectory(prefix="jobspec-judge-") as unpacked:
        logs, _ = find_logs(place.absolute(), Path(unpacked))
        files = [(log.path, log.name) for log in logs]
        below = files_below(place.absolute()) if place.is_dir() else []
        files += [
            (path, str(path.relative_to(place.absolute()))) for path in below if path.name in CONFIGURATIONS
        ]
        for path, name in files:
            for hit in find_lines(path, hints):
                line = clean(hit.text)
                for text in (hint for hint in hit.hints if words[hint].search(line)):
                    any_sign = True
                    yield Sign(text, name, hit.number)
    if not any_sign:
        for metric, rows in _metrics(place).by_metric.items():
            if metric in owners:
                yield Sign(metric, rows[0].source, rows[0].line)


def _unclear(place: Path, fitting: Mapping[str, Sign], owners: Mapping[str, str]) -> JobspecError:
    name_it = "name it: `--framework NAME`"
    if fitting:
        what = f"the files of `{place}` fit {len(fitting)} frameworks"
        why = "; ".join(f"{name}: {sign}" for name, sign in fitting.items())
        return fail("judge.framework", what, why, f"{name_it}, or judge the folder of one run")
    looked = "; ".join(
        f"{name}: " + ", ".join(f"`{text}`" for text, owner in owners.items() if owner == name)
        for name in dict.fromkeys(owners.values())
    )
    return fail(
        "judge.framework",
        f"jobspec found no sign of a framework in the files of `{place}`",
        f"in logs, configurations and metrics it looked for these: {looked}",
        f"{name_it} with {one_of(frameworks.names())}; `command` judges any program by its metrics",
    )
