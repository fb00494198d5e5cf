"""How a run ends when something goes wrong: what Slurm records, and what the report says first."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from tests.slurm.lab import Lab, await_true, profile_text

pytestmark = [pytest.mark.slurm]

SLEEP = ["bash", "-c", "echo started; sleep 600"]


def text_of(lab: Lab, run: str) -> tuple[int, str]:
    done = lab.jobspec("report", run)
    assert "Traceback" not in done.stderr
    return done.returncode, done.stdout


@pytest.mark.parametrize("mode", ["srun", pytest.param("ray", marks=[pytest.mark.ray, pytest.mark.slow])])
def test_exit_code_of_the_driver_is_the_jobs(lab: Lab, mode: str) -> None:
    spec = lab.command_spec("seven", ["bash", "-c", "echo last words; exit 7"], nodes=2, mode=mode)
    done = lab.jobspec("run", spec)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "last words" in done.stdout
    run = lab.status("last")
    assert lab.await_end(run["job_id"]) == ("FAILED", "7:0")
    assert lab.results(run["run_dir"])["exit_code"] == 7
    assert "7" in text_of(lab, "last")[1]


def test_pipeline_cannot_hide_a_failure(lab: Lab) -> None:
    spec = lab.command_spec("tee", ["false | tee /dev/null"], train={"shell": True})
    assert lab.jobspec("run", spec).returncode == 1
    assert lab.await_end(lab.status("last")["job_id"]) == ("FAILED", "1:0")


@pytest.mark.parametrize("mode", ["srun", pytest.param("ray", marks=[pytest.mark.ray, pytest.mark.slow])])
def test_power_failure_of_a_worker_names_the_node(lab: Lab, mode: str) -> None:
    spec = lab.command_spec("power", SLEEP, nodes=2, mode=mode)
    run = lab.submit(spec)
    lab.await_phase(run["run_dir"], "driver")
    time.sleep(1)
    lab.cluster.kill("n2", silently=True)
    lab.await_out_of_running(run["job_id"])
    found = lab.results(run["run_dir"])
    assert found["outcome"] in ("failed", "blocked")
    # By the head's own look: Slurm's end of the job would be a cancelled run.
    assert (found["findings"][0]["rule"], found["findings"][0]["node"]) == ("node.lost", "n2")
    lab.cluster.revive("n2")
    # srun would wait for the dead node until Slurm notices: the batch script does not.
    assert lab.await_end(run["job_id"], timeout=120)[0] == "FAILED", "NODE_FAIL: Slurm was quicker"
    code, text = text_of(lab, run["run_id"])
    assert code in (1, 3)
    assert "n2" in "".join(text.splitlines()[:3]), text
    assert list((Path(run["run_dir"]) / "attempts/1/logs/n1").iterdir()), "logs of the living node"
    if mode == "ray":  # stopped and tidied up after the job's end
        assert "run-" not in lab.cluster.run("n1", ["ls", "/tmp/jobspec-root"]).stdout


def test_power_failure_of_a_worker_with_the_runs_read_only_on_the_head(lab: Lab) -> None:
    """The head's exit code is on its own disk then."""
    run = lab.submit(lab.command_spec("unwritten", SLEEP, nodes=2))
    lab.await_phase(run["run_dir"], "driver")
    time.sleep(1)
    with lab.read_only("n1", lab.runs):
        lab.cluster.kill("n2", silently=True)
        lab.await_out_of_running(run["job_id"])
    lab.cluster.revive("n2")
    assert lab.await_end(run["job_id"], timeout=120) == ("FAILED", "3:0")
    assert "n2" in "".join(text_of(lab, run["run_id"])[1].splitlines()[:3])
    assert "exit-" not in lab.cluster.run("n1", ["ls", "/tmp/jobspec-root"]).stdout


def test_power_failure_of_a_worker_before_it_joined_names_the_node(lab: Lab) -> None:
    """Its agent waits for the run's folder, which it does not see: only its kernel answers."""
    hide = ["mount", "-t", "tmpfs", "-o", "mode=1777", "tmpfs", str(lab.runs)]
    assert lab.cluster.run("n2", hide).returncode == 0
    run = lab.submit(lab.command_spec("early", SLEEP, nodes=2))
    lab.await_phase(run["run_dir"], "preflight")
    time.sleep(2)
    lab.cluster.kill("n2", silently=True)
    lab.await_out_of_running(run["job_id"])
    lab.cluster.revive("n2")
    assert lab.await_end(run["job_id"], timeout=120) == ("FAILED", "3:0"), "NODE_FAIL: Slurm was quicker"
    first = lab.results(run["run_dir"])["findings"][0]
    assert (first["rule"], first["node"]) == ("node.lost", "n2")
    code, text = text_of(lab, run["run_id"])
    assert code == 3
    assert "node `n2` left before its agent had connected" in "".join(text.splitlines()[:3])


def test_link_that_comes_back_after_5_seconds_costs_nothing(lab: Lab) -> None:
    run = lab.submit(lab.command_spec("flap", ["sleep", "14"], nodes=2))
    lab.await_phase(run["run_dir"], "driver")
    lab.cluster.link("n2", up=False)
    time.sleep(5)
    lab.cluster.link("n2", up=True)
    assert lab.await_end(run["job_id"]) == ("COMPLETED", "0:0")
    assert [found["rule"] for found in lab.results(run["run_dir"])["findings"]] == ["node.quiet"]
    code, text = text_of(lab, run["run_id"])
    assert code == 0
    assert "node `n2` sent nothing for more than 3 s, and came back" in text


AGAIN = """\
echo "attempt $JOBSPEC_ATTEMPT: $(cat $JOBSPEC_CHECKPOINT_DIR/step 2>/dev/null)"
if [ "$JOBSPEC_ATTEMPT" = 1 ]; then {save}; sleep 600; fi
"""


@pytest.mark.parametrize("progress", [True, False])
def test_power_failure_of_a_worker_leads_to_another_attempt_without_it(lab: Lab, progress: bool) -> None:
    """It goes on from what the first has saved; one that saved nothing would only fail in the same place."""
    save = "echo 7 >$JOBSPEC_CHECKPOINT_DIR/step" if progress else ":"
    spec = lab.command_spec(
        "again",
        ["bash", "-c", AGAIN.format(save=save)],
        nodes=2,
        launch={"requeue": {"max_attempts": 3}},
    )
    run = lab.submit(spec)
    lab.await_phase(run["run_dir"], "driver")
    time.sleep(1)
    lab.cluster.kill("n2", silently=True)
    lab.await_out_of_running(run["job_id"])
    state = lab.await_end(run["job_id"], timeout=150)
    lab.cluster.revive("n2")
    assert lab.results(run["run_dir"], 1)["findings"][0]["rule"] == "node.lost"
    if not progress:
        assert state == ("FAILED", "1:0")
        assert "the job is not requeued" in text_of(lab, run["run_id"])[1]
        return
    assert state == ("COMPLETED", "0:0")
    nodes = [row["name"] for row in lab.results(run["run_dir"], 2)["nodes"]]
    assert len(nodes) == 2
    assert "n2" not in nodes
    assert "attempt 2: 7" in lab.head_log(run["run_dir"], "command-0", 2)
    assert text_of(lab, run["run_id"])[0] == 0


def test_power_failure_of_a_worker_without_a_spare_node_waits_for_it(lab: Lab) -> None:
    """A job that excludes a node which it cannot do without would never start."""
    command = ["bash", "-c", AGAIN.format(save="echo 7 >$JOBSPEC_CHECKPOINT_DIR/step")]
    spec = lab.command_spec("whole", command, nodes=4, launch={"requeue": {"max_attempts": 2}})
    run = lab.submit(spec)
    lab.await_phase(run["run_dir"], "driver")
    time.sleep(1)
    lab.cluster.kill("n2", silently=True)
    lab.await_out_of_running(run["job_id"])
    lab.cluster.revive("n2")
    assert lab.await_end(run["job_id"], timeout=240) == ("COMPLETED", "0:0")
    assert "n2" in [row["name"] for row in lab.results(run["run_dir"], 2)["nodes"]]
    log = (Path(run["run_dir"]) / f"job-{run['job_id']}.log").read_text()
    assert "start the job without n2\njobspec: the next attempt may get n2 again" in log


@pytest.mark.parametrize("phase", [pytest.param("ray", marks=pytest.mark.nightly), "driver"])
@pytest.mark.ray
@pytest.mark.slow
def test_killed_agent_ends_the_run_at_once(lab: Lab, phase: str) -> None:
    """The worker's agent alone dies, by the OOM killer say: its connection ends, so nobody waits."""
    spec = lab.command_spec("agent", SLEEP, nodes=2, mode="ray")
    run = lab.submit(spec)
    lab.await_phase(run["run_dir"], phase)
    find = "ps -eo pid=,args= | awk '/runtime.pyz node/ && !/awk/ && !/srun/ {print $1}' | head -1"
    pid = lab.cluster.run("n2", ["sh", "-c", find]).stdout.strip()
    assert pid, lab.cluster.processes("n2")
    lab.cluster.run("n2", ["kill", "-KILL", pid])
    lab.await_end(run["job_id"], timeout=60)
    _, text = text_of(lab, run["run_id"])
    assert "n2" in text


def test_nothing_is_lost_with_the_batch_script_and_srun(lab: Lab) -> None:
    """srun's child gets half a second to do its worst before Slurm kills it: it must not end the agents."""
    write = "echo whole >$JOBSPEC_SCRATCH/saved.txt; touch $JOBSPEC_CHECKPOINT_DIR/half; sleep 600"
    spec = lab.command_spec("batch", ["bash", "-c", write], nodes=2, artifacts={"collect": ["saved.txt"]})
    run = lab.submit(spec)
    folder = Path(run["run_dir"])
    await_true((folder / "checkpoints/half").exists, "the save", 60)
    time.sleep(1)
    head = lab.slurm(
        "scontrol", "show", "hostnames", lab.slurm("squeue", "-h", "-j", run["job_id"], "-o", "%N").strip()
    ).split()[0]
    rows = [
        line.split(None, 1) for line in lab.cluster.run(head, ["ps", "-eo", "pid=,args="]).stdout.splitlines()
    ]
    slurm = [pid for pid, args in rows if args.startswith("slurmstepd") and ".batch]" in args]
    script = [pid for pid, args in rows if "slurm_script" in args]
    srun = [pid for pid, args in rows if args.split()[0].endswith("srun")]
    assert slurm and script and len(srun) == 2, rows
    lab.cluster.run(head, ["kill", "-STOP", *slurm])
    lab.cluster.run(head, ["kill", "-KILL", *script, srun[0]])
    time.sleep(0.5)
    lab.cluster.run(head, ["kill", "-CONT", *slurm])
    assert lab.await_end(run["job_id"]) == ("FAILED", "0:9")
    code, report = lab.report(run["run_id"])
    assert code == 3
    assert report["reason"] == "the batch script was killed (SIGKILL), so Slurm ended the job"
    listed = json.loads((folder / "artifacts/manifest.json").read_text())["files"]
    assert {row["path"] for row in listed} == {"saved.txt", "n2/saved.txt"}
    rules = {finding["rule"] for finding in lab.results(run["run_dir"])["findings"]}
    assert {"run.signal", "checkpoint.in-flight"} <= rules


def test_invisible_shared_folder_is_blocked_with_the_node(lab: Lab) -> None:
    """n2 sees an empty folder where the runs should be, as after a failed mount."""
    hide = ["mount", "-t", "tmpfs", "-o", "mode=1777", "tmpfs", str(lab.runs)]
    assert lab.cluster.run("n2", hide).returncode == 0
    try:
        done = lab.jobspec("run", lab.command_spec("unseen", ["true"], nodes=2))
        assert done.returncode == 3, done.stdout + done.stderr
        assert "n2" in done.stdout
    finally:
        lab.cluster.run("n2", ["umount", str(lab.runs)])


def test_out_of_memory(lab: Lab) -> None:
    if len(lab.cluster.cgroups()) == 1:
        pytest.skip("no memory controller of cgroup v1: this Slurm cannot limit memory here")
    hog = "b = bytearray(); [b.extend(bytes(1 << 24)) for _ in range(200)]"
    spec = lab.command_spec("hog", ["python3", "-c", hog], resources={"memory": "1G"})
    done = lab.jobspec("run", spec)
    assert done.returncode in (1, 3), done.stdout + done.stderr
    status = lab.status("last")
    assert status["state"] in ("OUT_OF_MEMORY", "FAILED")
    assert lab.await_end(status["job_id"])[0] == status["state"]
    assert "memory" in text_of(lab, "last")[1]


SAVE = "trap 'sleep 1; echo saved >$JOBSPEC_SCRATCH/saved.txt; exit 9' TERM; while :; do sleep 0.1; done"
TERM, INT = ("--batch", "--signal=TERM"), ("--batch", "--signal=INT")
FORMS = {
    "batch": ([TERM], "SIGTERM reached the batch script"),
    "batch-int": ([INT], "SIGINT reached the batch script"),
    "full": ([("--full", "--signal=TERM")], "SIGTERM reached the batch script"),
    "twice": ([TERM, TERM], "SIGTERM reached the batch script"),
    "step": ([("--signal=TERM",)], "SIGTERM reached the run's agent on"),
}


@pytest.mark.parametrize("form", FORMS)
def test_signal_of_somebody_saves_and_collects(lab: Lab, form: str) -> None:
    calls, said = FORMS[form]
    spec = lab.command_spec(
        "told",
        ["bash", "-c", SAVE],
        nodes=2,
        artifacts={"collect": ["saved.txt"]},
    )
    run = lab.submit(spec)
    lab.await_phase(run["run_dir"], "driver")
    time.sleep(1)
    for words in calls:
        lab.slurm("scancel", *words, run["job_id"])
    lab.await_end(run["job_id"])
    found, (rows, artifacts) = lab.results(run["run_dir"]), _collected(run["run_dir"])
    assert found["outcome"] == "cancelled"
    assert rows == artifacts == ["n2/saved.txt", "saved.txt"]
    code, text = text_of(lab, run["run_id"])
    assert code == 3, text
    assert said in text


def _collected(run_dir: str) -> tuple[list[str], list[str]]:
    """What the manifest lists, and what is there."""
    folder = Path(run_dir) / "artifacts"
    rows = json.loads((folder / "manifest.json").read_text())["files"]
    there = [str(path.relative_to(folder)) for path in folder.rglob("saved.txt")]
    return sorted(row["path"] for row in rows if row["path"].endswith("saved.txt")), sorted(there)


def test_a_sites_own_warning_signal(lab: Lab) -> None:
    """`--signal=B:TERM@45` of the site's profile or the user: the step saves as after any signal."""
    spec = lab.command_spec(
        "warned",
        ["bash", "-c", SAVE],
        resources={"time": "00:01:00"},
        launch={"requeue": {"grace": 0}},
        artifacts={"collect": ["saved.txt"]},
    )
    site = profile_text(lab.cluster, "warns").replace(
        "gpus: none", 'extra_sbatch: ["--signal=B:TERM@45"], gpus: none'
    )
    (lab.clusters / "warns.yaml").write_text(site)
    run = lab.submit(spec, cluster="warns")
    lab.await_end(run["job_id"], timeout=120)
    assert _collected(run["run_dir"]) == (["saved.txt"], ["saved.txt"])
    assert "SIGTERM reached the batch script" in text_of(lab, run["run_id"])[1]


def test_time_limit(lab: Lab) -> None:
    """The warning comes before the limit, so the run ends by itself and its logs are collected."""
    spec = lab.command_spec("late", SLEEP, resources={"time": "00:01:00"}, launch={"requeue": {"grace": 45}})
    done = lab.jobspec("run", spec, timeout=200)
    assert done.returncode in (1, 3), done.stdout + done.stderr
    run = lab.status("last")
    assert run["state"] in ("TIMEOUT", "FAILED", "CANCELLED")
    assert lab.results(run["run_dir"])["outcome"] == "timeout"
    assert "time limit" in text_of(lab, "last")[1].lower()


def test_node_declared_down(lab: Lab) -> None:
    run = lab.submit(lab.command_spec("down", SLEEP, nodes=2))
    lab.await_phase(run["run_dir"], "driver")
    lab.slurm("scontrol", "update", "nodename=n2", "state=down", "reason=test")
    try:
        assert lab.await_end(run["job_id"], timeout=60)[0] == "NODE_FAIL"
        assert lab.status(run["run_id"])["state"] == "NODE_FAIL"
        code, text = text_of(lab, run["run_id"])
        assert code == 3, text
        assert "NODE_FAIL" in text or "node" in text.lower()
    finally:
        lab.slurm("scontrol", "update", "nodename=n2", "state=idle")


def test_preempted_run_is_reported_and_resumed(lab: Lab) -> None:
    """A job of higher priority takes the nodes; the run goes back into the queue and ends well later."""
    script = 'if [ "$JOBSPEC_ATTEMPT" = 1 ]; then sleep 600; fi; echo attempt $JOBSPEC_ATTEMPT'
    spec = lab.command_spec(
        "preempted",
        ["bash", "-c", script],
        nodes=4,
        resources={"exclusive": True},
        launch={"requeue": {"max_attempts": 2}},
    )
    run = lab.submit(spec, cluster="lab-low")
    lab.await_phase(run["run_dir"], "driver")
    with lab.occupied(partition="high"):
        await_true(lambda: lab.status(run["run_id"])["state"] != "RUNNING", "the run to give way", 60)
        states = lab.slurm("sacct", "-X", "-n", "-P", "-D", "-j", run["job_id"], "-o", "State").split()
        assert "PREEMPTED" in states
    assert lab.await_end(run["job_id"], timeout=120)[0] == "COMPLETED"
    status = lab.status(run["run_id"])
    assert (status["state"], status["scheduler"]["restarts"]) == ("COMPLETED", 1)
    assert lab.results(run["run_dir"], attempt=2)["outcome"] == "ok"
    assert text_of(lab, run["run_id"])[0] == 0


def test_requeued_before_the_limit(lab: Lab) -> None:
    """USR1 before the limit ends attempt 1, which asks for another; attempt 2 finishes."""
    script = 'if [ "$JOBSPEC_ATTEMPT" = 1 ]; then sleep 600; fi; echo attempt $JOBSPEC_ATTEMPT'
    spec = lab.command_spec(
        "requeued",
        ["bash", "-c", script],
        resources={"time": "00:02:00"},  # USR1 may come a minute too early (man sbatch)
        launch={"requeue": {"max_attempts": 2, "grace": 45}},
    )
    run = lab.submit(spec)
    assert lab.await_end(run["job_id"], timeout=300)[0] == "COMPLETED"
    states = lab.slurm("sacct", "-X", "-n", "-P", "-D", "-j", run["job_id"], "-o", "State").split()
    assert states == ["REQUEUED", "COMPLETED"]
    assert lab.results(run["run_dir"], 1)["outcome"] == "timeout"
    assert lab.results(run["run_dir"], 2)["outcome"] == "ok"
    assert lab.status(run["run_id"])["scheduler"]["restarts"] == 1
    assert text_of(lab, run["run_id"])[0] == 0
