"""Labelled failures and runs of other people, and how close jobspec's words come to what is right.

A case is a folder with `case.yaml` and its input. The answer in `case.yaml` was written before the input was
first tried:

    source      where it was reported
    command     triage | judge
    input       the log, or the folder of logs or of a run
    args        options of `judge`: framework, level, steps, learning, require, expect_import
    engineer    what an experienced engineer says
    right       nothing: no failure at all | lines: of the first cause | verdicts | groups of classes
                | advice: one of these texts is said | says: of each list one text is said (`judge`)
    partly      lines that are near the cause
    untrue      texts that would be a false statement, wherever they are printed

Texts are regular expressions; letters' case counts in `lines` alone.
"""

from __future__ import annotations

import contextlib
import io
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from jobspec.cli import main

# The class of a cause -> the group of an answer. An answer names groups, since many classes are neighbours.
GROUPS: dict[str, str] = {
    kind: group
    for group, kinds in {
        "scheduler": "slurm time-limit preempted cancelled requeued queue-limit unschedulable collect",
        "node": "node gpu clock",
        "container": "container mount",
        "image": "image",
        "network": "network port",
        "storage": "disk storage permission shared-storage cache-lock cache-nfs cache-race cache-corrupt "
        "stale-lock log-dir",
        "stale": "stale-state",
        "hub": "credentials hub-rate-limit hub dataset-cache tracker",
        "data": "data",
        "gpu-memory": "gpu-memory",
        "host-memory": "host-memory",
        "limits": "limits",
        "config": "config parallelism env env-leak driver secret",
        "ray": "ray ray-resources node-not-joined",
        "rollout": "rollout",
        "weight-sync": "refit data-plane",
        "checkpoint": "checkpoint checkpoint-layout checkpoint-file",
        "numerics": "numerics learning metric-check metrics",
        "model": "provider model weights",
        "collective": "effect collective",
        "stall": "stall",
        "code": "exception",
    }.items()
    for kind in kinds.split()
}
# Groups that people do not keep apart: an answer of one is right for the other.
NEIGHBOURS = (
    {"container", "image", "node"},
    {"hub", "data"},
    {"hub", "network"},
    {"config", "image"},
    {"config", "scheduler"},
    {"config", "data"},
    {"model", "config"},
    {"model", "code"},
    {"rollout", "weight-sync"},
    {"ray", "network"},
    {"ray", "limits"},
    {"collective", "stall"},
    {"checkpoint", "storage"},
    *({"stale", group} for group in ("ray", "storage", "container", "network", "config", "scheduler")),
)
RIGHT, PARTLY, WRONG = "right", "partly", "wrong"


@dataclass(frozen=True)
class Case:
    """One labelled input; `answer` is `case.yaml`."""

    folder: Path
    answer: Mapping[str, Any]

    @property
    def name(self) -> str:
        return f"{self.folder.parent.name}/{self.folder.name}"

    @property
    def right(self) -> Mapping[str, Any]:
        return self.answer.get("right") or {}

    @property
    def expected(self) -> str:
        """The verdicts that are right, in one word."""
        return "nothing" if self.right.get("nothing") else " or ".join(self.right.get("verdicts", ["any"]))


@dataclass(frozen=True)
class Score:
    """How good an answer is. `false` holds what was stated and is not so, `missing` what is not right."""

    grade: str
    verdict: str
    missing: tuple[str, ...] = ()
    false: tuple[str, ...] = ()
    output: str = field(default="", repr=False)


def cases(root: Path) -> list[Case]:
    """The cases below `root`, by their names."""
    files = sorted(root.rglob("case.yaml"))
    loader = getattr(
        yaml, "CSafeLoader", yaml.SafeLoader
    )  # each process of the tests reads a thousand of them
    return [Case(path.parent, yaml.load(path.read_text("utf-8"), loader)) for path in files]


def score(case: Case) -> Score:
    """Try the case once, by the command that a user types."""
    return _score_judge(case) if case.answer["command"] == "judge" else _score_triage(case)


def _run(arguments: Sequence[str]) -> str:
    out = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
        main(list(arguments))
    return out.getvalue()


def _score_triage(case: Case) -> Score:
    place = str(case.folder / case.answer["input"])
    output = _run(["triage", place])
    matches = json.loads(_run(["triage", place, "--json"]))
    causes = [match for match in matches if match["verdict"] != "Note"]
    if case.right.get("nothing"):
        claims = [f"a cause of a run that ended well: {match['text']}" for match in causes[:1]]
        return Score(WRONG if claims else RIGHT, "failed" if claims else "nothing", (), tuple(claims), output)
    if not causes:
        return Score(WRONG, "nothing", ("no cause was found",), (), output)
    first = causes[0]
    lines = (first["text"], _line(first))
    said = " ".join([first["title"], first["why"], first["fix"], *first["facts"], _own_words(output)])
    group = GROUPS.get(first["class"], first["class"])
    verdict = first["verdict"]
    checks = {
        f"line: {first['text'][:100]}": _shows(lines, case.right["lines"]),
        f"verdict {verdict}": verdict in case.right.get("verdicts", [verdict]),
        f"class {first['class']}": _grouped(group, case.right.get("groups") or [group]),
        f"advice: {first['fix']}": not case.right.get("advice") or _says(said, case.right["advice"]),
    }
    missing = tuple(name for name, ok in checks.items() if not ok)
    hit, known, grouped, _ = checks.values()
    near = _shows(lines, (case.answer.get("partly") or {}).get("lines") or [])
    grade = RIGHT if not missing else PARTLY if hit or near or (known and grouped) else WRONG
    return Score(grade, verdict, missing, tuple(_falsehoods(case, output)), output)


def _shows(lines: Sequence[str], patterns: Sequence[str]) -> bool:
    """Whether a line, as triage or as the file has it, is one of those that the answer names."""
    return any(re.search(pattern, line) for pattern in patterns for line in lines)


def _line(match: Mapping[str, Any]) -> str:
    """The line in the file, with prefixes and colours, as an answer may quote it."""
    try:
        lines = Path(match["file"]).read_text("utf-8", "replace").split("\n")
        return lines[match["line"] - 1]
    except (OSError, IndexError):
        return ""


def _score_judge(case: Case) -> Score:
    arguments = ["judge", str(case.folder / case.answer["input"])]
    for key, value in (case.answer.get("args") or {}).items():
        for item in value if isinstance(value, list) else [value]:
            arguments += [f"--{key.replace('_', '-')}", str(item)]
    output = _run(arguments)
    try:
        result = json.loads(_run([*arguments, "--json"]))["result"]
    except (ValueError, KeyError):
        return Score(WRONG, "refused", ("no verdict",), tuple(_falsehoods(case, output)), output)
    verdicts = case.right["verdicts"]
    unsaid = [" or ".join(texts) for texts in case.right.get("says") or [] if not _says(output, texts)]
    missing = [f"result {result}"] if result not in verdicts else []
    missing += [f"unsaid: {text}" for text in unsaid]
    false = list(_falsehoods(case, output))
    if result not in verdicts and (result == "Pass" or (verdicts == ["Pass"] and result == "Fail")):
        false.append(f"the result {result}")
    grade = RIGHT if not missing else PARTLY if result in verdicts else WRONG
    return Score(grade, result, tuple(missing), tuple(false), output)


def _grouped(group: str, right: Sequence[str]) -> bool:
    return any(group == item or {group, item} <= near for item in right for near in (*NEIGHBOURS, {item}))


def _says(text: str, regexes: Sequence[str]) -> bool:
    return any(re.search(regex, text, re.IGNORECASE) for regex in regexes)


def _falsehoods(case: Case, output: str) -> Iterator[str]:
    words = _own_words(output)
    for regex in case.answer.get("untrue") or case.answer.get(False) or []:
        if hit := re.search(regex, words, re.IGNORECASE):
            yield f"{regex}: {hit[0]}"


def _own_words(output: str) -> str:
    """What jobspec prints beside the quoted lines of a log."""
    return "\n".join(line for line in output.split("\n") if not re.match(r"\s*[|>] ", line))
