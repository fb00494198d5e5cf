"""What of the submitting shell reaches a job: named variables, and nothing else."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.slurm.lab import Lab

pytestmark = [pytest.mark.slurm]

DUMP = "import json,os,sys; json.dump(dict(os.environ), open(sys.argv[1], 'w'))"


def dump(lab: Lab, tmp_shared: Path, env: dict[str, str]) -> dict[str, str]:
    """The driver's environment in a run that was submitted from a shell with `env`."""
    import json

    target = tmp_shared / "env.json"
    spec = lab.command_spec("environment", ["python3", "-c", DUMP, str(target)])
    done = lab.jobspec("run", spec, env=env)
    assert done.returncode == 0, done.stdout + done.stderr
    found: dict[str, str] = json.loads(target.read_text())
    return found


def test_variables_of_an_outer_job_do_not_leak(lab: Lab, tmp_shared: Path) -> None:
    """Submitted from within another allocation: its limits must not bind this job."""
    outer = {
        "SLURM_JOB_ID": "999",
        "SLURM_CPU_BIND": "map_cpu:0",
        "SLURM_NTASKS": "3",
        "SLURM_OVERLAP": "1",
        "SBATCH_PARTITION": "nowhere",
        "SBATCH_TIMELIMIT": "0:01",
        "SALLOC_PARTITION": "nowhere",
        "MY_OWN": "leak",
        "PYTHONPATH": "/nowhere",
        "RAY_ADDRESS": "10.0.0.1:6379",
    }
    found = dump(lab, tmp_shared, outer)
    assert found["SLURM_JOB_ID"] == lab.status("last")["job_id"]
    for name in (
        "SLURM_CPU_BIND",
        "SLURM_OVERLAP",
        "SBATCH_PARTITION",
        "SALLOC_PARTITION",
        "MY_OWN",
    ):
        assert outer[name] not in (found.get(name),), name
    assert [name for name in found if name in ("SLURM_NTASKS", "SLURM_PROCID", "SLURM_STEP_NODELIST")] == []
    assert "/nowhere" not in found.get("PYTHONPATH", "")
    assert found.get("RAY_ADDRESS", "") != "10.0.0.1:6379"


def test_slurm_conf_passes(lab: Lab, tmp_shared: Path) -> None:
    """A cluster that is configured outside /etc/slurm is found by it, here and in the job."""
    conf = tmp_shared / "slurm.conf"
    conf.write_text((lab.cluster.lab / "etc/slurm/slurm.conf").read_text())
    hidden = lab.cluster.run("ctl", ["mount", "-t", "tmpfs", "tmpfs", "/etc/slurm"])
    assert hidden.returncode == 0
    try:
        spec = lab.command_spec("conf", ["true"])
        without = lab.jobspec("submit", spec)
        assert without.returncode != 0, "the test shows nothing if Slurm is found without it"
        assert lab.jobspec("submit", spec, env={"SLURM_CONF": str(conf)}).returncode == 0
    finally:
        lab.cluster.run("ctl", ["umount", "/etc/slurm"])


def test_secret_reaches_the_driver_and_no_file(lab: Lab, tmp_shared: Path) -> None:
    value = f"hf_{os.urandom(16).hex()}"
    script = f'test "$HF_TOKEN" = {value[:10]}"$TAIL" && echo the token is $HF_TOKEN'
    spec = lab.command_spec(
        "secret",
        ["bash", "-c", script],
        nodes=2,
        secrets=["HF_TOKEN"],
        container={"python": str(lab.python), "env": {"TAIL": value[10:]}},
    )
    done = lab.jobspec("run", spec, env={"HF_TOKEN": value})
    assert done.returncode == 0, done.stdout + done.stderr
    run_dir = Path(lab.status("last")["run_dir"])
    holders = [path for path in run_dir.rglob("*") if path.is_file() and value.encode() in path.read_bytes()]
    assert holders == []
    logs = "".join(path.read_text() for path in run_dir.glob("attempts/1/logs/*/*.log"))
    assert "the token is" in logs


def test_missing_secret_is_said_before_submission(lab: Lab) -> None:
    done = lab.jobspec("submit", lab.command_spec("nosecret", ["true"], secrets=["HF_TOKEN"]))
    assert done.returncode == 2
    assert "HF_TOKEN" in done.stderr
    assert not lab.slurm("squeue", "-h")


def test_run_directory_is_enough(lab: Lab) -> None:
    """`sbatch job.sbatch` by hand: jobspec is not needed to run what it rendered."""
    spec = lab.command_spec("by-hand", ["bash", "-c", "echo by hand on $(hostname)"])
    run = lab.submit(spec)
    lab.await_end(run["job_id"])
    done = lab.cluster.run(
        "ctl", ["sbatch", "--wait", f"{run['run_dir']}/job.sbatch"], env={"PATH": "/usr/bin:/bin"}
    )
    assert done.returncode == 0, done.stderr
    assert lab.results(run["run_dir"], attempt=2)["outcome"] == "ok"
