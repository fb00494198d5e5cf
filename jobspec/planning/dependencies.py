"""What a run waits for: `slurm.dependency` on runs becomes sbatch's, on the numbers of their jobs."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from jobspec.finding import Finding, JobspecError, error
from jobspec.runs.paths import RUN_ID, RunPaths
from jobspec.runs.records import read_launch, read_scheduler
from jobspec.runs.store import RunStore, known_folders
from jobspec.spec.sbatch import Dependency, read_dependency

JOB = re.compile(r"[0-9]{1,10}(_[0-9]+)?(\+[0-9]+)?")


def on_jobs(
    texts: Sequence[str], runs: str, cluster: str, env: Mapping[str, str]
) -> tuple[tuple[str, ...], list[Finding]]:
    """The conditions on jobs, and an error for each that cannot hold. One that a run has met is left out."""
    store = RunStore(Path(runs), *known_folders(env))
    wanted: list[str] = []
    findings: list[Finding] = []
    for index, text in enumerate(texts):
        path = f"slurm.dependency[{index}]"
        try:
            one = read_dependency(text)
            found = one if not one.ref or JOB.fullmatch(one.ref) else _on_job(one, store, cluster)
        except ValueError as problem:  # of a spec whose own error is allowed, or told with those of its rest
            what, _, fix = str(problem).partition("\n")
            findings.append(error("resources.dependency", what, "", fix, path=path))
        except JobspecError as problem:
            findings += [
                error("resources.dependency", item.what, item.why, item.fix, path=path)
                for item in problem.findings
            ]
        else:
            wanted += [str(found)] if found else []
    return tuple(wanted), findings


def _on_job(one: Dependency, store: RunStore, cluster: str) -> Dependency | None:
    """Raises: JobspecError where the run is not known, was never started, or has ended the other way."""
    ref, plus, minutes = one.ref.partition("+")
    if not RUN_ID.match(ref):
        raise _no_id(ref, store)
    launch = read_launch(run := store.find(ref))
    if launch is None or not launch.submitted:
        fix = f"submit it first: `jobspec submit {run.root}`"
        raise _refuse(f"run `{ref}` has no job to wait for", "it was rendered and never started", fix)
    if launch.cluster != cluster or launch.launcher != "slurm":
        what = f"run `{ref}` is on `{launch.cluster}`, and this one goes to `{cluster}`"
        raise _refuse(what, "one Slurm knows nothing of another's jobs", "remove it")
    ended = _ended(run)
    if not ended:
        return Dependency(one.kind, f"{launch.job_id}{plus}{minutes}")
    if one.kind in ("afterok", "aftercorr", "afternotok") and (ended == "COMPLETED") == (
        one.kind == "afternotok"
    ):
        why = "the job would wait in the queue for ever"
        raise _refuse(f"run `{ref}` has ended {ended}, and `{one.kind}` waits", why, "remove it")
    return None


def _ended(run: RunPaths) -> str:
    """The recorded final state; empty where nobody has asked since the end: Slurm knows then."""
    record = read_scheduler(run)
    return str(record.get("state") or "") if record else ""


def _no_id(ref: str, store: RunStore) -> JobspecError:
    named = store.named(ref)
    fix = f"did you mean `{named[0].run_id}`, its newest run?" if named else "`jobspec status` lists the ids"
    return _refuse(f"`{ref}` is no run's whole id and no job's number", "", fix)


def _refuse(what: str, why: str, fix: str) -> JobspecError:
    return JobspecError(error("resources.dependency", what, why, fix))
