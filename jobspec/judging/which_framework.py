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
from jobspec.metrics import read_file, read_metrics
from jobspec.runtime.base.metric_files import files_below
from jobspec.words import one_of

# What trackers keep of the command and its configuration, beside the logs.
CONFIGURATIONS = frozenset({"config.yaml", "wandb-metadata.json", "overrides.yaml"})
ANY = "command"


@dataclass(frozen=True)
class Sign:
    """A text that only one framework writes, and where it stands; `line` is 0 for a metric's name."""

    text: str
    file: str
    line: int = 0

    def __str__(self) -> str:
        place = f"{self.file}:{self.line}" if self.line else self.file
        return f"`{self.text}` in {place}"


def which_framework(place: Path) -> tuple[Framework, Sign | None]:
    """The one framework whose signs the files at `place` hold, and its first sign; else `command`, which
    judges any program.

    Raises: JobspecError when more than one fits.
    """
    known = {name: frameworks.get(name) for name in frameworks.names()}
    owners = {text: name for name, adapter in known.items() for text in getattr(adapter, "signs", ())}
    found: dict[str, Sign] = {}
    for sign in _signs(place, owners):
        found.setdefault(owners[sign.text], sign)
    driven = {name for owner in found for name in getattr(known[owner], "drives", ())}
    fitting = {name: sign for name, sign in found.items() if name not in driven}
    if not fitting:
        return known[ANY], None
    if len(fitting) > 1:
        raise _unclear(place, fitting)
    ((name, sign),) = fitting.items()
    return known[name], sign


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
        table = read_metrics(place, relative_to=place) if place.is_dir() else read_file(place, place.name)
        for metric, rows in table.by_metric.items():
            if metric in owners:
                yield Sign(metric, rows[0].source, rows[0].line)


def _unclear(place: Path, fitting: Mapping[str, Sign]) -> JobspecError:
    return fail(
        "judge.framework",
        f"the files of `{place}` fit {len(fitting)} frameworks",
        "; ".join(f"{name}: {sign}" for name, sign in fitting.items()),
        "name it: `--framework NAME`, or judge the folder of one run",
    )


def not_known(place: str, level: str) -> JobspecError:
    """The error where a level is asked for and the files show no framework that has levels."""
    return fail(
        "judge.framework",
        f"the files of `{place}` show none of the frameworks that jobspec knows",
        f"`--level {level}` is one of a framework",
        f"name it: `--framework NAME` with {one_of(frameworks.names())}; without a level `command` judges it",
    )
