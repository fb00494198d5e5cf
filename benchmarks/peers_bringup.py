"""The racers of `peers.py` that bring a Ray cluster up: each one's batch script, and one race of it.

Every racer gets the same nodes of the test cluster, the same Ray and the same driver, and is timed from the
first line of its batch script to the first line of the driver. The driver then asks Ray how many nodes are
alive. Of the peers everything runs that is theirs. What the test cluster lacks is stood in for:

* Pyxis and PMIx: a program `srun` drops Pyxis's options and asks for no MPI; commands run on the bare node;
* the root folder of a container, which NeMo-Run's script writes into: `/tmp` of the node;
* `scontrol --json` of Slurm 23.02, which NeMo-Run's script asks for its folder: the test cluster has 22.05;
* an account: `none`, since the test cluster has no accounting.

Ray's authentication is off for the peers, who do not ask for it; jobspec pays for its token.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from benchmarks import bringup
from tests.slurm.lab import PYTHON, Lab, await_true

PATIENCE_S = 300
SRUN = """\
#!/bin/bash
# Stands in for Pyxis and PMIx: drops their options.
args=()
while (($#)); do
  case $1 in
    --container-*=* | --no-container-mount-home) ;;
    --container-*) shift ;;
    --mpi=pmix) args+=(--mpi=none) ;;
    *) args+=("$1") ;;
  esac
  shift
done
exec /usr/bin/srun "${args[@]}"
"""
SCONTROL = """\
#!/bin/bash
# Stands in for Slurm 23.02, whose `scontrol show job ID --json` knows the folder.
[[ ${*: -1} != --json ]] || { echo '{"jobs": [{"current_working_directory": "FOLDER"}]}'; exit; }
exec /usr/bin/scontrol "$@"
"""
BATCH = """\
#!/bin/bash
date +%s.%N >{out}/start
export PATH={tools}:{bin}:$PATH RAY_AUTH_MODE=disabled SLURM_JOB_ACCOUNT=${{SLURM_JOB_ACCOUNT:-none}}
exec bash {out}/script.sh
"""
DRIVER = """\
import json, os, sys, time
up = time.time()
import ray
ray.init(address="auto", log_to_driver=False, logging_level="ERROR")
alive = sum(node["Alive"] for node in ray.nodes())
with open(sys.argv[1] + ".part", "w") as file:
    json.dump({"up": up, "alive": alive}, file)
os.rename(sys.argv[1] + ".part", sys.argv[1])
"""
SYMMETRIC = """\
head=$(getent hosts "$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)" | awk '{{ print $1 }}')
srun --ntasks-per-node=1 ray symmetric-run --address "$head:6379" --min-nodes {nodes} \\
  -- python {out}/driver.py {out}/up
"""
CURATOR = """\
export RAY_PORT_BROADCAST_DIR={out}
srun --ntasks-per-node=1 python {out}/curator.py {out}/up
"""
CURATOR_DRIVER = """\
import runpy, sys
sys.path.append({site!r})  # after the Ray that all racers share
from nemo_curator.core.client import SlurmRayClient
client = SlurmRayClient()
client.start()  # returns on the head alone, once all nodes are there
runpy.run_path({driver!r}, run_name="__main__")
client.stop()
"""
NEMO_RL = """\
export CONTAINER=none MOUNTS= GPUS_PER_NODE=8 BASE_LOG_DIR={out} COMMAND='python {out}/driver.py {out}/up'
exec bash {script}
"""
NEMO_RUN_RENDER = """\
import sys
import nemo_run as run
from nemo_run.core.execution.slurm import SlurmJobDetails
from nemo_run.core.tunnel.client import LocalTunnel
from nemo_run.run.ray.slurm import SlurmRayRequest
out, nodes, command = sys.argv[1], int(sys.argv[2]), sys.argv[3]
executor = run.SlurmExecutor(account="none", partition="main", nodes=nodes, ntasks_per_node=1, retries=3,
                             container_image="none", tunnel=LocalTunnel(job_dir=out),
                             job_details=SlurmJobDetails(job_name="race", folder=out))
request = SlurmRayRequest(name="race", cluster_dir=out + "/cluster", template_name="ray.sub.j2",
                          executor=executor, command=command, launch_cmd=["sbatch"])
print(request.materialize())
"""


@dataclass(frozen=True)
class Racer:
    """One way to bring Ray up. `script` makes what its batch script runs on so many nodes."""

    name: str
    version: str
    up: str  # what it waits for before it starts the driver
    script: Callable[[Path, int], str]


def racers(peers: Path, nemo_rl: Path | None, versions: dict[str, str]) -> list[Racer]:
    """Those of the peers that are here."""
    found = []
    if nemo_rl is not None:
        text = (nemo_rl / "ray.sub").read_text()
        up = "`ray status` has the units of all nodes, asked each 5 s"
        found.append(Racer("NeMo-RL ray.sub", versions["nemo-rl"], up, lambda out, _: ray_sub(text, out)))
    if versions["nemo-run"]:
        python = peers / "nemo-run/bin/python"
        up = "`ray status` has the units of all nodes, asked each 2 s by a step"
        found.append(
            Racer("NeMo-Run template", versions["nemo-run"], up, lambda out, n: nemo_run(python, out, n))
        )
    if versions["nemo-curator"]:
        (site,) = (peers / "nemo-curator/lib").glob("python3*/site-packages")
        up = "`ray.nodes()` has all nodes, asked each 5 s"
        found.append(
            Racer(
                "NeMo Curator SlurmRayClient",
                versions["nemo-curator"],
                up,
                lambda out, _: curator(site, out),
            )
        )
    up = "Ray lists exactly N nodes, asked each 5 s"
    found.append(
        Racer("ray symmetric-run", versions["ray"], up, lambda out, n: SYMMETRIC.format(out=out, nodes=n))
    )
    return found


def nemo_run(python: Path, out: Path, nodes: int) -> str:
    """NeMo-Run's own script, rendered by NeMo-Run; only the folders of its container are other ones."""
    command = f"python {out}/driver.py {out}/up"
    argv = [str(python), "-c", NEMO_RUN_RENDER, str(out), str(nodes), command]
    text = subprocess.run(argv, check=True, capture_output=True, text=True).stdout
    text = text.replace("/launch-head.sh", "/tmp/launch-head.sh")
    text = text.replace("/launch-worker.sh", "/tmp/launch-worker.sh")
    return f"export RAY_TEMP_DIR=/tmp/ray CPUS_PER_WORKER=$SLURM_CPUS_ON_NODE\n{text}"


def ray_sub(text: str, out: Path) -> str:
    (out / "ray.sub").write_text(text)
    return NEMO_RL.format(out=out, script=out / "ray.sub")


def curator(site: Path, out: Path) -> str:
    """Its packages go to the shared folder, since nodes do not see the home folder of this machine."""
    shared = out.parent / "curator-site"
    if not shared.exists():
        shutil.copytree(site, shared, ignore=shutil.ignore_patterns("pip", "setuptools", "__pycache__"))
    driver = CURATOR_DRIVER.format(site=str(shared), driver=str(out / "driver.py"))
    (out / "curator.py").write_text(driver)
    return CURATOR.format(out=out)


def race(lab: Lab, racer: Racer, nodes: int, number: int) -> float:
    """Seconds from the first line of the batch script to the first line of the driver."""
    out = lab.shared / "scratch" / f"{racer.name.replace(' ', '-')}-{nodes}-{number}"
    tools = out / "tools"
    tools.mkdir(parents=True)
    for name, text in (("srun", SRUN), ("scontrol", SCONTROL.replace("FOLDER", str(out)))):
        (tools / name).write_text(text)
        (tools / name).chmod(0o755)
    (out / "driver.py").write_text(DRIVER)
    (out / "script.sh").write_text(racer.script(out, nodes))
    (out / "job.sh").write_text(BATCH.format(out=out, tools=tools, bin=PYTHON.parent))
    options = [f"--nodes={nodes}", "--exclusive", "--parsable", f"--output={out}/job.log", f"--chdir={out}"]
    job = lab.slurm("sbatch", *options, str(out / "job.sh")).strip()
    try:
        found = await_up(lab, racer.name, job, out)
    finally:
        lab.cluster.run("ctl", ["scancel", job])
        bringup.await_idle(lab)
        for name in lab.cluster.nodes:  # no racer finds another one's address or session
            lab.cluster.run(name, ["bash", "-c", "rm -rf /tmp/ray /tmp/launch-*.sh"])
    assert found["alive"] == nodes, f"{racer.name} started the driver with {found['alive']} of {nodes} nodes"
    return float(found["up"]) - float((out / "start").read_text())


def await_up(lab: Lab, name: str, job: str, out: Path) -> dict[str, float]:
    """What the driver says. Raises: AssertionError when the job ends without it, or takes too long."""

    def settled() -> bool:
        return (out / "up").exists() or not lab.slurm("squeue", "-h", "-j", job, "-t", "pending,running")

    await_true(settled, name, PATIENCE_S, lambda: last_lines(out))
    assert (out / "up").exists(), f"{name}: the job ended before the driver began\n{last_lines(out)}"
    found: dict[str, float] = json.loads((out / "up").read_text())
    return found


def last_lines(out: Path) -> str:
    return "\n".join(
        f"--- {path.name}\n{path.read_text(errors='replace')[-1500:]}" for path in sorted(out.rglob("*.log"))
    )


def ours(lab: Lab, nodes: int, number: int) -> float:
    """The same for jobspec: from the batch script's hook, a few lines down, to the driver."""
    out = lab.shared / "scratch" / f"jobspec-{nodes}-{number}"
    out.mkdir()
    (out / "driver.py").write_text(DRIVER)
    argv = [str(PYTHON), str(out / "driver.py"), str(out / "up")]
    spec = lab.command_spec(f"race-{nodes}-{number}", argv, nodes=nodes, mode="ray")
    run = lab.submit(spec, cluster="lab-bench")
    run_dir = Path(run["run_dir"])
    try:
        found = await_up(lab, f"jobspec: {run_dir}", run["job_id"], out)
    finally:
        lab.cluster.run("ctl", ["scancel", run["job_id"]])
        bringup.await_idle(lab)
    assert found["alive"] == nodes, found
    return float(found["up"]) - float((run_dir / "batch-start").read_text())
