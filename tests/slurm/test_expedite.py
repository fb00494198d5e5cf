"""Requeueing at once (`slurm.requeue: expedite`) on a Slurm that has it: 25.11 or newer, not Debian 12's."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.slurm import cluster as harness
from tests.slurm.cluster_files import SICK, Options
from tests.slurm.lab import Lab, await_true, profile_text
from tests.slurm.machine import missing, release_wanted, slurm_of

pytestmark = pytest.mark.slurm

RELEASE = release_wanted() or "sid"
SITE, BROKEN_SITE = "lab-expedite", "lab-broken"
AGAIN = {"requeue": {"max_attempts": 2}}
STAYS = ["bash", "-c", 'if [ "$JOBSPEC_ATTEMPT" = 1 ]; then sleep 600; fi; echo "attempt $JOBSPEC_ATTEMPT"']
ECC = "RuntimeError: CUDA error: uncorrectable ECC error encountered"
BROKEN = f"""\
if [ "$JOBSPEC_ATTEMPT" = 1 ]; then
  if [ "$(uname -n)" = n2 ]; then sleep 1; echo "{ECC}" >&2; exit 1; fi
  sleep 600
fi
"""


@pytest.fixture(scope="module")
def expediting() -> Iterator[Lab]:
    """Three nodes of a Slurm that takes `--requeue=expedite`."""
    if reason := missing(release=RELEASE):
        pytest.skip(reason)
    found = harness.Cluster(
        f"expedite-{os.getpid()}", Options(nodes=3, release=RELEASE, expedite=True), owned=True
    )
    found.start()
    try:
        lab = Lab(found)
        version = lab.slurm("sinfo", "--version").split()[1]
        if tuple(map(int, version.split(".")[:2])) < (25, 11):
            pytest.skip(f"Slurm {version} of {slurm_of(RELEASE)} has no expedited requeue")
        lab.prepare()
        for site, more in ((SITE, ""), (BROKEN_SITE, "hooks: {setup: ['false']}\n")):
            text = profile_text(found, site).replace("gpus: none", "gpus: none, requeue: expedite")
            (lab.clusters / f"{site}.yaml").write_text(text + more)
        yield lab
    finally:
        found.stop()


@pytest.fixture
def lab(expediting: Lab) -> Iterator[Lab]:
    yield expediting
    expediting.settle()


def states(lab: Lab, job: str) -> list[str]:
    """Of each attempt, as accounting has it."""
    return lab.slurm("sacct", "-X", "-n", "-P", "-D", "-j", job, "-o", "State").split()


def test_detect_proposes_it(lab: Lab) -> None:
    done = lab.jobspec("cluster", "detect")
    assert done.returncode == 0, done.stderr
    assert "requeue: expedite" in done.stdout


def test_a_run_whose_head_lost_its_power_waits_before_all_others(lab: Lab) -> None:
    """Nobody but Slurm can put it back: the batch script was on that node."""
    run = lab.submit(lab.command_spec("powerless", STAYS, nodes=3, launch=AGAIN), cluster=SITE)
    assert "#SBATCH --requeue=expedite\n" in (Path(run["run_dir"]) / "job.sbatch").read_text()
    lab.await_phase(run["run_dir"], "driver")
    lab.cluster.kill("n1", silently=True)
    other = lab.slurm("sbatch", "--parsable", "-N3", "-o", "/dev/null", "--wrap", "true").strip()
    status = lab.await_state(run["run_id"], "REQUEUED")
    assert status["scheduler"]["raw"] == "EXPEDITING"
    lab.cluster.revive("n1")
    assert lab.await_end(run["job_id"], timeout=180) == ("COMPLETED", "0:0")
    assert states(lab, run["job_id"]) == ["NODE_FAIL", "COMPLETED"]
    assert lab.results(run["run_dir"], 2)["outcome"] == "ok"
    assert lab.status(run["run_id"])["scheduler"]["restarts"] == 1
    assert lab.report(run["run_id"])[1]["result"] == "Pass"
    lab.await_end(other)
    begin = "sacct", "-X", "-n", "-P", "-j", f"{run['job_id']},{other}", "-o", "JobID,Start"
    started = dict(line.split("|") for line in lab.slurm(*begin).splitlines())
    assert started[run["job_id"]] < started[other]


def test_a_node_that_is_declared_down_leads_to_another_attempt(lab: Lab) -> None:
    """On others or on the same: a node of the test cluster is back as soon as its slurmd says so."""
    run = lab.submit(lab.command_spec("down", STAYS, nodes=2, launch=AGAIN), cluster=SITE)
    lab.await_phase(run["run_dir"], "driver")
    lab.slurm("scontrol", "update", "nodename=n2", "state=down", "reason=test")
    try:
        assert lab.await_end(run["job_id"]) == ("COMPLETED", "0:0")
    finally:
        lab.slurm("scontrol", "update", "nodename=n2", "state=idle")
    assert states(lab, run["job_id"]) == ["NODE_FAIL", "COMPLETED"]
    assert lab.results(run["run_dir"], 2)["outcome"] == "ok"


def test_a_user_who_is_nobody_special_leaves_out_a_broken_node(lab: Lab) -> None:
    """Slurm takes no change of a job from its user while it expedites it, but after `scontrol requeue`."""
    spec = lab.command_spec("broken", ["bash", "-c", BROKEN], nodes=2, launch=AGAIN)
    run = lab.submit(spec, cluster=SITE, user="alice")
    assert lab.await_end(run["job_id"]) == ("COMPLETED", "0:0")
    assert states(lab, run["job_id"]) == ["REQUEUED", "COMPLETED"]
    assert [row["name"] for row in lab.results(run["run_dir"], 2)["nodes"]] == ["n1", "n3"]
    lab.jobspec("nodes", "remove", "n2", user="alice")


def test_slurm_holds_a_job_that_failed_and_gives_nothing_up(lab: Lab) -> None:
    """Why the batch script does give up."""
    job = lab.slurm(
        "sbatch", "--parsable", "--requeue=expedite", "-o", "/dev/null", "--wrap", "false"
    ).strip()
    await_true(lambda: "REQUEUE_HOLD" in lab.slurm("squeue", "-h", "-j", job, "-o", "%T"), "the hold", 60)
    lab.slurm("scancel", job)


@pytest.mark.parametrize(("site", "code"), [(SITE, "7:0"), (BROKEN_SITE, "1:0")])
def test_a_failed_end_leaves_no_job_in_the_queue(lab: Lab, site: str, code: str) -> None:
    """The driver's, and that of a line of `hooks.setup`."""
    spec = lab.command_spec("seven", ["bash", "-c", "exit 7"], launch=AGAIN)
    run = lab.submit(spec, cluster=site, user="alice")
    assert lab.await_end(run["job_id"]) == ("FAILED", code)


def test_a_failed_end_on_a_node_whose_epilog_fails_is_the_end_too(lab: Lab) -> None:
    """The exit code is out before the Epilog runs: Slurm would else try again what fails by itself."""
    lab.cluster.run("n1", ["touch", SICK])
    try:
        spec = lab.command_spec("sick", ["bash", "-c", "exit 7"], launch=AGAIN)
        run = lab.submit(spec, cluster=SITE, user="alice")
        assert lab.await_end(run["job_id"]) == ("FAILED", "7:0")
        assert "drain" in lab.slurm("sinfo", "-h", "-n", "n1", "-o", "%T")
    finally:
        lab.cluster.run("n1", ["rm", SICK])
        lab.slurm("scontrol", "update", "nodename=n1", "state=resume")


def test_a_cancelled_run_is_not_put_back(lab: Lab) -> None:
    run = lab.submit(lab.command_spec("ended", STAYS, launch=AGAIN), cluster=SITE, user="alice")
    lab.await_phase(run["run_dir"], "driver")
    assert lab.jobspec("cancel", run["run_id"], user="alice").returncode == 0
    assert lab.await_end(run["job_id"])[0] == "CANCELLED"


def test_a_site_that_has_not_switched_it_on_says_so(lab: Lab) -> None:
    conf = lab.cluster.lab / "etc/slurm/slurm.conf"
    whole = conf.read_text()
    conf.write_text(re.sub(r"SlurmctldParameters=.*\n", "", whole))
    lab.slurm("scontrol", "reconfigure")
    try:
        spec = lab.command_spec("refused", ["true"], launch=AGAIN)
        await_true(
            lambda: (
                "(null)" in lab.slurm("scontrol", "show", "config").partition("SlurmctldParameters")[2][:40]
            ),
            "it",
            30,
        )
        done = lab.jobspec("submit", spec, cluster=SITE)
        assert done.returncode == 2, done.stdout
        assert "remove `slurm.requeue: expedite` from the profile" in done.stderr
    finally:
        conf.write_text(whole)
        lab.slurm("scontrol", "reconfigure")
