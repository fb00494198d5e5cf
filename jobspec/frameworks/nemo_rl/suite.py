"""A script of NeMo-RL's `tests/test_suites`, taken apart: how large its recipe runs, and what it checks.

Nothing runs here: variables are followed as far as the text of the script assigns them.
Source: NeMo-RL at 7ea279ab, `tests/test_suites/README.md`.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace

ENTRY = re.compile(r"examples/(?:nemo_gym/)?run_(?!eval\b)\w+\.py")
ASSIGNED = re.compile(r"(?:export )?([A-Za-z_]\w*)=((?:\"[^\"]*\"|'[^']*'|\$\{[^}]*\}|[^\s#])*)")
VARIABLE = re.compile(r"\$\{(\w+)(?::-([^}]*))?\}|\$(\w+)")
ARGUMENT = re.compile(r"[+~]{0,2}[A-Za-z_]\w*(?:\.\w+)*=.*|~[A-Za-z_][\w.]*", re.DOTALL)
WRAPPER = re.compile(r"-tq_(?:simple|mooncake)$")
CHECKER = "check_metrics.py"
# What jobspec sets itself for every run, and switches that it never passes on.
OWNED = ("logger.", "checkpointing.", "cluster.")
NOT_PASSED = re.compile(r"NRL_IGNORE_TP_ACCURACY_CHECK|NRL_R3_TRACE\w*|EXP_NAME|PYTHONPATH|NUM_\w+")


@dataclass(frozen=True)
class Suite:
    """What a script says. Numbers are 0 where it says none; `minutes` are those of all its jobs.

    `unknown` are arguments whose value comes from outside of the text. `conditions` are those of all its
    calls of `check_metrics.py`.
    """

    entry: str = ""
    nodes: int = 0
    gpus: int = 0
    steps: int = 0
    minutes: int = 0
    steps_key: str = ""
    arguments: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()
    conditions: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)


def read_suite(name: str, read: Callable[[str], str | None]) -> Suite | None:
    """The suite of a recipe; `read` gives the text of a script by its name, None for no such script.

    A script for the data plane only names a script of the recipe that it extends: its own numbers win.
    """
    text = read(name)
    if text is None:
        return None
    suite = _parse(text)
    base = WRAPPER.sub("", name)
    if suite.entry or base == name or (below := read(base)) is None:
        return suite
    numbers = ("nodes", "gpus", "steps", "minutes")
    own = {key: value for key in numbers if (value := getattr(suite, key))}
    return replace(_parse(below), **own)


def _parse(text: str) -> Suite:
    """The parts of a script; every line sees the variables that lines above it set."""
    known: dict[str, str] = {}
    env: dict[str, str] = {}
    suite = Suite()
    for line in script_lines(text):
        if CHECKER in line:
            suite = replace(suite, conditions=(*suite.conditions, *_conditions(line, known)))
        elif (entry := ENTRY.search(line)) is not None and not suite.entry:
            suite = _with_training(replace(suite, entry=entry[0]), line, known)
        elif (assigned := ASSIGNED.match(line)) is not None and "$(" not in assigned[2]:
            value = _filled(assigned[2].strip("\"'"), known)
            if value is not None:
                known[assigned[1]] = value
            if line.startswith("export ") and value and not NOT_PASSED.fullmatch(assigned[1]):
                env[assigned[1]] = value
    steps, once = _number(known, "MAX_STEPS"), _number(known, "STEPS_PER_RUN")
    jobs = -(-steps // once) if steps and once else 1
    return replace(
        suite,
        nodes=_number(known, "NUM_NODES"),
        gpus=_number(known, "GPUS_PER_NODE"),
        steps=steps,
        minutes=_number(known, "NUM_MINUTES") * jobs,
        env=env,
    )


def script_lines(text: str) -> Iterator[str]:
    """Lines without comments, each joined with those that continue it."""
    code = "\n".join(line for line in text.splitlines() if not line.lstrip().startswith("#"))
    yield from (line.strip() for line in code.replace("\\\n", " ").splitlines() if line.strip())


def _number(known: Mapping[str, str], name: str) -> int:
    text = known.get(name, "")
    return int(text) if text.isdecimal() else 0


def _filled(text: str, known: Mapping[str, str]) -> str | None:
    """The text with its variables; None where one is not known, or a command would give it."""
    if "$(" in text or "`" in text:
        return None
    missing = False

    def value(match: re.Match[str]) -> str:
        nonlocal missing
        name = match[1] or match[3]
        found = known.get(name, match[2])
        missing = missing or found is None
        return found or ""

    filled = VARIABLE.sub(value, text)
    return None if missing else filled


def _words(line: str) -> list[str]:
    """The words of the first command; a line that no shell would split has none."""
    command = re.split(r"\s(?:2>&1|\|)\s", line)[0]
    try:
        return shlex.split(command)
    except ValueError:
        return []


def _with_training(suite: Suite, line: str, known: Mapping[str, str]) -> Suite:
    words = _words(line)
    start = next((index for index, word in enumerate(words) if ENTRY.search(word)), len(words))
    arguments, unknown, steps_key = [], [], ""
    for word in words[start + 1 :]:
        key, _, value = word.partition("=")
        if not ARGUMENT.fullmatch(word) or key.lstrip("+~").startswith(OWNED):
            continue
        if value.strip("{}") in ("$MAX_STEPS", "${MAX_STEPS"):
            steps_key = key
        elif (filled := _filled(word, known)) is None:
            unknown.append(word)
        else:
            arguments.append(filled)
    return replace(suite, arguments=tuple(arguments), unknown=tuple(unknown), steps_key=steps_key)


def _conditions(line: str, known: Mapping[str, str]) -> Iterator[str]:
    """Conditions in the notation that `parse_condition` reads: double quotes around names."""
    words = _words(line)
    start = next((index for index, word in enumerate(words) if CHECKER in word), len(words))
    for word in words[start + 2 :]:  # the first one is the file
        filled = _filled(word, known)
        if "data[" in word:
            yield (filled if filled is not None else word).replace("'", '"')
