"""Launch modes on several nodes: srun ranks, Ray in containers, job arrays."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.slurm.lab import Lab, await_true

pytestmark = [pytest.mark.slurm]

RANKS = """\
import json, os, socket, sys
names = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "NODE_RANK", "MASTER_ADDR", "MASTER_PORT")
row = {**{name: os.environ[name] for name in names}, "host": socket.gethostname()}
with open(f"{sys.argv[1]}/rank-{row['RANK']}.json", "w") as file:
    json.dump(row, file)
"""


def test_srun_mode_gives_every_task_its_rank(lab: Lab, tmp_shared: Path) -> None:
    script = tmp_shared / "ranks.py"
    script.write_text(RANKS)
    spec = lab.command_spec(
        "ranks", ["python3", str(script), str(tmp_shared)], nodes=4, launch={"tasks_per_node": 2}
    )
    done = lab.jobspec("run", spec)
    assert done.returncode == 0, done.stdout + done.stderr
    rows = [json.loads(path.read_text()) for path in sorted(tmp_shared.glob("rank-*.json"))]
    assert [int(row["RANK"]) for row in rows] == list(range(8))
    assert {row["WORLD_SIZE"] for row in rows} == {"8"}
    assert {row["LOCAL_WORLD_SIZE"] for row in rows} == {"2"}
    assert [row["host"] for row in rows] == ["n1", "n1", "n2", "n2", "n3", "n3", "n4", "n4"]
    assert [int(row["NODE_RANK"]) for row in rows] == [0, 0, 1, 1, 2, 2, 3, 3]
    assert [int(row["LOCAL_RANK"]) for row in rows] == [0, 1] * 4
    assert len({(row["MASTER_ADDR"], row["MASTER_PORT"]) for row in rows}) == 1


WHERE = """\
import ray, ray.util.scheduling_strategies
ray.init()
nodes = [node for node in ray.nodes() if node["Alive"]]
@ray.remote(num_cpus=0)
def where():
    import socket
    return socket.gethostname()
on = ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy
tasks = [where.options(scheduling_strategy=on(node["NodeID"], soft=False)).remote() for node in nodes]
print("NODES", sorted(ray.get(tasks)))
"""


@pytest.mark.ray
@pytest.mark.slow
@pytest.mark.parametrize("runtime", ["bubblewrap", "charliecloud", "oci", "pyxis"])
def test_ray_reaches_every_node_in_containers(lab: Lab, need_runtime, tmp_shared: Path, runtime: str) -> None:  # type: ignore[no-untyped-def]
    need_runtime(runtime)
    script = tmp_shared / "where.py"
    script.write_text(WHERE)
    spec = lab.command_spec(
        f"ray-{runtime}",
        [str(lab.python), str(script)],
        nodes=2,
        mode="ray",
        runtime=runtime,
    )
    done = lab.jobspec("run", spec, cluster=f"lab-{runtime}")
    assert done.returncode == 0, done.stdout + done.stderr
    logs = lab.jobspec("logs", "last")
    assert "NODES ['n1', 'n2']" in logs.stdout, logs.stdout
    run_dir = lab.status("last")["run_dir"]
    ended = {(event["phase"], event["outcome"]) for event in lab.events(run_dir) if event["event"] == "end"}
    assert ("ray", "ok") in ended
    assert ("driver", "ok") in ended


def test_sweep_is_one_job_array(lab: Lab, tmp_shared: Path) -> None:
    spec = lab.command_spec(
        "sweep",
        ["bash", "-c", f"echo $POINT > {tmp_shared}/$POINT; test $POINT != c"],
        container={"python": str(lab.python), "env": {"POINT": "none"}},
        sweep={"grid": {"container.env.POINT": ["a", "b", "c"]}},
    )
    done = lab.jobspec("run", spec)
    assert done.returncode == 1, done.stdout + done.stderr
    assert sorted(path.name for path in tmp_shared.iterdir()) == ["a", "b", "c"]
    status = lab.status("last")
    assert status["points"] == 3
    assert status["state"] == "FAILED"
    tasks = status["scheduler"]["tasks"]
    assert {index: task["state"] for index, task in tasks.items()} == {
        "0": "COMPLETED",
        "1": "COMPLETED",
        "2": "FAILED",
    }
    wanted = [f"{status['job_id']}_{index}" for index in range(3)]

    def recorded() -> list[str]:
        return lab.slurm("sacct", "-X", "-n", "-P", "-j", status["job_id"], "-o", "JobID").split()

    await_true(
        lambda: recorded() == wanted, "one array of three tasks in accounting", 30, lambda: str(recorded())
    )
