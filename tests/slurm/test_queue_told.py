"""Slurm's settings of one run, kinds of GPUs, and what the queue says beforehand, on a real Slurm."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.kits.programs_kit import skip_or_fail
from tests.slurm import cluster as harness
from tests.slurm.cluster_files import Options
from tests.slurm.conftest import REQUIRED, add_gpus
from tests.slurm.lab import Lab, await_true, profile_text
from tests.slurm.machine import missing

pytestmark = pytest.mark.slurm


@pytest.fixture(scope="module")
def typed() -> Iterator[Lab]:
    """Two nodes, without accounting: two H200 by their GRES type on n1, two A100 on n2."""
    if reason := missing():
        skip_or_fail(reason, REQUIRED)
    options = Options(nodes=2, accounting="none", gpus=2, gpu_types=("h200", "a100"))
    found = harness.Cluster(f"typed-{os.getpid()}", options, owned=True)
    found.start()
    try:
        add_gpus(found)
        lab = Lab(found)
        lab.prepare()
        for way in ("gres", "gpus-per-node"):
            text = profile_text(found, way).replace(
                "gpus: none", f"gpus: {way}, gpu_types: {{h200: {{gres: h200}}, a100: {{gres: a100}}}}"
            )
            text = text.replace("node: {", "node: {gpus: 2, ")
            (lab.clusters / f"{way}.yaml").write_text(text)
            boxed = text.replace(f"name: {way}", f"name: {way}-boxed").replace(
                "runtime: none", "runtime: bubblewrap"
            )
            (lab.clusters / f"{way}-boxed.yaml").write_text(boxed)
        yield lab
    finally:
        found.stop()


@pytest.fixture
def lab(typed: Lab) -> Iterator[Lab]:
    yield typed
    typed.settle()


def job(lab: Lab, job_id: str) -> dict[str, str]:
    return dict(re.findall(r"(\w+)=(\S*)", lab.slurm("scontrol", "show", "job", "-o", job_id)))


def written(run_dir: str, node: str) -> str:
    """What the command's processes wrote on a node."""
    logs = sorted(Path(run_dir).glob(f"attempts/1/logs/{node}/command*.log"))
    return "".join(path.read_text() for path in logs)


@pytest.mark.parametrize("way", ["gres", "gpus-per-node"])
def test_a_kind_of_gpu_gets_its_node_and_every_step_its_gpus(lab: Lab, way: str) -> None:
    for kind, node in (("h200", "n1"), ("a100", "n2")):
        told = 'echo "gpus=$CUDA_VISIBLE_DEVICES on $(hostname)"'
        spec = lab.command_spec(
            f"kind-{kind}", ["bash", "-c", told], resources={"gpus_per_node": 2, "gpu_type": kind}
        )
        done = lab.jobspec("run", spec, cluster=way)
        assert done.returncode == 0, done.stdout + done.stderr
        run = lab.status("last")
        log = written(run["run_dir"], node)
        assert f"gpus=0,1 on {node}" in log
        assert f"gpu:{kind}" in job(lab, run["job_id"])["TresPerNode"]


SERVE = """\
import os, http.server as web
class Handler(web.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(f"judge sees {os.environ['CUDA_VISIBLE_DEVICES']}".encode())
web.HTTPServer((os.environ["JOBSPEC_SERVICE_JUDGE_HOST"], int(os.environ["PORT"])), Handler).serve_forever()
"""
ASK = """\
import os, urllib.request as web
print(web.urlopen(os.environ["JOBSPEC_SERVICE_JUDGE_URL"]).read().decode())
print("driver sees", os.environ["CUDA_VISIBLE_DEVICES"])
"""


@pytest.mark.parametrize("way", ["gres", "gpus-per-node"])
def test_step_of_a_service_shares_the_gpus_of_a_kind(lab: Lab, need_runtime: Any, way: str) -> None:
    """An overlapping step that asks for no GPUs has those of the job, under the same numbers."""
    need_runtime("bubblewrap")
    judge = {
        "name": "judge",
        "command": [str(lab.python), "-c", SERVE],
        "gpus": 1,
        "container": lab.container("bubblewrap"),
    }
    spec = lab.command_spec(
        f"judged-{way}",
        [str(lab.python), "-c", ASK],
        runtime="bubblewrap",
        services=[judge],
        resources={"gpus_per_node": 2, "gpu_type": "a100"},
    )
    done = lab.jobspec("run", spec, cluster=f"{way}-boxed")
    assert done.returncode == 0, done.stdout + done.stderr
    log = written(lab.status("last")["run_dir"], "n2")
    assert log.splitlines() == ["judge sees 1", "driver sees 0"]


def test_a_held_run_of_one_kind_takes_another_step(lab: Lab) -> None:
    """`exec` starts a step of its own, which asks for nothing and gets the job's GPUs."""
    spec = lab.command_spec(
        "kind-held", ["true"], launch={"hold": True}, resources={"gpus_per_node": 1, "gpu_type": "a100"}
    )
    run = lab.submit(spec, cluster="gres")
    await_true(
        lambda: any((e.get("data") or {}).get("what") == "hold" for e in lab.events(run["run_dir"])),
        "hold",
        90,
    )
    done = lab.jobspec("exec", run["run_id"], "--", "printenv", "SLURM_JOB_NODELIST")
    assert done.stdout.strip() == "n2", done.stderr
    gpus = lab.slurm("srun", f"--jobid={run['job_id']}", "--overlap", "printenv", "CUDA_VISIBLE_DEVICES")
    assert gpus.strip() == "0"


def test_slurm_gets_every_option_of_the_run(lab: Lab) -> None:
    lab.slurm(
        "scontrol", "create", "reservation", "ReservationName=rl", "StartTime=now", "Duration=600",
        "Nodes=n2", "Users=root",
    )  # fmt: skip
    options = {
        "qos": "", "reservation": "rl", "nodelist": "n2", "exclude": "n1", "nice": 7, "begin": "now+1hour",
        "dependency": ["singleton"], "mail": {"events": ["end", "fail"], "user": "ann"},
        "extra_sbatch": ["--comment=two words"],
    }  # fmt: skip
    try:
        spec = lab.command_spec("options", ["true"], slurm=options)
        run = lab.submit(spec, "--set", "slurm.partition=low")
        seen = job(lab, run["job_id"])
        wanted = {
            "Partition": "low", "Reservation": "rl", "ReqNodeList": "n2", "ExcNodeList": "n1", "Nice": "7",
            "Comment": "two", "MailUser": "ann", "MailType": "END,FAIL",
        }  # fmt: skip
        assert {key: seen[key] for key in wanted} == wanted
        assert seen["JobState"] == "PENDING"
        lab.jobspec("cancel", run["run_id"])
    finally:
        lab.slurm("scontrol", "delete", "ReservationName=rl")


def test_a_run_waits_for_another_run(lab: Lab) -> None:
    first = lab.submit(lab.command_spec("first", ["sleep", "600"]))
    lab.await_phase(first["run_dir"], "driver")
    second = lab.command_spec("second", ["true"], slurm={"dependency": [f"afterok:{first['run_id']}"]})
    run = lab.submit(second)
    assert job(lab, run["job_id"])["Dependency"].startswith(f"afterok:{first['job_id']}")
    lab.jobspec("cancel", first["run_id"])
    lab.await_state(first["run_id"], "CANCELLED", "FAILED")
    done = lab.jobspec("validate", second)
    assert done.returncode == 2
    assert f"run `{first['run_id']}` has ended" in done.stderr


def dry(lab: Lab, spec: Path, *more: str, cluster: str = "", **how: Any) -> dict[str, Any]:
    done = lab.jobspec("submit", spec, "--dry-run", "--json", *more, cluster=cluster, **how)
    assert done.stdout.startswith("{"), done.stdout + done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_a_dry_run_says_when_it_would_start_and_what_is_idle(lab: Lab) -> None:
    spec = lab.command_spec("dry", ["true"], resources={"gpus_per_node": 2, "gpu_type": "h200"})
    told = dry(lab, spec, cluster="gres")
    assert told["ok"]
    assert told["plan"]["gpu_hours"] == 0.33
    assert 0 <= told["forecast"]["start"] - told["forecast"]["asked"] < 60
    assert told["forecast"]["nodes"] == "n1"
    assert told["forecast"]["gpus"] == [
        {"type": "a100", "idle": 2, "total": 2}, {"type": "h200", "idle": 2, "total": 2},
    ]  # fmt: skip
    text = lab.jobspec("submit", spec, "--dry-run", cluster="gres").stdout
    assert "expected start  now (" in text
    assert lab.slurm("squeue", "-h") == ""
    with lab.occupied():
        later = dry(lab, spec, cluster="gres")["forecast"]
        assert later["start"] - later["asked"] > 3600
        assert [gpus["idle"] for gpus in later["gpus"]] == [0, 0]  # whole nodes, with their GPUs


def test_a_dry_run_of_what_sbatch_refuses_says_so(lab: Lab) -> None:
    spec = lab.command_spec("refused", ["true"], slurm={"partition": "nowhere"})
    told = dry(lab, spec)
    assert not told["ok"]
    (item,) = [item for item in told["findings"] if item["severity"] == "error"]
    assert item["rule"] == "launch.refused"
    assert "`slurm.partition`" in item["fix"]


def test_a_maintenance_that_the_limit_reaches_is_named_with_what_still_fits(lab: Lab) -> None:
    lab.slurm(
        "scontrol", "create", "reservation", "ReservationName=maint", "StartTime=now+30minutes",
        "Duration=60", "Nodes=ALL", "Users=root", "Flags=MAINT,IGNORE_JOBS",
    )  # fmt: skip
    try:
        spec = lab.command_spec("maintained", ["true"], resources={"time": "01:00:00"})
        told = dry(lab, spec)
        (item,) = [item for item in told["findings"] if item["rule"] == "launch.maintenance"]
        assert "`maint`" in item["what"]
        assert re.search(r'resources.time: "0-00:(29|30):00"', item["fix"])
        assert 28 <= told["forecast"]["maintenance"]["longest"] <= 30
        assert dry(lab, spec, "--set", "resources.time=00:20:00")["forecast"]["maintenance"] is None
        one = dry(lab, spec, "--set", "resources.time=null")["forecast"]["maintenance"]
        assert one["name"] == "maint"  # the partition has no limit either
        run = lab.submit(spec)
        assert lab.status(run["run_id"])["forecast"]["maintenance"]["name"] == "maint"
        assert "reaches the maintenance `maint`" in lab.jobspec("status", run["run_id"]).stdout
        lab.jobspec("cancel", run["run_id"])
        lab.slurm("scontrol", "update", "ReservationName=maint", "Nodes=n1")
        assert dry(lab, spec)["forecast"]["maintenance"] is None  # n2 is free of it
    finally:
        lab.slurm("scontrol", "delete", "ReservationName=maint")


def test_a_rendered_folder_needs_no_profile(lab: Lab) -> None:
    folder = lab.shared / "rendered"
    spec = lab.command_spec("folder", ["true"])
    assert lab.jobspec("render", spec, "--out", folder).returncode == 0
    gone = {"JOBSPEC_CLUSTERS": "/nowhere", "JOBSPEC_CLUSTER": "nowhere"}
    done = lab.jobspec("validate", folder, env=gone)
    assert done.returncode == 0, done.stdout + done.stderr
    told = dry(lab, folder, env=gone)
    assert told["forecast"]["start"] > 0
    made = lab.submit(folder, env=gone)
    lab.await_state(str(folder), "COMPLETED", timeout=60)
    assert Path(made["run_dir"]) == folder
    (folder / "runtime.pyz").unlink()
    assert "lacks `runtime.pyz`" in lab.jobspec("validate", folder, env=gone).stderr


def test_several_runs_in_an_allocation_that_is_there(lab: Lab) -> None:
    """In `salloc`: a step on both nodes, one on a single node, one that asks for more; no further job."""
    told = 'echo "in $SLURM_JOB_ID on $(hostname) with $CUDA_VISIBLE_DEVICES"'
    spec = {
        "framework": "command",
        "resources": {"nodes": 2, "gpus_per_node": 1, "time": "00:10:00"},
        "launch": {"mode": "srun", "requeue": {"max_attempts": 3}},
        "train": {"command": ["bash", "-c", told]},
    }
    both = lab.write_spec("both", spec)
    one = lab.command_spec("one", ["bash", "-c", f"{told}; exit 7"], resources={"gpus_per_node": 1})
    calls = f"jobspec run {both} --here --json >{lab.shared}/both.json; echo $?; "
    calls += f"jobspec run {one} --here --json >{lab.shared}/one.json; echo $?; "
    calls += f"jobspec run {both} --here --set resources.cpus_per_node=16 2>&1; echo $SLURM_JOB_ID"
    done = lab.cluster.run(
        "ctl",
        ["salloc", "-Q", "--nodes=2", "--ntasks-per-node=1", "-c8", "--gres=gpu:1", "bash", "-c", calls],
        env={"JOBSPEC_CLUSTER": "gres"},
        timeout=200,
    )
    lines = done.stdout.splitlines()
    assert lines[:2] == ["0", "1"], done.stdout + done.stderr
    assert "the run asks for 16 CPUs per node, the allocation" in done.stdout
    await_true(lambda: not lab.slurm("squeue", "-h"), "no job but the allocation", 30)
    report = json.loads((lab.shared / "both.json").read_text())
    assert report["result"] == "Pass"
    run = json.loads(lab.jobspec("status", "--json", "--name", "both").stdout)[0]
    for node in ("n1", "n2"):
        log = written(run["run_dir"], node)
        assert f"in {lines[-1]} on {node} with 0" in log


def test_here_without_an_allocation_says_how_to_get_one(lab: Lab) -> None:
    done = lab.jobspec("run", lab.command_spec("nowhere", ["true"]), "--here")
    assert done.returncode == 2
    assert "salloc" in done.stderr
