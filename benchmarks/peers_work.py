"""What each peer of `peers.py` is given to do: one job of four nodes, a sweep of it, the state of many jobs.

Each does it by its own program or, where it has none, by the shortest Python of its manual, and writes
what it writes before a submission. jobspec's validation is always part of its time.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

NEMO_RUN = """\
import sys
import nemo_run as run
from nemo_run.core.tunnel.client import LocalTunnel
with run.Experiment("bench") as experiment:
    for seed in range(int(sys.argv[1])):
        executor = run.SlurmExecutor(account="a", partition="main", time="01:00:00", nodes=4,
                                     ntasks_per_node=1, gpus_per_node=8, packager=run.Packager(),
                                     tunnel=LocalTunnel(job_dir=sys.argv[2]))
        experiment.add(run.Script(inline=f"python3 /code/train.py --seed {seed}"), executor, name=f"p{seed}")
    experiment.dryrun(log=False)
"""
NEMO_RUN_STATUS = """\
import os, sys
from nemo_run.core.tunnel.client import LocalTunnel
from nemo_run.run.torchx_backend.schedulers import slurm
ids = [str(1000 + number) for number in range(int(sys.argv[1]))]
if not os.path.exists(slurm.SLURM_JOB_DIRS):
    for job in ids:
        slurm._save_job_dir(job, sys.argv[2], LocalTunnel(job_dir=sys.argv[2]), "*.out")
scheduler = slurm.create_scheduler("bench")
assert {scheduler.describe(job).state.name for job in ids} == {"RUNNING"}
"""
REFRAME_SITE = """\
site_configuration = {
    "systems": [{"name": "bench", "hostnames": [".*"], "partitions": [
        {"name": "main", "scheduler": "slurm", "launcher": "srun", "environs": ["builtin"], "max_jobs": 1000,
         "access": ["-p main"]}]}],
    "environments": [{"name": "builtin"}],
}
"""
REFRAME = """\
import os
import reframe as rfm
import reframe.utility.sanity as sn
from reframe.core.builtins import parameter, run_before, sanity_function

@rfm.simple_test
class Bench(rfm.RunOnlyRegressionTest):
    seed = parameter(range(int(os.environ["POINTS"])))
    valid_systems, valid_prog_environs = ["*"], ["*"]
    executable, num_tasks, num_tasks_per_node, time_limit = "python3", 4, 1, "1h"

    @run_before("run")
    def choose(self):
        self.executable_opts = ["/code/train.py", "--seed", str(self.seed)]

    @sanity_function
    def ended(self):
        return sn.assert_true(1)
"""
REFRAME_STATUS = """\
import sys, time
import reframe.core.config as config
import reframe.core.runtime as runtime
from reframe.core.backends import getlauncher, getscheduler
from reframe.core.schedulers import Job
site = config.load_config(sys.argv[1])
site.select_subconfig("bench:main")
runtime.init_runtime(site)
scheduler, jobs = getscheduler("slurm")(), []
for number in range(int(sys.argv[2])):
    job = Job.create(scheduler, getlauncher("srun")(), name=f"j{number}")
    job._jobid, job._submit_time = str(1000 + number), time.time()
    jobs.append(job)
scheduler.poll(*jobs)
assert {job.state for job in jobs} == {"RUNNING"}
"""
SUBMITIT_STATUS = """\
import sys, submitit
jobs = [submitit.SlurmJob(folder=sys.argv[1], job_id=str(1000 + n)) for n in range(int(sys.argv[2]))]
assert {job.state for job in jobs} == {"RUNNING"}
"""
CLOUDAI_SYSTEM = """\
name = "bench"
scheduler = "slurm"
install_path = "{root}/install"
output_path = "{root}/out"
default_partition = "main"
gpus_per_node = 8
ntasks_per_node = 1
[[partitions]]
name = "main"
"""
CLOUDAI_TEST = 'name="sleep"\ndescription="sleep"\ntest_template_name="Sleep"\n[cmd_args]\nseconds=1\n'
CLOUDAI_POINT = """\
[[Tests]]
id = "t{number}"
test_name = "sleep"
time_limit = "01:00:00"
num_nodes = 4
[Tests.cmd_args]
seconds = {number}
"""
SRTCTL = """\
name: bench
model: {path: /models/m, container: /images/i.sqsh, precision: fp8}
resources: {gpu_type: h100, gpus_per_node: 8, agg_nodes: 4, agg_workers: 1}
slurm: {time_limit: "01:00:00", account: a, partition: main}
backend: {type: sglang, sglang_config: {aggregated: {tensor-parallel-size: 32}}}
"""
SACCT = {  # what Slurm answers to each one's question
    "nemo-run": ("JobID|JobName|Partition|Account|AllocCPUS|State|ExitCode", "{job}|j|main|a|4|RUNNING|0:0"),
    "reframe": ("", "{job}|RUNNING|0:0|Unknown|n[1-4]"),
    "submitit": ("JobID|State|NodeList", "{job}|RUNNING|n[1-4]"),
}


class Work:
    """The inputs below one folder, and for each peer the command of each contest."""

    def __init__(self, root: Path, peers: Path, points: int, jobs: int, env: dict[str, str]) -> None:
        self.root, self.peers, self.points, self.jobs, self.env = root, peers, points, jobs, env
        self.times = 0
        for name, text in {
            "with_nemo_run.py": NEMO_RUN,
            "nemo_run_status.py": NEMO_RUN_STATUS,
            "reframe_site.py": REFRAME_SITE,
            "reframe_test.py": REFRAME,
            "reframe_status.py": REFRAME_STATUS,
            "submitit_status.py": SUBMITIT_STATUS,
            "system.toml": CLOUDAI_SYSTEM.format(root=root),
            "tests/sleep.toml": CLOUDAI_TEST,
            "one.toml": cloudai_scenario(1),
            "sweep.toml": cloudai_scenario(points),
            "one-srt.yaml": SRTCTL
            + "benchmark: {type: sa-bench, isl: 1024, osl: 1024, concurrencies: [4]}\n",
            "sweep-srt.yaml": SRTCTL + srt_sweep(points),
        }.items():
            path = root / name
            path.parent.mkdir(exist_ok=True)
            path.write_text(text)
        for peer, (head, row) in SACCT.items():
            self._answer(peer, head, [row.format(job=1000 + number) for number in range(jobs)])

    def _answer(self, peer: str, head: str, rows: list[str]) -> None:
        """An `sacct` of the peer's own: it answers for all jobs, or for the one that `-j` names."""
        folder = self.root / f"fake-{peer}"
        folder.mkdir()
        (folder / "rows").write_text("".join(f"{row}\n" for row in rows))
        one = (
            f'case "$*" in *,*) cat {folder}/rows;; *) for id; do :; done; grep "^$id|" {folder}/rows;; esac'
        )
        many = f"cat {folder}/rows"
        text = f"#!/bin/sh\necho '{head}'\n{one if peer == 'nemo-run' else many}\n"
        (folder / "sacct").write_text(text)
        (folder / "sacct").chmod(0o755)

    def commands(self, peer: str, contest: str) -> Callable[[], None] | None:
        """One repetition; None where the peer has nothing of the kind."""
        bin_, count = self.peers / peer / "bin", {"one": 1, "sweep": self.points}.get(contest, 0)
        found: dict[tuple[str, str], list[str]] = {
            ("nemo-run", "help"): [f"{bin_}/nemorun", "--help"],
            ("nemo-run", "status"): [f"{bin_}/python", "nemo_run_status.py", str(self.jobs), str(self.root)],
            ("reframe", "help"): [f"{bin_}/reframe", "--help"],
            ("reframe", "status"): [f"{bin_}/python", "reframe_status.py", "reframe_site.py", str(self.jobs)],
            ("submitit", "help"): [f"{bin_}/python", "-c", "import submitit"],
            ("submitit", "status"): [f"{bin_}/python", "submitit_status.py", "FRESH", str(self.jobs)],
            ("cloudai", "help"): [f"{bin_}/cloudai", "--help"],
            ("srtctl", "help"): [f"{bin_}/srtctl", "--help"],
        }
        if count:
            scenario = ["--system-config", "system.toml", "--tests-dir", "tests"]
            found |= {
                ("nemo-run", contest): [f"{bin_}/python", "with_nemo_run.py", str(count), "FRESH"],
                ("reframe", contest): [
                    *(f"{bin_}/reframe", "-C", "reframe_site.py", "-c", "reframe_test.py"),
                    *("--dry-run", "--prefix", "FRESH"),
                ],
                ("cloudai", contest): [
                    *(f"{bin_}/cloudai", "dry-run", *scenario),
                    *("--test-scenario", f"{contest}.toml"),
                ],
                ("srtctl", contest): [f"{bin_}/srtctl", "dry-run", "-f", f"{contest}-srt.yaml"],
            }
        argv = found.get((peer, contest))
        return None if argv is None else lambda: self.run(peer, argv, count)

    def run(self, peer: str, argv: list[str], points: int) -> None:
        self.times += 1
        fresh = self.root / f"made-{self.times}"
        env = {
            **self.env,
            "PATH": f"{self.root / f'fake-{peer}'}:{self.env['PATH']}",
            "NEMORUN_HOME": str(self.root / "nemo-run-home"),
            "POINTS": str(points),
        }
        words = [str(fresh) if word == "FRESH" else word for word in argv]
        done = subprocess.run(words, cwd=self.root, env=env, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise RuntimeError(f"{words} failed:\n{done.stdout[-2000:]}{done.stderr[-4000:]}")


def cloudai_scenario(points: int) -> str:
    return 'name = "bench"\n' + "".join(CLOUDAI_POINT.format(number=number + 1) for number in range(points))


def srt_sweep(points: int) -> str:
    wanted = 'benchmark: {type: sa-bench, isl: 1024, osl: 1024, concurrencies: ["{c}"]}\n'
    return f"{wanted}sweep: {{c: {json.dumps(list(range(1, points + 1)))}}}\n"


def installed_size(venv: Path) -> tuple[float, int]:
    """MB and packages of a virtual environment, without pip and setuptools, which every one has."""
    (site,) = venv.glob("lib/python3*/site-packages")
    own = [
        path
        for path in site.iterdir()
        if path.name.split("-")[0] not in ("pip", "setuptools", "pkg_resources")
    ]
    files = [Path(folder) / name for top in own for folder, _, names in os.walk(top) for name in names]
    files += [path for path in own if path.is_file()]
    return sum(path.lstat().st_size for path in files) / 1e6, sum(path.suffix == ".dist-info" for path in own)
