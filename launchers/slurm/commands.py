"""Slurm's command lines and the parsing of what they print. Pure: nothing here runs anything.

Text formats (`-o`, `--parsable2`) and not `--json`: `scontrol show job --json` does not exist in 22.05, the
JSON of squeue changed its shape between 20.11 and 23.11, and 1000 jobs cost 3.4 MB there.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from jobspec.launchers.base import WORDS, JobState, JobStatus

# The reason comes last: it is the one free text, so a separator inside it is harmless.
SQUEUE_FORMAT = "%i|%T|%u|%V|%N|%S|%j|%r"
SACCT_FIELDS = "JobID,State,ExitCode,NodeList,Start,User,Submit,JobName"
# Above this many ids one argument may pass the kernel's 128 KiB for a single one (MAX_ARG_STRLEN).
MAX_IDS = 8000

# With short forms and old names that -o %T or sacct print in some versions.
_WORDS = WORDS | {
    "NODE_FAILED": JobState.NODE_FAIL,
    "OOM": JobState.OUT_OF_MEMORY,
    "REQUEUE": JobState.REQUEUED,
    "EXPEDITING": JobState.REQUEUED,  # from Slurm 25.11 on: at the top of the queue
}
_NO_VALUE = frozenset({"", "N/A", "n/a", "None", "(null)", "Unknown", "None assigned"})


@dataclass(frozen=True)
class JobRow:
    """One line of squeue or sacct. `task` is the array index, None for a job that is no array.

    `part` numbers the components of a heterogeneous job: `7+1` is the second of job 7.
    """

    job_id: str
    task: int | None
    job_name: str
    status: JobStatus
    user: str = ""
    submitted: str = ""  # in the cluster's local time
    part: int = 0


def sbatch_argv(script: str, job_name: str, workdir: str) -> list[str]:
    """Submit `script` under a name that finds the job again; the script holds everything else."""
    return ["sbatch", "--parsable", f"--job-name={job_name}", f"--chdir={workdir}", script]


def squeue_argv(job_ids: Iterable[str] = (), job_name: str = "") -> list[str]:
    """List jobs of every state that the controller still remembers, array tasks one by one.

    Of more than `MAX_IDS` all of this user's.
    """
    argv = ["squeue", "--noheader", "--states=all", "--array", f"--format={SQUEUE_FORMAT}"]
    ids = list(job_ids)
    if ids:
        argv.append("--jobs=" + ",".join(ids) if len(ids) <= MAX_IDS else "--me")
    if job_name:
        argv.append(f"--name={job_name}")
    return argv


def squeue_scripts_argv() -> list[str]:
    """List the scripts of this user's jobs: each run has its own, whatever its job is called."""
    return ["squeue", "--noheader", "--states=all", "--me", "--format=%i|%o"]


def sacct_argv(job_ids: Iterable[str] = (), job_name: str = "", since: str = "") -> list[str]:
    """Allocations, every attempt of a requeued job as its own line (`--duplicates`).

    `since` is `YYYY-MM-DDTHH:MM:SS`. sacct looks at today alone without it when a name is given.
    """
    argv = ["sacct", "--allocations", "--duplicates", "--noheader", "--parsable2", f"--format={SACCT_FIELDS}"]
    ids = list(job_ids)
    if ids:
        argv.append("--jobs=" + ",".join(ids))
    if job_name:
        argv.append(f"--name={job_name}")
    if since:
        argv.append(f"--starttime={since}")
    return argv


def scancel_argv(job_ids: Iterable[str]) -> list[str]:
    return ["scancel", *job_ids]


def signal_batch_argv(job_ids: Iterable[str], name: str = "TERM") -> list[str]:
    """A signal for the batch script alone: its steps go on."""
    return ["scancel", "--batch", f"--signal={name}", *job_ids]


def parse_submitted(text: str) -> str:
    """The job id out of `sbatch --parsable`: `1234` or `1234;cluster`. Empty when there is none."""
    for line in reversed(text.strip().splitlines()):
        match = re.match(r"^(\d+)(;[\w.-]+)?$", line.strip())
        if match:
            return match.group(1)
    return ""


@functools.lru_cache(maxsize=256)
def parse_state(text: str) -> JobState:
    """The state in a word such as `CANCELLED by 1000` or `CANCELLED+`; UNKNOWN for a new one.

    >>> parse_state("CANCELLED by 1000")
    <JobState.CANCELLED: 'CANCELLED'>
    """
    word = re.split(r"[ +,]", text.strip(), maxsplit=1)[0].upper()
    return _WORDS.get(word, JobState.UNKNOWN)


def parse_exit_code(text: str) -> int | None:
    """`7:0` is 7, `0:15` is 143 (the shell's 128 + signal); None when there is no such pair."""
    match = re.match(r"^(\d+):(\d+)$", text.strip())
    if not match:
        return None
    code, signal = int(match.group(1)), int(match.group(2))
    return 128 + signal if signal else code


def parse_job_id(text: str) -> tuple[str, tuple[int | None, ...]]:
    """A job id and its array tasks: `7` -> (7, None), `7_3` -> (7, 3), `7_[1-2,5%2]` -> (7, 1 2 5).

    Raises: ValueError when the text is no job id.
    """
    match = re.match(r"^(\d+)(?:\+\d+)?(?:_(\d+|\[[^\]]*\]))?$", text.strip())
    if not match:
        raise ValueError(f"`{text}` is not a Slurm job id")
    tasks = match.group(2)
    if tasks is None:
        return match.group(1), (None,)
    if not tasks.startswith("["):
        return match.group(1), (int(tasks),)
    return match.group(1), tuple(expand_ranges(tasks.strip("[]").split("%")[0]))


def expand_ranges(ranges: str) -> Iterable[int]:
    """The task numbers of `0-2,5`."""
    for part in ranges.split(","):
        match = re.match(r"^(\d+)(?:-(\d+)(?::(\d+))?)?$", part)
        if not match:  # `...` where squeue cut a long list
            continue
        first, last, step = (
            int(match.group(1)),
            int(match.group(2) or match.group(1)),
            int(match.group(3) or 1),
        )
        yield from range(first, last + 1, step)


def parse_squeue(text: str) -> list[JobRow]:
    """Rows of `squeue` in `SQUEUE_FORMAT`; lines that are something else (a banner) are left out."""
    rows: list[JobRow] = []
    for line in text.splitlines():
        cells = line.split("|", 7)
        if len(cells) == 8:
            job, state, user, submitted, nodes, start, name, reason = (cell.strip() for cell in cells)
            status = JobStatus(
                parse_state(state), _value(reason), None, _value(nodes), start=_value(start), raw=state
            )
            rows.extend(_rows(job, JobRow("", None, name, status, _value(user), _value(submitted))))
    return rows


def parse_scripts(text: str) -> dict[str, str]:
    """Job ids by script out of `squeue_scripts_argv`.

    >>> parse_scripts("7_[0-3]|/runs/a/job.sbatch\\n8|bash")
    {'/runs/a/job.sbatch': '7', 'bash': '8'}
    """
    return {script: job_id for job_id, script in re.findall(r"^(\d+)[^|\n]*\|(.*)$", text, re.MULTILINE)}


def parse_sacct(text: str) -> list[JobRow]:
    """Rows of `sacct` in `SACCT_FIELDS`, as they come: a requeued job has several."""
    rows: list[JobRow] = []
    for line in text.splitlines():
        cells = line.split("|", 7)
        if len(cells) == 8:
            job, state, code, nodes, start, user, submitted, name = (cell.strip() for cell in cells)
            status = JobStatus(
                parse_state(state), "", parse_exit_code(code), _value(nodes), start=_value(start), raw=state
            )
            rows.extend(_rows(job, JobRow("", None, name, status, _value(user), _value(submitted))))
    return rows


def _rows(job: str, row: JobRow) -> Iterable[JobRow]:
    """`row` for each task that the id `job` stands for."""
    try:
        job_id, tasks = parse_job_id(job)
    except ValueError:
        return ()
    part = int(re.sub(r".*[+]|_.*", "", job) if "+" in job else 0)
    return [replace(row, job_id=job_id, task=task, part=part) for task in tasks]


def _value(text: str) -> str:
    return "" if text in _NO_VALUE else text


def latest(rows: Sequence[JobRow]) -> dict[tuple[str, int | None], JobStatus]:
    """One status for each job or task out of sacct's rows, with the restarts counted.

    sacct prints the attempts in the order in which they started; one that was requeued ends in
    REQUEUED, PREEMPTED or NODE_FAIL and is followed by the next.
    """
    grouped: dict[tuple[str, int | None], dict[int, list[JobStatus]]] = {}
    for row in rows:
        parts = grouped.setdefault((row.job_id, row.task), {})
        parts.setdefault(row.part, []).append(row.status)
    return {
        key: _whole([_last(attempts) for _, attempts in sorted(parts.items())])
        for key, parts in grouped.items()
    }


def _last(attempts: Sequence[JobStatus]) -> JobStatus:
    return replace(attempts[-1], restarts=len(attempts) - 1) if len(attempts) > 1 else attempts[0]


def _whole(parts: Sequence[JobStatus]) -> JobStatus:
    """One status for the components of a heterogeneous job, which start and end together.

    While one is not over the job is not; then the first that did not end well tells how it ended.
    """
    waiting = [part for part in parts if not part.state.final]
    bad = [part for part in parts if part.state is not JobState.COMPLETED]
    nodes = ",".join(part.nodes for part in parts if part.nodes)
    return replace((waiting or bad or parts)[0], nodes=nodes)


def merge(queued: JobStatus | None, accounted: JobStatus | None) -> JobStatus:
    """The status of one job by the answers of the queue and of accounting.

    The queue knows best what a job does now; accounting alone knows the exit code. A job is UNKNOWN when
    the queue has forgotten it and accounting calls it running: accounting never closed its record.
    """
    if queued is None:
        if accounted is None:
            return JobStatus(JobState.MISSING, "neither the queue nor accounting knows the job")
        if accounted.state.final or accounted.state is JobState.UNKNOWN:
            return accounted
        reason = f"accounting says {accounted.state.value}, the queue does not know the job"
        return replace(accounted, state=JobState.UNKNOWN, reason=reason)
    if accounted is None:
        return queued
    if not queued.state.final or not accounted.state.final:  # accounting may lag: its 0:0 is no exit code yet
        return replace(queued, restarts=accounted.restarts)
    return replace(
        queued,
        exit_code=accounted.exit_code,
        nodes=queued.nodes or accounted.nodes,
        restarts=accounted.restarts,
    )


def summarise(tasks: Mapping[int, JobStatus]) -> JobStatus:
    """One status for an array: running while a task can still run, failed when one failed."""
    order = sorted(tasks.items())
    waiting = [task for _, task in order if not task.state.final]
    bad = [task for _, task in order if task.state.final and task.state is not JobState.COMPLETED]
    counts: dict[str, int] = {}
    for _, task in order:
        counts[task.state.value] = counts.get(task.state.value, 0) + 1
    reason = ", ".join(f"{count} {state}" for state, count in sorted(counts.items()))
    if waiting:
        active = next((task for task in waiting if task.state.active), waiting[0])
        return JobStatus(active.state, reason, start=active.start, raw=active.raw, tasks=tasks)
    if bad:
        return JobStatus(bad[0].state, reason, bad[0].exit_code, raw=bad[0].raw, tasks=tasks)
    return JobStatus(JobState.COMPLETED, reason, 0, raw="COMPLETED", tasks=tasks)


def gpus_by_type(gres: str) -> dict[str, int]:
    """GPUs by type out of a GRES text of sinfo; the type is empty where it names none.

    >>> gpus_by_type("gpu:h200:8(S:0-1,2),nvme:1"), gpus_by_type("gpu:3(IDX:0-2)"), gpus_by_type("(null)")
    ({'h200': 8}, {'': 3}, {})
    """
    found: dict[str, int] = {}
    for item in re.sub(r"\([^)]*\)", "", gres).split(","):
        name, *rest = item.split(":")
        if name == "gpu" and rest and rest[-1].isdecimal():
            kind = rest[0] if len(rest) > 1 else ""
            found[kind] = found.get(kind, 0) + int(rest[-1])
    return found


# Texts of a controller that is busy, restarting or unreachable for a moment: the call is worth repeating.
# Source: Slurm's slurm_errno.c (22.05, 24.11, 26.05) and the messages of slurm_protocol_api.c.
_TRANSIENT = re.compile(
    r"Unable to contact slurm controller|Socket timed out on send/recv|temporarily unable to accept job"
    r"|controller (?:is )?in standby mode|Connection refused|Connection timed out|Connection reset"
    r"|Zero Bytes were transmitted"
    r"|Resource temporarily unavailable|Transport endpoint is not connected|Unexpected message received"
    r"|Slurmctld.*(?:shutdown|busy)|Rate limit exceeded|Communication connection failure",
    re.IGNORECASE,
)
_NO_ACCOUNTING = re.compile(
    r"accounting storage is disabled|not running a supported accounting_storage"
    r"|Problem talking to the database"
    r"|slurmdbd.*(?:refused|not responding)|Unable to connect to.*database",
    re.IGNORECASE,
)
_UNKNOWN_JOB = re.compile(r"Invalid job id specified", re.IGNORECASE)


def is_transient(text: str) -> bool:
    return bool(_TRANSIENT.search(text))


def accounting_missing(text: str) -> bool:
    return bool(_NO_ACCOUNTING.search(text))


def job_unknown(text: str) -> bool:
    return bool(_UNKNOWN_JOB.search(text))


# (text of sbatch, what to do). Source: slurm_errno.c; the first that fits is used.
_REFUSALS: tuple[tuple[str, str], ...] = (
    (
        r"Invalid account",
        "set `slurm.account` in the spec or the site profile to one of `sacctmgr show assoc user=$USER`",
    ),
    (r"invalid partition", "set `slurm.partition` in the spec or the site profile to one of `sinfo -o %P`"),
    (r"Invalid qos", "set `slurm.qos` in the spec or the site profile to one of `sacctmgr show qos`"),
    (
        r"time limit is invalid|PartitionTimeLimit|requested time limit",
        "lower `resources.time`, see `sinfo -o '%P %l'`",
    ),
    (
        r"generic resource|gres",
        "compare `resources.gpus_per_node` and the profile's `slurm.gpus` with `sinfo -o %G`",
    ),
    (
        r"node count specification|More processors requested|PartitionNodeLimit",
        "lower `resources.nodes`, see `sinfo -s`",
    ),
    (
        r"node configuration is not available",
        "compare `resources` with `sinfo -N -o '%N %c %m %G'`: no node fits",
    ),
    (r"Memory specification", "lower `resources.memory`, see `sinfo -o '%m'`"),
    (r"job array|MaxArraySize", "make the sweep smaller, or set `limits.max_array` in the site profile"),
    (
        r"accounting/QOS policy|Limit",
        "wait, or see `sacctmgr show assoc user=$USER`: a limit of your account is reached",
    ),
    (
        r"option '--requeue' doesn't allow an argument|operation not supported on this system",
        "remove `slurm.requeue: expedite` from the profile, if it is there: this Slurm does not take it",
    ),
    (
        r"unrecognized option|Invalid .*option|invalid option",
        "remove the option from `slurm.extra_sbatch` of the spec or the profile",
    ),
    (r"not permitted|Access/permission denied", "ask the cluster's staff for access to the partition"),
    (
        r"configuration source|fetch_config",
        "set SLURM_CONF, or log in to a node that submits: no Slurm is configured here",
    ),
    (
        r"munge|credential|Protocol authentication",
        "ask the cluster's staff: munge is not running, or its key differs",
    ),
    (
        r"Unable to contact slurm controller",
        "check the controller by `scontrol ping`, then try again: it does not answer",
    ),
)


def refusal_fix(text: str, otherwise: str) -> str:
    """What to do about a complaint of a Slurm command, by its own text."""
    for pattern, fix in _REFUSALS:
        if re.search(pattern, text, re.IGNORECASE):
            return fix
    return otherwise
