"""Injected stalls on real parts: is each seen, after how long, and is the right process named?

    python benchmarks/stalls.py [CASE...] [--after 8] [--jobs 2] [--json FILE] [--table FILE]
        [--dumps FOLDER]

A case is one file of `stall_cases`: a program, and in its docstring the answer as YAML behind `---`. `ranks`
(default 1) are its processes, `ray: true` starts a Ray, cases with `gpus` are left out without `--gpu`;
`act: stop | kill` sends a signal to the pid that the program hands to `_kit.here(pid)`. `expect` says what is
right:

    kind: [sleep]        one of these kinds
    ranks: [2]           exactly these are named; [] is nobody, absent is not asked
    frame: evaluate      the function that is named
    says: [all_reduce]   patterns that the explanation holds
    never: [...]         patterns that would be false

Right has all of them; partly has the ranks and the frame, or the kind; false names somebody else or holds
a `never`.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import re
import shutil
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import yaml

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from jobspec.plan import CommandPlan, StallPlan
from tests.kits.agent_lab import RAY, Run, running

CASES = Path(__file__).with_name("stall_cases")
BEGINS_S = 150.0  # for torch or Ray to start on a busy machine
SAID_CHARS = 160
WORDS = ("right", "partly", "wrong", "false")


@dataclass(frozen=True)
class Case:
    """A program that stands still, and what has to be said about it."""

    name: str
    path: Path
    title: str
    ranks: int = 1
    ray: bool = False
    gpus: int = 0
    act: str = ""
    action: str = "end"
    expect: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Score:
    """How one case went. Seconds are from the stall on."""

    name: str
    title: str
    score: str
    seen_s: float | None = None
    ended_s: float | None = None
    kind: str = ""
    what: str = ""
    why: str = ""


def load(path: Path) -> Case:
    text = ast.get_docstring(ast.parse(path.read_text())) or ""
    title, _, answer = text.partition("\n---\n")
    return Case(path.stem, path, " ".join(title.split()), **yaml.safe_load(answer))


def judge(expect: Mapping[str, Any], found: Mapping[str, Any]) -> str:
    """`right`, `partly`, `wrong` or `false`. Pure."""
    text = f"{found['what']} {found['why']}"
    ranks = {str(row["rank"]) for row in found["named"] if row["rank"]}
    wanted = {str(rank) for rank in expect.get("ranks", ())}
    frame = (found.get("frame") or {}).get("function", "")
    who = ("ranks" not in expect or ranks == wanted) and expect.get("frame") in (None, frame.rsplit(".")[-1])
    kind = found["kind"] in expect.get("kind", [found["kind"]])
    if any(re.search(pattern, text) for pattern in expect.get("never", ())) or (
        "ranks" in expect and ranks - wanted
    ):
        return "false"
    if who and kind and all(re.search(pattern, text) for pattern in expect.get("says", ())):
        return "right"
    return "partly" if kind or (who and (wanted or "frame" in expect)) else "wrong"


def play(case: Case, after: int, dumps: Path | None) -> Score:
    """Run a case on real agents; its dump is kept in `dumps`."""
    command = CommandPlan(
        "train", (sys.executable, "-u", str(case.path)), on="all", tasks_per_node=case.ranks
    )
    fields: dict[str, Any] = {"stall": StallPlan(after, case.action)}
    if case.ray:
        fields |= {"mode": "ray", "ray": RAY, "commands": (CommandPlan("train", command.argv),)}
    with (
        tempfile.TemporaryDirectory(prefix="stall-") as folder,
        running(Path(folder), command, **fields) as run,
    ):
        run.agent(env={"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "OMP_NUM_THREADS": "1"})
        began = _begin(case, run)
        seen = _await(lambda: list(run.attempt.glob("dumps/*/explanation.json")), 20 * after + 60.0)
        if not seen:
            return Score(case.name, case.title, "wrong", what="not seen")
        at = next(
            (row["t"] for row in run.events() if (row.get("data") or {}).get("what") == "stall"), time.time()
        )
        found = json.loads(seen[0].read_text())
        ended = _await(lambda: run.agents[0].poll() is not None, 30.0) if found["frozen"] else False
        ended_s = time.time() - began if ended else None
        score = judge(case.expect, found)
        if dumps is not None:
            shutil.copytree(seen[0].parent, dumps / case.name, dirs_exist_ok=True)
        return Score(
            case.name, case.title, score, at - began, ended_s, found["kind"], found["what"], found["why"]
        )


def _begin(case: Case, run: Run) -> float:
    """When the program stands, after what is done to it from outside. Raises: RuntimeError."""
    mark = run.attempt / "stalled"
    if not _await(lambda: mark.exists() and mark.read_text().endswith("\n"), BEGINS_S):
        raise RuntimeError(f"{case.name} has not begun: {run.describe()}\n{_log(run)}")
    if case.act:
        number = {"stop": signal.SIGSTOP, "kill": signal.SIGKILL}[case.act]
        os.kill(int(mark.read_text().split()[-1]), number)
    return time.time()


def _await(ready: Any, limit_s: float) -> Any:
    end = time.monotonic() + limit_s
    while time.monotonic() < end:
        found = ready()
        if found:
            return found
        time.sleep(0.2)
    return None


def _log(run: Run) -> str:
    logs = sorted(run.attempt.glob("logs/*/train*.log"))
    return "\n".join(path.read_text(errors="replace")[-1500:] for path in logs)


def safely(case: Case, after: int, dumps: Path | None) -> Score:
    try:
        return play(case, after, dumps)
    except Exception as problem:  # a broken case is a row, and not the end of the table
        return Score(case.name, case.title, "wrong", what=f"broken: {problem}")


def table(scores: Sequence[Score], after: int) -> str:
    """The page's part."""
    rows = ["| Stall | Seen after | Ended after | Cause | What is said |", "| --- | --- | --- | --- | --- |"]
    for one in scores:
        seen = f"{one.seen_s:.0f} s" if one.seen_s is not None else "-"
        ended = f"{one.ended_s:.0f} s" if one.ended_s is not None else "-"
        plain = re.sub(r" on `[\w.-]+`|, pid \d+|`?/tmp/\S+/", "", re.sub(r"\(/\S+/", "(", one.what))
        said = (plain if len(plain) <= SAID_CHARS else f"{plain[:SAID_CHARS]}…").replace("|", "\\|")
        said = said.replace("<module>", "&lt;module>")
        said += "`" * (said.count("`") % 2)
        rows.append(f"| {one.title} | {seen} | {ended} | {one.score} | {said} |")
    counts = ", ".join(f"{sum(one.score == word for one in scores)} {word}" for word in WORDS)
    times = [one.seen_s for one in scores if one.seen_s is not None]
    median = (
        f"; seen after {statistics.median(times):.0f} s in the median, patience {after} s" if times else ""
    )
    return "\n".join([*rows, "", f"{len(scores)} stalls: {counts}{median}.", ""])


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("cases", nargs="*", help="names or files (default: all)")
    parser.add_argument("--after", type=int, default=8, help="patience in seconds")
    parser.add_argument("--gpu", action="store_true", help="the cases that need GPUs, instead of the others")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--table", type=Path)
    parser.add_argument("--dumps", type=Path, help="keep each case's dump in this folder")
    args = parser.parse_args()
    paths = [path if (path := Path(name)).suffix == ".py" else CASES / f"{name}.py" for name in args.cases]
    cases = [load(path) for path in paths or sorted(CASES.glob("[!_]*.py"))]
    cases = [case for case in cases if paths or bool(case.gpus) == args.gpu]
    scores: list[Score] = []
    with ThreadPoolExecutor(args.jobs) as pool:
        for score in pool.map(lambda case: safely(case, args.after, args.dumps), cases):
            scores.append(score)
            print(
                f"{score.score:7} {score.name:28} {score.seen_s or -1:5.1f} s  [{score.kind}] {score.what}",
                flush=True,
            )
            if args.json:
                args.json.write_text(json.dumps([asdict(one) for one in scores], indent=1))
    text = table(scores, args.after)
    print(text)
    if args.table:
        args.table.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
