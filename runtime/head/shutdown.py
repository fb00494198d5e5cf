"""The end of an attempt, however it came: stop, collect, write results, send the workers home."""

from __future__ import annotations

import contextlib
import signal
import sys
import time
from pathlib import Path
from typing import Any, Dict, List, Mapping, Optional, Sequence

from jobspec.finding import Finding, error, warning
from jobspec.plan import CommandPlan, ImportProof, Plan
from jobspec.runtime.base.full_disk import refusal
from jobspec.runtime.head import batch_script, reserve, services
from jobspec.runtime.head.attempt import Attempt
from jobspec.runtime.head.in_flight import in_flight
from jobspec.runtime.head.nodes import Call
from jobspec.runtime.head.ray_bringup import RayBringUp
from jobspec.runtime.head.record import CANCELLED, EXIT_BLOCKED, FAILED, TIMEOUT, Cause, blocked
from jobspec.runtime.node import collect

STOP_COMMAND_GRACE_S = 2.0  # when a node is lost or a phase failed: a command has nothing to save for
SIGNAL_GRACE_S = 10.0  # of a cancelled command; Slurm's KillWait is 30 s by default
STOP_S = 12.0
# After a signal, or the loss of a node: Slurm ends the step by itself then (KillWait, 30 s by default).
COLLECT_HURRY_S = 10.0
COLLECT_SLACK_S = 2.0  # for the answers
TIMEOUT_SHARE = 0.6  # of the grace before the time limit: for the command to save and end
COLLECT_SHARE = 0.2  # of it: for the collection, whose files the command has just saved


def finish(attempt: Attempt, ray: Optional[RayBringUp] = None) -> int:
    """End the attempt, and the Ray that it has started; the exit status of the job."""
    cause = attempt.cause
    if cause is not None:
        attempt.record.end_open(cause.outcome)
    # A first version at once: Slurm, or a lost node, may end this step before the collection has ended.
    reserve.release(attempt.node.paths.attempt, reserve.FILES // 2)
    ended = 0.0  # by the clock of the shared storage
    with contextlib.suppress(OSError):  # the last write reports a full disk, after all have stopped
        attempt.record.write(cause, collecting=True)
        ended = (attempt.node.paths.attempt / "results.json").stat().st_mtime
    _stop_commands(attempt, cause)
    services.stop(attempt)
    _collect(attempt, cause)
    by_itself = any(row["exit_code"] and not row["signal"] for row in attempt.record.commands)
    if ended and cause is not None and attempt.driving and not by_itself:
        for finding in in_flight(Path(attempt.node.paths.checkpoint), ended):
            attempt.record.find("collect", finding)
    lost = batch_script.lost_nodes(attempt.cause)  # one may have been lost meanwhile
    batch_script.ask_for_another_attempt(attempt, lost or batch_script.stalled_nodes(attempt.cause))
    if lost:
        # srun waits for the dead node: the batch script ends the job from here on, while Ray is stopped.
        batch_script.leave_exit(attempt, _write_results(attempt), lost)
    _stop_nodes(attempt, ray, failed=attempt.cause is not None)
    if attempt.plan.upstream is not None:  # its logs were written by the script's own shells
        for path in (attempt.node.paths.attempt / "logs").glob(f"{attempt.who.job_id}*-logs/*.log"):
            collect.redact_in_place(path, attempt.node.redactor)
    code = _write_results(attempt)
    attempt.nodes.close(code)
    attempt.record.log.close()
    attempt.node.close()
    if not lost:
        batch_script.leave_exit(attempt, code)
    return code


def _write_results(attempt: Attempt) -> int:
    """The exit code that the results state; that of a blocked run where they cannot be written."""
    try:
        return attempt.record.write(attempt.judge())
    except OSError as problem:
        sys.stderr.write(_no_results(problem, attempt.who.name).text() + "\n")
        return EXIT_BLOCKED


def _stop_commands(attempt: Attempt, cause: Any) -> None:
    if cause is None:
        return
    grace = STOP_COMMAND_GRACE_S
    if cause.outcome == TIMEOUT:
        grace = max(SIGNAL_GRACE_S, attempt.plan.slurm.grace_s * TIMEOUT_SHARE)
    elif cause.outcome == CANCELLED:
        grace = SIGNAL_GRACE_S
    attempt.nodes.settle(attempt.nodes.call_all("stop_command", {"grace_s": grace}), grace + 5.0)


def _collect(attempt: Attempt, cause: Any) -> None:
    times = attempt.enter("collect")
    limit = collect_limit_s(attempt.plan, cause)
    calls = attempt.nodes.call_all("collect", {"deadline_s": limit})
    late = _await_collected(attempt, calls, limit + COLLECT_SLACK_S)
    rows: List[Dict[str, Any]] = []
    for call in calls:
        if call.reply is not None:
            _note_collected(attempt, call, rows)
    overdue = [_not_collected(attempt.who.hosts[index]) for index in late]
    for finding in overdue:
        attempt.record.find("collect", finding)
    reserve.release(attempt.node.paths.attempt)
    try:
        _write_manifest(attempt, rows)
    except OSError as problem:  # the nodes are stopped and the results written all the same
        attempt.record.find("collect", _no_manifest(problem, attempt.who.name))
    bad = [
        finding
        for finding in attempt.record.findings
        if finding.rule.startswith("collect.") and finding.is_error
    ]
    attempt.record.end(times, "failed" if bad else "ok", dict(attempt.record.collected))
    if bad and attempt.cause is None:
        attempt.stop(Cause(FAILED, 1, "collect", bad))


def _await_collected(attempt: Attempt, calls: Sequence[Call], limit_s: float) -> List[int]:
    """The nodes that are late. A node that is lost meanwhile, or a signal, leaves the others little time."""
    end, calm = time.monotonic() + limit_s, attempt.signals == 0 and attempt.cause is None
    while True:
        late = attempt.nodes.settle(calls, min(0.5, max(0.0, end - time.monotonic())))
        if not late or time.monotonic() >= end:
            return late
        if calm and (attempt.signals or attempt.cause is not None):
            end, calm = min(end, time.monotonic() + COLLECT_HURRY_S / 2), False


def collect_limit_s(plan: Plan, cause: Optional[Cause]) -> float:
    """How long the nodes may collect: it ends well before Slurm kills what is left."""
    limit = float(plan.collect.timeout_s)
    if cause is None:
        return limit
    if cause.outcome == TIMEOUT:
        return min(limit, max(COLLECT_HURRY_S, plan.slurm.grace_s * COLLECT_SHARE))
    hurry = cause.outcome == CANCELLED or batch_script.lost_nodes(cause)
    return min(limit, COLLECT_HURRY_S) if hurry else limit


def _note_collected(attempt: Attempt, call: Call, rows: List[Dict[str, Any]]) -> None:
    reply = call.reply or {}
    attempt.note("collect", call.index, reply)
    rows.extend(reply.get("files", ()))
    if reply.get("truncated"):
        attempt.record.collected["truncated"] = True
        what = f"not everything was collected: {reply.get('left_out', 0)} files were left out"
        why = ", ".join(reply.get("skipped", ()))
        fix = "raise `artifacts.max_size`, or name fewer files"
        attempt.record.find(
            "collect", warning("collect.truncated", what, why, fix, node=attempt.who.hosts[call.index])
        )
    if reply.get("failed"):
        attempt.record.find("collect", _not_copied(reply, attempt.who.hosts[call.index]))


def _not_copied(reply: Mapping[str, Any], node: str) -> Finding:
    """An error where the disk failed: what the run has made is not whole. Else a warning."""
    count = reply["failures"]
    what = f"{count} file{'s were' if count > 1 else ' was'} not collected"
    why, fix = "; ".join(reply["failed"]), reply["fix"]
    if fix:
        return error("collect.io", what, why, fix, node=node)
    return warning("collect.unreadable", what, why, "let the job's user read them, or name others", node=node)


def _not_collected(name: str) -> Finding:
    return error("collect.deadline", f"node `{name}` has not collected its files in time", node=name)


def _no_manifest(problem: OSError, node: str) -> Finding:
    why, fix = refusal(problem)
    return error(
        "collect.io",
        f"the list of collected files cannot be written: {why} (`{problem.filename}`)",
        "" if fix else "something else may have taken the place of the run's `artifacts` folder",
        fix or "see that this user may write there, and that no command removes it",
        node=node,
    )


def _no_results(problem: OSError, node: str) -> Finding:
    why, fix = refusal(problem)
    return error(
        "runtime.run-dir",
        f"the run directory cannot be written: {why} (`{problem.filename}`)",
        "the verdict is in the job's log alone",
        fix or "put `paths.runs` on shared storage that this user may write",
        node=node,
    )


def _write_manifest(attempt: Attempt, rows: List[Dict[str, Any]]) -> None:
    node = attempt.node
    collect.write_manifest(node.paths.artifacts, rows, attempt.who.name, node.redactor)
    attempt.record.collected.update(files=len(rows), bytes=sum(int(row["bytes"]) for row in rows))


def _stop_nodes(attempt: Attempt, ray: Optional[RayBringUp], failed: bool) -> None:
    if ray is not None:
        ray.stop()
    calls = attempt.nodes.call_all("stop", {"keep_ray_logs": failed})
    late = attempt.nodes.settle(calls, STOP_S)
    for call in calls:
        left = (call.reply or {}).get("left")
        if left:
            what = f"processes {left} could not be ended"
            attempt.record.find("collect", warning("node.leftover", what, node=attempt.who.hosts[call.index]))
    for index in late:
        what = "Ray and the commands have not ended in time"
        attempt.record.find("collect", warning("node.leftover", what, node=attempt.who.hosts[index]))


def proofs(rows: Sequence[Mapping[str, str]]) -> List[ImportProof]:
    return [ImportProof(**row) for row in rows]


def note_command(attempt: Attempt, phase: str, command: CommandPlan, calls: Sequence[Call]) -> bool:
    """Write down how a command ended; False when the run ends with it."""
    tasks: List[Dict[str, Any]] = []
    errors: List[Finding] = []
    for call in calls:
        if call.reply is not None:
            errors.extend(attempt.note(phase, call.index, call.reply))
            tasks.extend(
                {**row, "node": attempt.who.hosts[call.index]} for row in call.reply.get("ended", ())
            )
    for task in tasks:
        if task["log"]:  # empty when the command could not start
            task["log"] = str(Path(task["log"]).relative_to(attempt.node.paths.attempt))
    # The rank that failed first is the cause: the others were ended because of it.
    bad = sorted((task for task in tasks if task["exit_code"]), key=lambda task: float(task["end"]))
    decisive = bad[0] if bad else (tasks[0] if tasks else None)
    if decisive is None:
        now = time.time()
        decisive = {
            "exit_code": 1,
            "signal": 0,
            "log": "",
            "start": now,
            "end": now,
            "rank": 0,
            "node": attempt.who.name,
        }
    row = {**decisive, "name": command.name, "phase": phase}
    if len(tasks) > 1:
        row["tasks"] = tasks
    attempt.record.commands.append(row)
    code = int(decisive["exit_code"])
    if code == 0:
        return True
    attempt.stop(_command_cause(phase, command, decisive, errors))
    return False


def _command_cause(
    phase: str, command: CommandPlan, task: Mapping[str, Any], errors: Sequence[Finding]
) -> Cause:
    """A test that fails is a fault of what is tested; tests that never ran say nothing about it."""
    code = int(task["exit_code"])
    if phase == "checks" and (errors or no_test_ran(command, code)):
        return blocked(phase, *(errors or [_no_test_ran(command, task)]))
    return Cause(FAILED, code, phase, (*errors, _command_failed(phase, command, task)))


def no_test_ran(command: CommandPlan, code: int) -> bool:
    """Whether pytest says by its exit code that it ran no test.

    Source: docs.pytest.org, "Exit codes": 4 is a usage error, such as a path that is not there, and 5 that
    no test was collected.
    """
    return code in (4, 5) and any("pytest" in word for word in command.argv)


def _no_test_ran(command: CommandPlan, task: Mapping[str, Any]) -> Finding:
    why = "a test file is not in this checkout, or an argument is wrong"
    if int(task["exit_code"]) == 5:
        why = "pytest found no test in the paths and arguments given"
    return error(
        "checks.no-test-ran",
        f"`{command.name}` ran no test: pytest exited with {task['exit_code']}",
        why,
        "correct `coverage.checks`; read the end of the test's log",
        file=str(task["log"]),
        node=str(task["node"]),
    )


def _command_failed(phase: str, command: CommandPlan, task: Mapping[str, Any]) -> Finding:
    number = int(task["signal"])
    meaning = f" ({signal.strsignal(number)})" if number == signal.SIGSEGV else ""
    how = f"was ended by signal {number}{meaning}" if number else f"exited with {task['exit_code']}"
    rank = f" (rank {task['rank']})" if command.on == "all" else ""
    return error(
        f"{phase}.exit-code",
        f"command `{command.name}`{rank} {how}",
        "",
        "read the end of its log",
        file=str(task["log"]),
        node=str(task["node"]),
    )
