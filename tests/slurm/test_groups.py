"""Groups of unequal nodes on a real Slurm: in one allocation, and as a heterogeneous job."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.slurm.lab import Lab, await_true
from tests.slurm.machine import CHECKOUT

pytestmark = pytest.mark.slurm

# Places a task by each group's resource, and says what Ray and the environment know.
TRAIN = """\
import os, ray, socket
ray.init()
for node in sorted(ray.nodes(), key=lambda node: node["NodeName"]):
    kinds = sorted(item for item in node["Resources"].items() if item[0] == "CPU" or "group:" in item[0])
    print("NODE", node["NodeName"], kinds, flush=True)
@ray.remote(num_cpus=0)
def where():
    with open(os.environ["JOBSPEC_SCRATCH"] + "/made.txt", "w") as file:
        file.write(os.environ["JOBSPEC_GROUP"])
    return socket.gethostname() + " is of " + os.environ["JOBSPEC_GROUP"]
for name in ("trainer", "rollout"):
    count = len(os.environ["JOBSPEC_GROUP_" + name.upper()].split(","))
    print(name, os.environ["JOBSPEC_GROUP_" + name.upper()], flush=True)
    tasks = [where.options(resources={"group:" + name: 1}).remote() for _ in range(count)]
    print("TASKS", sorted(set(ray.get(tasks))), flush=True)
"""
TWO_PARTITIONS = [
    {"name": "trainer", "nodes": 1, "slurm": {"nodelist": "n4"}},
    {"name": "rollout", "nodes": 2, "cpus_per_node": 3, "slurm": {"partition": "low", "nodelist": "n[1-2]"}},
]


def spec(lab: Lab, name: str, argv: list[str], groups: list[dict[str, Any]], **more: Any) -> Path:
    return lab.command_spec(
        name, argv, groups=groups, resources={"nodes": sum(g["nodes"] for g in groups)}, **more
    )


def passed(lab: Lab, made: Path, *more: str) -> str:
    done = lab.jobspec("run", made, *more)
    assert done.returncode == 0, done.stdout + done.stderr
    return lab.jobspec("logs", "last").stdout


def artifacts(lab: Lab) -> dict[str, str]:
    root = Path(lab.status("last")["run_dir"]) / "artifacts"
    return {str(path.relative_to(root)): path.read_text() for path in root.rglob("made.txt")}


@pytest.mark.ray
@pytest.mark.slow
def test_groups_of_one_allocation_are_found_in_ray(lab: Lab, tmp_shared: Path) -> None:
    (tmp_shared / "train.py").write_text(TRAIN)
    groups = [{"name": "trainer", "nodes": 1}, {"name": "rollout", "nodes": 2}]
    argv = [str(lab.python), str(tmp_shared / "train.py")]
    made = spec(lab, "grouped", argv, groups, mode="ray", artifacts={"collect": ["made.txt"]})
    said = passed(lab, made)
    assert "NODE n1 [('CPU', 2.0), ('group:trainer', 1.0)]" in said
    assert "NODE n3 [('CPU', 2.0), ('group:rollout', 1.0)]" in said
    assert "trainer n1\n" in said and "rollout n2,n3\n" in said
    assert "TASKS ['n1 is of trainer']" in said
    script = (Path(lab.status("last")["run_dir"]) / "job.sbatch").read_text()
    assert "#SBATCH --nodes=3\n" in script and "hetjob" not in script


@pytest.mark.ray
@pytest.mark.slow
def test_groups_of_two_partitions_are_one_heterogeneous_job(lab: Lab, tmp_shared: Path) -> None:
    """The head is on the node that Slurm lists last: the order of the groups counts."""
    (tmp_shared / "train.py").write_text(TRAIN)
    argv = [str(lab.python), str(tmp_shared / "train.py")]
    made = spec(lab, "unequal", argv, TWO_PARTITIONS, mode="ray", artifacts={"collect": ["made.txt"]})
    said = passed(lab, made)
    assert "NODE n1 [('CPU', 3.0), ('group:rollout', 1.0)]" in said
    assert "NODE n4 [('CPU', 2.0), ('group:trainer', 1.0)]" in said
    assert "trainer n4\n" in said and "rollout n1,n2\n" in said
    assert "TASKS ['n4 is of trainer']" in said
    row = lab.status("last")
    assert row["state"] == "COMPLETED"
    rows = lab.slurm("sacct", "-nXP", "-j", row["job_id"], "-o", "JobID,State,NodeList,Partition").split()
    first, second = sorted(rows)
    assert first == f"{row['job_id']}+0|COMPLETED|n4|main"
    assert second == f"{row['job_id']}+1|COMPLETED|n[1-2]|low"
    kept = artifacts(lab)
    assert kept["made.txt"] == "trainer"
    assert {kept.get("n1/made.txt"), kept.get("n2/made.txt")} >= {"rollout"}


WAIT = """\
import os, pathlib, time
pathlib.Path(os.environ["JOBSPEC_SCRATCH"], "made.txt").write_text(os.environ["JOBSPEC_GROUP"])
print("waits on", os.uname().nodename, os.environ["RANK"], os.environ["JOBSPEC_GROUP"], flush=True)
time.sleep(300)
"""


def waiting(lab: Lab, folder: Path, name: str, cluster: str = "", **more: Any) -> tuple[str, Path]:
    """A run whose command is started on all nodes; its job and its folder."""
    (folder / "wait.py").write_text(WAIT)
    argv = [str(lab.python), str(folder / "wait.py")]
    made = spec(lab, name, argv, TWO_PARTITIONS, artifacts={"collect": ["made.txt"]}, **more)
    launched = lab.submit(made, cluster=cluster)
    run_dir = Path(launched["run_dir"])
    logs = run_dir / "attempts/1/logs"
    await_true(
        lambda: (
            {path.parent.name for path in logs.glob("*/command-*.log") if "waits" in path.read_text()}
            == {"n1", "n2", "n4"}
        ),
        "the command on all nodes",
        90,
        lambda: str(list(run_dir.glob("job*.log")) and [p.read_text() for p in run_dir.glob("job*.log")]),
    )
    return launched["job_id"], run_dir


def test_death_of_a_node_of_the_second_component_is_named(lab: Lab, tmp_shared: Path) -> None:
    job, run_dir = waiting(lab, tmp_shared, "loses")
    lab.cluster.kill("n2")
    lab.await_end(job)
    code, report = lab.report("last")
    cause = report["first_cause"]
    assert (code, cause["class"], cause["node"]) == (3, "node.lost", "n2")
    assert cause["text"].startswith("node `n2` of group `rollout` left during `driver`")
    assert report["run"]["groups"][1] == {"name": "rollout", "nodes": 2, "gpus_per_node": 0}
    kept = {str(path.relative_to(run_dir)) for path in run_dir.glob("artifacts/**/made.txt")}
    assert kept == {"artifacts/made.txt", "artifacts/n1/made.txt"}


def test_cancel_ends_both_components(lab: Lab, tmp_shared: Path) -> None:
    job, run_dir = waiting(lab, tmp_shared, "ends")
    seen = lab.jobspec("exec", "last", "--node", "n2", "--", "sh", "-c", "echo $JOBSPEC_GROUP on $(uname -n)")
    assert seen.stdout.strip().endswith("rollout on n2"), seen.stdout + seen.stderr
    assert lab.jobspec("cancel", "last").returncode == 0
    lab.await_end(job)
    assert lab.status("last")["state"] == "CANCELLED"
    rows = lab.slurm("sacct", "-nXP", "-j", job, "-o", "State").split("\n")
    assert [row.split()[0] for row in rows if row] == ["CANCELLED", "CANCELLED"]
    kept = {str(path.relative_to(run_dir)) for path in run_dir.glob("artifacts/**/made.txt")}
    assert kept == {"artifacts/made.txt", "artifacts/n1/made.txt", "artifacts/n2/made.txt"}


AGAIN = """\
import os, pathlib, time
if os.environ["JOBSPEC_ATTEMPT"] == "1":
    pathlib.Path(os.environ["JOBSPEC_CHECKPOINT_DIR"], "step").write_text("7")
    print("saved", flush=True)
    time.sleep(300)
"""


def test_job_that_lost_a_node_goes_on_without_it_in_its_component(lab: Lab, tmp_shared: Path) -> None:
    (tmp_shared / "again.py").write_text(AGAIN)
    groups = [{"name": "trainer", "nodes": 1}, {"name": "envs", "nodes": 2, "slurm": {"partition": "low"}}]
    argv = [str(lab.python), str(tmp_shared / "again.py")]
    launched = lab.submit(spec(lab, "again", argv, groups, launch={"requeue": {"max_attempts": 2}}))
    run_dir = Path(launched["run_dir"])
    await_true((run_dir / "checkpoints/step").is_file, "a checkpoint", 90)
    lab.cluster.kill("n3", silently=True)
    assert lab.await_end(launched["job_id"])[0] == "COMPLETED"
    assert {path.name for path in (run_dir / "attempts/2/logs").iterdir()} == {"n1", "n2", "n4"}
    assert lab.status("last")["state"] == "COMPLETED"


def test_containers_of_the_living_are_removed_in_both_components(
    lab: Lab, tmp_shared: Path, need_runtime: Callable[[str], None]
) -> None:
    need_runtime("pyxis")
    job, run_dir = waiting(lab, tmp_shared, "contained", runtime="pyxis", cluster="lab-pyxis")
    names = lab.cluster.run("n1", ["enroot", "list"]).stdout
    assert run_dir.name in names
    lab.cluster.kill("n2")
    lab.await_end(job)
    for node in ("n1", "n4"):
        assert run_dir.name not in lab.cluster.run(node, ["enroot", "list"]).stdout, node


@pytest.mark.ray
@pytest.mark.slow
def test_example_trains_over_two_partitions(lab: Lab, tmp_shared: Path) -> None:
    for name in ("groups.py", "groups.yaml"):
        shutil.copy(CHECKOUT / "examples" / name, tmp_shared)
    sets = ("groups[2].slurm.partition=low", f"container.python={lab.python}", "repos=[]")
    more = [word for text in sets for word in ("--set", text)]
    command = f"train.command=[{lab.python}, {tmp_shared / 'groups.py'}]"
    said = passed(lab, tmp_shared / "groups.yaml", *more, "--set", command)
    assert "the driver is in trainer the engines are in ['rollout']" in said
    _, report = lab.report("last")
    assert report["deliverables"]["Learning"]["status"] == "Pass"
    assert len(lab.slurm("sacct", "-nXP", "-j", lab.status("last")["job_id"], "-o", "JobID").split()) == 2


def test_dry_run_asks_slurm_about_all_components(lab: Lab, tmp_shared: Path) -> None:
    made = spec(lab, "asked", ["true"], TWO_PARTITIONS)
    done = lab.jobspec("submit", made, "--dry-run", "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    told = json.loads(done.stdout)
    assert [row["role"].rpartition(", ")[2] for row in told["plan"]["nodes"]] == [
        "group trainer",
        "group rollout",
    ]
    assert told["forecast"]["start"] > 0


IMPORTED = """\
#!/bin/bash
#SBATCH --job-name=taken-over --time=10 --partition=main --nodes=1 --cpus-per-task=2
#SBATCH hetjob
#SBATCH --partition=low --nodes=2 --cpus-per-task=3 --mem=3G
SERVERS=($(scontrol show hostnames $SLURM_JOB_NODELIST_HET_GROUP_1))
srun --het-group=1 python3 FOLDER/env_server.py --port 8123 &
srun --het-group=0 python3 FOLDER/ask.py "http://${SERVERS[0]}:8123" ${#SERVERS[@]}
"""
SERVES = """\
import http.server, socket, sys
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(("envs on " + socket.gethostname()).encode())
http.server.HTTPServer(("", int(sys.argv[2])), Handler).serve_forever()
"""
ASKS = """\
import os, sys, urllib.request
print(os.environ["JOBSPEC_GROUP"], "of", sys.argv[2], urllib.request.urlopen(sys.argv[1]).read().decode())
"""


def test_imported_script_runs_as_it_is(lab: Lab, tmp_shared: Path) -> None:
    script = tmp_shared / "job.sbatch"
    for file, text in (
        (script, IMPORTED),
        (tmp_shared / "env_server.py", SERVES),
        (tmp_shared / "ask.py", ASKS),
    ):
        file.write_text(text.replace("FOLDER", str(tmp_shared)))
    made = tmp_shared / "taken-over.yaml"
    done = lab.jobspec("init", "--from-sbatch", script, "--cluster", "lab", "--out", made)
    assert done.returncode == 0, done.stdout + done.stderr
    dry = lab.jobspec("submit", made, "--dry-run", "--json")
    assert dry.returncode == 0 and json.loads(dry.stdout)["forecast"]["start"] > 0, dry.stdout + dry.stderr
    assert "main of 2 envs on n" in passed(lab, made)
    _, report = lab.report("last")
    assert report["deliverables"]["Service env-server"]["status"] == "Pass"
    rows = lab.slurm("sacct", "-nXP", "-j", lab.status("last")["job_id"], "-o", "Partition,NNodes").split()
    assert rows == ["main|1", "low|2"]


BREAKS = """\
import os, socket, sys, time
if os.environ["JOBSPEC_ATTEMPT"] == "1":
    if socket.gethostname() == "n3":
        time.sleep(1)
        sys.exit("RuntimeError: CUDA error: uncorrectable ECC error encountered")
    time.sleep(300)
"""
# `ENVS` get n3: the third component asks for n2, and Slurm excludes that from the other two.
FIRST = {"name": "trainer", "nodes": 1}
ENVS = {"name": "envs", "slurm": {"partition": "low"}}
THIRD = {"name": "judge", "nodes": 1, "slurm": {"partition": "low", "nodelist": "n2"}}


@pytest.fixture
def listed(lab: Lab) -> Iterator[Lab]:
    yield lab
    lab.jobspec("nodes", "remove", "n[1-4]")


def breaking(lab: Lab, folder: Path, name: str, groups: list[dict[str, Any]]) -> tuple[str, Path]:
    (folder / "breaks.py").write_text(BREAKS)
    argv = [str(lab.python), str(folder / "breaks.py")]
    launched = lab.submit(spec(lab, name, argv, groups, launch={"requeue": {"max_attempts": 2}}))
    return launched["job_id"], Path(launched["run_dir"])


def nodes_of(lab: Lab, run_dir: Path, attempt: int) -> list[str]:
    return [row["name"] for row in lab.results(str(run_dir), attempt)["nodes"]]


def test_broken_node_of_the_second_component_is_left_out_of_that_one(listed: Lab, tmp_shared: Path) -> None:
    job, run_dir = breaking(listed, tmp_shared, "breaks", [FIRST, {**ENVS, "nodes": 1}, THIRD])
    assert listed.await_end(job) == ("COMPLETED", "0:0"), log_of(run_dir)
    assert nodes_of(listed, run_dir, 1) == ["n1", "n3", "n2"]
    again = nodes_of(listed, run_dir, 2)
    assert again[2] == "n2" and {*again[:2]} == {"n1", "n4"}
    kept = listed.slurm("scontrol", "show", "job", "-o", job)
    assert re.findall(r"ExcNodeList=(\S+)", kept) == ["n2,n3", "n2,n3", "n3"]


@pytest.mark.parametrize(
    ("groups", "why"),
    [
        (
            [FIRST, {**ENVS, "nodes": 1, "slurm": {"partition": "low", "nodelist": "n3"}}],
            "Slurm would not start group envs without n3",
        ),
        ([FIRST, {**ENVS, "nodes": 2}, THIRD], "without n3 there are fewer nodes than the 4 of all groups"),
    ],
)  # fmt: skip
def test_component_that_cannot_do_without_a_node_is_told(
    listed: Lab, tmp_shared: Path, groups: list[dict[str, Any]], why: str
) -> None:
    """Slurm's forecast takes each component by itself: it would let the second of these wait for ever."""
    job, run_dir = breaking(listed, tmp_shared, f"stuck-{len(groups)}", groups)
    assert listed.await_end(job) == ("FAILED", "1:0"), log_of(run_dir)
    assert f"jobspec: {why}\n" in log_of(run_dir)
    assert "jobspec: another attempt might get n3 again: not requeued" in log_of(run_dir)


def log_of(run_dir: Path) -> str:
    return "\n".join(path.read_text() for path in run_dir.glob("job-*.log"))
