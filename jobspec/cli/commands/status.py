"""Show where runs are: state, verdict, step, reward and other figures, staging, the scheduler's reason.

Without RUN the list has the newest runs that fit the filters. A run named as RUN has more rows: one for each
point, and one for each node that stages. One query asks the scheduler about all runs, except those that have
ended. A run that has ended since gets its verdict and its reports now. A scheduler that does not answer is
told, and REASON has what the run's own files say; the exit code for a RUN is then 2.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from itertools import islice
from typing import TYPE_CHECKING, Any

from jobspec.cli import output, parser, run_filter, run_table
from jobspec.cli.boundary import USAGE
from jobspec.finding import Finding, JobspecError
from jobspec.runs.index import RunIndex, stamp
from jobspec.runs.paths import RunPaths
from jobspec.runs.store import Found, RunStore, open_store
from jobspec.runtime.base.run_files import parse_json, read_text

if TYPE_CHECKING:  # what looks into run folders costs more to import than the index to read
    from jobspec.cli.live.observe import View
    from jobspec.cli.live.staging import StageProgress

WATCH_S = 5


def add_arguments(into: argparse.ArgumentParser) -> None:
    into.add_argument(
        "runs_wanted", metavar="RUN", nargs="*", help="run id, prefix, name, directory, or last"
    )
    into.add_argument(
        "--limit", type=parser.whole_number(1), default=20, metavar="N", help="at most N runs (default 20)"
    )
    into.add_argument("--all", action="store_true", help="all runs")
    run_filter.add_filters(into)
    into.add_argument(
        "--watch",
        type=parser.whole_number(1),
        nargs="?",
        const=WATCH_S,
        metavar="S",
        help=f"again every S seconds (default {WATCH_S}), until every shown run has ended",
    )
    parser.add_runs(into)
    parser.add_json(into)


@dataclass(frozen=True)
class Entry:
    """A run's data as `--json` has it. `view` is there unless the index has said it all."""

    data: Mapping[str, Any]
    view: View | None = None


def run(args: argparse.Namespace) -> int:
    store = open_store(args.runs)
    wanted = run_filter.checked(args)
    while True:
        findings = list[Finding]()
        entries = _entries(args, store, wanted, findings)
        if args.watch is not None and sys.stdout.isatty():
            print("\x1b[H\x1b[2J", end="", flush=True)
        output.print_findings(findings)
        _show(args, store, entries)
        if args.watch is None or all(entry.data["final"] for entry in entries):
            return USAGE if findings and args.runs_wanted else 0  # what was asked for is known in part
        sys.stdout.flush()
        time.sleep(args.watch)


def _entries(
    args: argparse.Namespace, store: RunStore, wanted: Mapping[str, str], findings: list[Finding]
) -> list[Entry]:
    """The runs to show, newest first; `findings` takes what is to be told beside them.

    Raises: JobspecError for a damaged run that was named.
    """
    if args.runs_wanted:
        named = _looked_at([_as_found(store.find(ref)) for ref in args.runs_wanted], findings, points=True)
        damaged = [finding for entry in named if entry.view for finding in entry.view.damaged]
        if damaged:
            raise JobspecError(*damaged)
        return named
    first = run_filter.since(args.since, datetime.now(UTC))
    runs = [run for run in store.found() if run_filter.fits_folder(run, args, first)]
    most = len(runs) if args.all else args.limit
    entries = _looked_at(runs if wanted else runs[:most], findings)
    findings += [item for entry in entries if entry.view for item in entry.view.damaged]
    return list(islice((entry for entry in entries if run_filter.fits(entry.data, wanted)), most))


def _as_found(run: RunPaths) -> Found:
    return Found(run.run_id, run.root.parent.name, str(run.root))


def _looked_at(runs: Sequence[Found], unanswered: list[Finding], points: bool = False) -> list[Entry]:
    """The runs in their order: from the index, and where that says nothing of now, from their folders.

    With `points` a sweep is always read: its row has nothing of each point.
    """
    index = RunIndex(os.environ)
    kept = index.read([run.root for run in runs])  # other folders may have thousands
    marks = {run.root: stamp(run.root) for run in runs}  # before the files are read: they may change
    current = ((root, data) for root, (mark, data) in kept.items() if mark == marks[root])
    known = {root: data for root, data in current if not (points and data["points"])}
    unknown = [run for run in runs if run.root not in known]
    seen = _observed([run.paths for run in unknown], unanswered)
    made = {run.root: entry for run, entry in zip(unknown, seen, strict=True)}
    rows = {root: (marks[root], entry.data) for root, entry in made.items() if marks[root] and _lasts(entry)}
    index.write(rows, (root for root in index.roots() if not os.path.isdir(root)) if rows else ())  # noqa: PTH112
    return [made.get(run.root) or Entry(known[run.root]) for run in runs]


def _lasts(entry: Entry) -> bool:
    """Whether the data is that of the whole run: it has ended, and its report is from after the end."""
    from jobspec.cli.live import reports

    ended = entry.data["final"] and not entry.data["damaged"]
    return bool(ended and entry.view and reports.is_reported(entry.view.run))


def _observed(runs: Sequence[RunPaths], unanswered: list[Finding]) -> list[Entry]:
    """The runs as they are now; those that have ended get their reports."""
    if not runs:
        return []
    from jobspec.cli.live import observe, reports

    views = observe.observe(runs, unanswered)
    ended = [
        view.run for view in views if view.launch is not None and view.status and view.status.state.final
    ]
    problems = dict[RunPaths, str]()
    left = reports.write_missing(ended, problems)
    if left:
        print(f"{left} ended runs have no report yet; the next `jobspec status` goes on", file=sys.stderr)
    return [_entry(view, problems.get(view.run, "")) for view in views]


def _entry(view: View, problem: str) -> Entry:
    from jobspec.cli.live import observe

    try:
        return Entry(as_json(view, problem), view)
    except Exception as bug:  # noqa: BLE001  one odd run must not hide the others
        odd = observe.unreadable(view.run, bug)
        return Entry(as_json(odd), odd)


def _show(args: argparse.Namespace, store: RunStore, entries: Sequence[Entry]) -> None:
    if args.json:
        output.print_json([entry.data for entry in entries])
        return
    if not entries:
        what = "no run fits in " if run_filter.given(args) else "no runs in "
        print(what + ", ".join(str(folder) for folder in store.folders))
        return
    rows = []
    for entry in entries:
        stage = entry.view.stage if entry.view else None
        rows.append(run_table.row(entry.data, stage.text() if stage else ""))
        if args.runs_wanted and entry.view:
            rows += [*_nodes(entry.view), *_points(entry.view)]
    output.print_table(*run_table.fitted(rows, _width()))


def _width() -> int:
    """The columns of the terminal; 0 without one."""
    if not sys.stdout.isatty():
        return 0
    import shutil

    return shutil.get_terminal_size().columns


def _nodes(view: View) -> Iterator[tuple[str, ...]]:
    """The nodes that stage, one row each."""
    for node in view.stage.nodes if view.stage else ():
        reason = "; ".join(words for words in (node.text(), node.origin()) if words)
        yield ("", f"node {node.node}", "", "", "staging", *[""] * (len(run_table.HEADER) - 6), reason)


def _points(view: View) -> Iterator[tuple[str, ...]]:
    """The points of a sweep, one row each."""
    from jobspec.cli.live import reports
    from jobspec.runs.records import read_results

    judged = reports.is_reported(view.run)
    for point in view.run.points():
        try:
            results = read_results(point) or {}
        except JobspecError:  # of one point; its report says more
            results = {"outcome": "damaged"}
        outcome = str(results.get("outcome") or "")
        verdict = reports.verdict_of(point).get("verdict", "") if judged else ""
        progress = run_table.progress(_point_json(point))
        yield ("", f"point {point.root.name}", "", "", outcome, verdict, *progress, "", "", "")


def as_json(view: View, problem: str = "") -> dict[str, Any]:
    """A run as `status --json` shows it; the names are stable. `problem` is why there is no report."""
    from jobspec.cli.live import reports

    launch, progress = view.launch, view.progress
    ended = view.status is not None and view.status.state.final
    judged = reports.verdict_of(view.run) if ended and reports.is_reported(view.run) else {}
    planned = reports.framework_of(view.run)
    return {
        "run_id": view.run.run_id,
        "name": view.run.name,
        "run_dir": str(view.run.root),
        "framework": planned["framework"],
        "level": judged.get("level") or planned["level"],
        "cluster": launch.cluster if launch else "",
        "launcher": launch.launcher if launch else "",
        "job_id": launch.job_id if launch else "",
        "submit_time": launch.submit_time if launch else None,
        "intent_time": launch.intent_time if launch else None,
        "state": view.status.state.value if view.status else "",
        "final": view.final,
        "verdict": judged.get("verdict", ""),
        "verdict_reason": judged.get("reason", "") or (problem and f"no report: {problem}"),
        "step": progress.step,
        "steps": progress.steps,
        "metric": progress.metric,
        "value": progress.value,
        "figures": dict(progress.figures),
        "stage": _stage_json(view.stage) if view.stage else None,
        "points": view.points,
        "point_progress": [_point_json(point) for point in (view.run.points() if view.points else ())],
        "damaged": [finding.to_json() for finding in view.damaged],
        "scheduler": view.status.to_json() if view.status else None,
        "forecast": _forecast(view),
    }


def _forecast(view: View) -> dict[str, Any] | None:
    """What the queue said at submission, while the run still waits in it."""
    if view.final or view.status is None or view.status.nodes:
        return None
    try:
        found = parse_json(read_text(view.run.forecast))
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) else None


def _stage_json(stage: StageProgress) -> dict[str, Any]:
    return {"share": round(stage.share, 4), **asdict(stage)}


def _point_json(point: RunPaths) -> dict[str, Any]:
    from jobspec.cli.live import observe

    progress = observe.progress(point)
    return {
        "point": int(point.root.name),
        "step": progress.step,
        "steps": progress.steps,
        "metric": progress.metric,
        "value": progress.value,
        "figures": dict(progress.figures),
    }
