"""Which node of a job a command enters."""

from __future__ import annotations

from pathlib import Path

import pytest

from jobspec.cli.in_job import has_node
from jobspec.finding import JobspecError
from jobspec.launchers import JobState, JobStatus
from jobspec.runs.paths import RunPaths

RUN = RunPaths(Path("/runs/x/20260101-000000-abcdef"))
JOB = JobStatus(JobState.RUNNING, nodes="n[1-3],gpu07")
ARRAY = JobStatus(JobState.RUNNING, nodes="", tasks={0: JobStatus(JobState.RUNNING, nodes="n4")})


@pytest.mark.parametrize(
    ("status", "node", "point"),
    [
        (JOB, "", None),
        (JOB, "n2", None),
        (JOB, "gpu07.cluster.example.org", None),
        (ARRAY, "n4", 0),
        (JobStatus(JobState.RUNNING, nodes=""), "n9", None),  # the scheduler does not say: it will
        (JobStatus(JobState.RUNNING, nodes="n[1-"), "n9", None),
    ],
)
def test_node_that_may_be_the_jobs_is_entered(status: JobStatus, node: str, point: int | None) -> None:
    has_node(RUN, status, node, point)


@pytest.mark.parametrize(
    ("status", "node", "point", "why", "fix"),
    [
        (JOB, "n9", None, "it runs on n[1-3],gpu07", "name one of its nodes"),
        (JOB, "gpu70", None, "it runs on n[1-3],gpu07", "did you mean `gpu07`?"),
        (ARRAY, "n5", 0, "it runs on n4", ""),
    ],
)
def test_node_of_another_job_is_refused(
    status: JobStatus, node: str, point: int | None, why: str, fix: str
) -> None:
    with pytest.raises(JobspecError) as caught:
        has_node(RUN, status, node, point)
    finding = caught.value.findings[0]
    assert (finding.rule, finding.why) == ("run.no-node", why)
    assert fix in finding.fix
