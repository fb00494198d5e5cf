"""Runs in an allocation that is there: a held run, a job of one's own, the shell of `salloc`."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.kits.programs_kit import skip_or_fail
from tests.slurm import cluster as harness
from tests.slurm.cluster_files import Options
from tests.slurm.conftest import REQUIRED, add_gpus
from tests.slurm.lab import Lab, await_true, end, profile_text
from tests.slurm.machine import missing

pytestmark = pytest.mark.slurm

# Ray code of a driver: what an earlier run in the same allocation has left, then something to be left behind.
FRESH = """\
import os, ray
ray.init()
print("actors", ray.util.list_named_actors(all_namespaces=True), "nodes", len(ray.nodes()))
left = ray.remote(type("Left", (), {"who": lambda self: os.getpid()}))
actor = left.options(name="left", namespace="all", lifetime="detached").remote()
print("left", ray.get(actor.who.remote()) > 0)
"""


@pytest.fixture(scope="module")
def bare() -> Iterator[Lab]:
    """Two nodes with two GPUs each, without accounting; the profile `gres` asks Slurm for GPUs."""
    if reason := missing():
        skip_or_fail(reason, REQUIRED)
    found = harness.Cluster(f"here-{os.getpid()}", Options(nodes=2, accounting="none", gpus=2), owned=True)
    found.start()
    try:
        add_gpus(found)
        lab = Lab(found)
        lab.prepare()
        text = profile_text(found, "gres").replace("gpus: none", "gpus: gres")
        (lab.clusters / "gres.yaml").write_text(text)
        yield lab
    finally:
        found.stop()


@pytest.fixture
def lab(bare: Lab) -> Iterator[Lab]:
    yield bare
    bare.settle()


def await_hold(lab: Lab, run_dir: str) -> None:
    events = lambda: lab.events(run_dir)  # noqa: E731
    await_true(lambda: any((e.get("data") or {}).get("what") == "hold" for e in events()), "hold", 120)


@contextmanager
def salloc(lab: Lab, *options: str, user: str = "root") -> Iterator[str]:
    """The number of a job without a script."""
    done = lab.cluster.run("ctl", ["salloc", "--no-shell", *options], user=user, timeout=60)
    assert done.returncode == 0, done.stderr
    job = done.stderr.split("Granted job allocation ")[1].split()[0]
    try:
        yield job
    finally:
        lab.slurm("scancel", job)


def refused(lab: Lab, *argv: object, user: str = "root", cluster: str = "gres") -> str:
    done = lab.jobspec("run", *argv, user=user, cluster=cluster)
    assert done.returncode == 2, done.stdout + done.stderr
    assert "error[launch.here]" in done.stderr
    return done.stderr


def test_a_held_run_takes_one_run_after_another_each_with_a_ray_of_its_own(lab: Lab) -> None:
    go = lab.shared / "go"
    wait = ["bash", "-c", f"until [ -e {go} ]; do sleep 0.2; done"]
    held = lab.command_spec("held", wait, mode="ray", launch={"hold": True}, resources={"gpus_per_node": 1})
    made = lab.submit(held, cluster="gres")
    lab.await_phase(made["run_dir"], "driver")
    few = {"time": "00:06:00"}
    guest = lab.command_spec("guest", [str(lab.python), "-c", FRESH], mode="ray", resources=few)
    works = f"run `{made['run_id']}`, the job {made['job_id']}, is not held"
    assert works in refused(lab, guest, "--here", made["run_id"])
    go.touch()
    await_hold(lab, made["run_dir"])
    for ref in (made["run_id"], made["job_id"]):
        done = lab.jobspec("run", guest, "--here", ref, "--json", cluster="gres")
        assert done.returncode == 0, done.stdout + done.stderr
        assert json.loads(done.stdout)["result"] == "Pass"
    runs = sorted((lab.runs / "guest").iterdir())
    assert len(runs) == 2
    for run in runs:
        log = lab.head_log(str(run), "command")
        assert "actors [] nodes 1" in log
        assert "left True" in log
        launch = json.loads((run / "launch.json").read_text())
        assert (launch["launcher"], launch["allocation"]) == ("local", made["job_id"])
        assert [node["gpus"] for node in lab.results(str(run))["nodes"]] == [1]  # the allocation's
    assert lab.slurm("squeue", "-h", "-o", "%A").split() == [made["job_id"]]


def test_the_signal_that_ends_a_held_run_reaches_all_nodes_and_is_no_fault(lab: Lab) -> None:
    made = lab.submit(lab.command_spec("both", ["true"], nodes=2, launch={"hold": True}))
    await_hold(lab, made["run_dir"])
    guest = lab.command_spec("on-both", ["true"], nodes=2, resources={"time": "00:06:00"})
    assert lab.jobspec("run", guest, "--here", made["job_id"]).returncode == 0
    late = lab.command_spec("late-guest", ["sleep", "300"], resources={"time": "00:06:00"})
    inside = lab.popen("run", late, "--here", made["job_id"])
    await_true(lambda: bool(list((lab.runs / "late-guest").glob("*/attempts/1/logs"))), "a guest", 60)
    lab.jobspec("cancel", made["run_id"])
    await_true(lambda: not lab.slurm("squeue", "-h"), "an empty queue", 60)
    inside.communicate(timeout=60)
    assert inside.returncode == 3  # Blocked: it ends with the allocation
    assert lab.results(made["run_dir"])["outcome"] == "ok"
    assert lab.report(made["run_dir"])[1]["result"] == "Pass"


def test_a_second_run_at_once_is_refused_and_the_time_limit_holds(lab: Lab) -> None:
    with salloc(lab, "-N1", "-n1", "-c4", "-t30") as job:
        first = lab.command_spec("first", ["sleep", "300"])
        running = lab.popen("run", first, "--here", job)
        await_true(lambda: bool(list((lab.runs / "first").glob("*/attempts/1/logs"))), "the first run", 60)
        run = next((lab.runs / "first").iterdir())
        said = refused(lab, lab.command_spec("second", ["true"]), "--here", job)
        assert f"run `{run.name}` is in the allocation {job}" in said
        # What is in a run's container is entered through the job, whose number the run does not have.
        inside = lab.jobspec("exec", "first", "--", "printenv", "SLURM_JOB_ID")
        assert inside.stdout.strip() == job, inside.stderr
        assert "cancelling" in end(running)
        assert lab.results(str(run))["outcome"] == "cancelled"
        requeue = {"max_attempts": 3, "grace": 55}
        late = lab.command_spec(
            "late", ["sleep", "300"], resources={"time": "00:01:00"}, launch={"requeue": requeue}
        )
        done = lab.jobspec("run", late, "--here", job)
        assert "`launch.requeue.max_attempts` does nothing in the allocation" in done.stderr
        assert lab.results(str(next((lab.runs / "late").iterdir())))["outcome"] == "timeout"
        assert done.returncode in (1, 3)


def test_what_does_not_fit_is_named(lab: Lab) -> None:
    spec = lab.command_spec("fits", ["true"])
    with salloc(lab, "-N1", "-n1", "-c4", "--gres=gpu:1", "-t30") as job:
        for change, said in (
            ("resources.nodes=2", f"the run asks for 2 nodes, the allocation {job} has 1"),
            ("resources.gpus_per_node=2", f"the run asks for 2 GPUs per node, the allocation {job} has 1"),
            ("resources.cpus_per_node=8", f"the run asks for 8 CPUs per node, the allocation {job} has 4"),
            ("resources.time=02:00:00", f"the run asks for 0-02:00:00, the allocation {job} ends in 29 min"),
        ):
            text = refused(lab, spec, "--here", job, "--set", change)
            assert said in text
            assert change.partition("=")[0] in text
        nice = ["--set", "slurm.nice=7", "--set", "slurm.partition=low"]
        done = lab.jobspec("run", "--here", job, spec, *nice, cluster="gres")
        assert done.returncode == 0, done.stdout + done.stderr
        assert "`slurm.nice` does nothing in the allocation" in done.stderr
        assert "`slurm.partition` does nothing in the allocation" in done.stderr
        step = ["srun", f"--jobid={job}", "--overlap", "jobspec", "run", str(spec), "--here"]
        inside = lab.cluster.run("ctl", step, env={"JOBSPEC_CLUSTER": "gres"})
        assert f"this is a step of the job {job}" in inside.stderr
        assert f"the job {job} is of user root" in refused(lab, spec, "--here", job, user="alice")
    await_true(lambda: not lab.slurm("squeue", "-h"), "an empty queue", 30)
    assert f"the job {job} is CANCELLED" in refused(lab, spec, "--here", job)
    assert "knows no job 99999" in refused(lab, spec, "--here", "99999")
    with salloc(lab, "-N2", "--exclusive"):
        waits = lab.submit(spec, cluster="gres")
        assert f"the job {waits['job_id']} is PENDING" in refused(lab, spec, "--here", waits["run_id"])
        assert "is on `gres`, the spec is for `lab`" in refused(
            lab, spec, "--here", waits["run_id"], cluster="lab"
        )


def test_an_idle_held_run_ends_by_itself(lab: Lab) -> None:
    spec = lab.command_spec("idle", ["true"], launch={"hold": True, "hold_idle": "8s"})
    made = lab.submit(spec)
    await_hold(lab, made["run_dir"])
    used = lab.jobspec("exec", made["run_id"], "--", "sleep", "14")
    assert used.returncode == 0, used.stderr
    assert "RUNNING" in lab.slurm("squeue", "-h", "-j", made["job_id"], "-o", "%T")
    lab.await_state(made["run_id"], "COMPLETED", timeout=60)
    code, report = lab.report(made["run_id"])
    assert (code, report["result"]) == (0, "Pass")
    assert "the held run was ended: nobody used it for 8 s" in [row["what"] for row in report["findings"]]
    assert not Path(made["run_dir"], "attempts/1/steps.new").exists()


def test_an_idle_run_that_is_held_in_a_job_of_its_users_ends_and_leaves_that(lab: Lab) -> None:
    launch = {"hold": True, "hold_idle": "8s"}
    spec = lab.command_spec("idle-guest", ["true"], launch=launch, resources={"time": "00:06:00"})
    with salloc(lab, "-N1", "-n1", "-c4", "-t30") as job:
        done = lab.jobspec("run", spec, "--here", job)
        assert done.returncode == 0, done.stdout + done.stderr
        assert "does nothing" not in done.stderr
        assert "RUNNING" in lab.slurm("squeue", "-h", "-j", job, "-o", "%T")


# A driver that tells which Ray it has, on how many nodes, and where its tasks write.
KEPT = """\
import os, sys, ray
ray.init()
print("session", ray._private.worker._global_node.session_name, "nodes", len(ray.nodes()))
where = ray.remote(lambda: os.environ["JOBSPEC_RUN_DIR"])
print("tasks of", ray.get(where.remote()))
if "leak" in sys.argv:
    left = ray.remote(type("Left", (), {"who": lambda self: os.getpid()}))
    ray.get(left.options(name="left", lifetime="detached").remote().who.remote())
"""


def test_the_ray_of_a_held_run_is_kept_while_every_run_leaves_it_clean(lab: Lab) -> None:
    long, few = {"time": "00:20:00", "gpus_per_node": 0}, {"time": "00:06:00", "gpus_per_node": 0}
    held = lab.command_spec("keeper", ["true"], nodes=2, mode="ray", launch={"hold": True}, resources=long)
    made = lab.submit(held)
    await_hold(lab, made["run_dir"])
    launch = {"kept_ray": True}
    for name, words in (("clean", ()), ("leaks", ("leak",)), ("after", ())):
        argv = [str(lab.python), "-c", KEPT, *words]
        guest = lab.command_spec(name, argv, nodes=2, mode="ray", launch=launch, resources=few)
        done = lab.jobspec("run", guest, "--here", made["run_id"], "--json")
        assert done.returncode == 0, done.stdout + done.stderr
    runs = {name: str(next((lab.runs / name).iterdir())) for name in ("clean", "leaks", "after")}
    session = {
        name: lab.head_log(run, "command").split("session ")[1].split()[0] for name, run in runs.items()
    }
    assert session["clean"] == session["leaks"] != session["after"]
    for run in runs.values():
        assert "nodes 2" in lab.head_log(run, "command")
        assert f"tasks of {run}" in lab.head_log(run, "command")
    told = {name: lab.report(run)[1] for name, run in runs.items()}
    ray = {name: report["deliverables"]["Ray cluster"] for name, report in told.items()}
    kept = f"kept from run `keeper/{made['run_id']}`, 2 nodes, proved clean"
    assert ray["clean"]["reason"] == ray["leaks"]["reason"] == kept
    assert "no driver, actor, placement group or task" in ray["clean"]["evidence"][0]["text"]
    assert "kept" not in ray["after"]["reason"]
    why = {
        name: [f["why"] for f in report["findings"] if f["rule"] == "ray.not-kept"]
        for name, report in told.items()
    }
    assert why["clean"] == []
    assert "actor `left` is alive" in why["leaks"][0]
    assert f"run `leaks/{Path(runs['leaks']).name}` did not leave it clean" in why["after"][0]
    lab.jobspec("cancel", made["run_id"])
    await_true(lambda: not lab.slurm("squeue", "-h"), "an empty queue", 60)
    assert lab.report(made["run_dir"])[1]["result"] == "Pass"
