"""`jobspec init --from-sbatch` of heterogeneous jobs: scripts, and the answers that were written before."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.cli.test_from_sbatch import HEAD, SECRET, imported, said
from tests.kits.project_kit import Project

SCRIPTS = Path(__file__).with_name("het_scripts")
NAMES = sorted(path.stem for path in SCRIPTS.glob("*.sbatch"))


@pytest.mark.parametrize("name", NAMES)
def test_components_become_groups(project: Project, name: str) -> None:
    wanted: dict[str, Any] = yaml.safe_load((SCRIPTS / f"{name}.yaml").read_text())
    for file in wanted.get("files", ()):
        project.write(file, "")
    spec, site, notes, done = imported(project, (SCRIPTS / f"{name}.sbatch").read_text())
    assert spec == wanted["spec"]
    assert site["slurm"] == wanted["slurm"]
    for kind, words in wanted["notes"]:
        assert said(notes, kind, words), (kind, words, notes)
    assert components(rendered(project, done.json["files"])) == wanted["components"]


def rendered(project: Project, files: list[str]) -> str:
    done = project.cli("render", files[0], "--cluster-file", files[1], "--out", "out")
    assert done.code == 0, done.text
    return (project.root / "out/job.sbatch").read_text()


def components(script: str) -> list[list[Any]]:
    """Nodes, partition and GPUs that each component of a rendered job asks for."""
    directives = "\n".join(line for line in script.splitlines() if line.startswith("#SBATCH"))

    def asked(part: str, name: str) -> str:
        return next(iter(re.findall(rf"--(?:{name})=(\S+)", part)), "")

    return [
        [int(asked(part, "nodes")), asked(part, "partition"), asked(part, "gres|gpus-per-node")]
        for part in directives.split("#SBATCH hetjob")
    ]


def het(project: Project, *lines: str, more: str = "-p cpu") -> tuple[dict[str, Any], list[tuple[str, str]]]:
    script = f"{HEAD}#SBATCH -p gpu --gpus-per-node=2\n#SBATCH hetjob\n#SBATCH {more}\n" + "\n".join(lines)
    spec, _, notes, _ = imported(project, script + "\n")
    return spec, notes


TRAIN = "srun --het-group=0 python3 -m train"


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("srun --het-group=1 vllm serve m --port $((7000 + RANDOM)) &", "its port is not known"),
        ("srun --het-group=1 python3 -m reward_server &", "its port is not known"),
        ("srun --het-group=1 python3 -m reward_server --port 80 &", "its port is below 1024"),
        ("srun --het-group=0,1 python3 -m reward_server --port 8000 &", "it runs in several components"),
        ("srun --het-group=1 -N 1 -n 1 vllm serve m &", "it runs on 1 of 2 nodes"),
        ("srun --het-group=1 -n 8 vllm serve m &", "it is not one task on each node"),
        (
            "H=$(hostname -f)\nsrun --het-group=1 vllm serve m --host $H &",
            "only the script knows `$(hostname -f)`",
        ),
        ("srun --het-group=1 apptainer exec a.sif vllm serve m &", "one alone is in a container"),
        ("srun --het-group=7 vllm serve m &", "it runs in several components"),
    ],
)
def test_a_server_whose_place_is_not_clear_is_listed(project: Project, line: str, why: str) -> None:
    spec, notes = het(project, line, TRAIN, more="-p cpu -N 2")
    assert "services" not in spec
    assert said(notes, "danger", why), notes
    assert any(kind == "listed" for kind, _ in notes)
    assert [group["name"] for group in spec["groups"]] == ["gpu", "cpu"]


def test_servers_share_a_component_by_the_gpus_that_each_is_given(project: Project) -> None:
    spec, notes = het(
        project,
        "CUDA_VISIBLE_DEVICES=0,1 srun --het-group=1 vllm serve a --port 8001 &",
        "srun --het-group=1 --gpus-per-node=1 vllm serve b --port 8002 &",
        "srun --het-group=1 python3 -m judge_server --port 8003 &",
        TRAIN,
        more="-p infer --gpus-per-node=4",
    )
    assert [(one["name"], one.get("gpus"), one["port"]) for one in spec["services"]] == [
        ("vllm", 2, 8001), ("vllm-2", 1, 8002), ("judge-server", None, 8003),
    ]  # fmt: skip
    assert spec["services"][0]["command"] == ["vllm", "serve", "a", "--port", "8001"]
    assert said(notes, "told", "service `judge-server` shares the GPUs of group `infer`")


def test_a_server_in_another_image_has_its_container(project: Project) -> None:
    box = "--container-image=/images/{}.sqsh --container-mounts=/data:/data"
    spec, _ = het(
        project,
        f"srun --het-group=1 {box.format('vllm')} vllm serve a &",
        f"srun --het-group=0 {box.format('train')} python3 -m train",
    )
    mounts = [{"source": "/data", "target": "/data"}]
    assert spec["container"] == {"image": "/images/train.sqsh", "mounts": mounts}
    assert spec["services"][0]["container"] == {"image": "/images/vllm.sqsh", "mounts": mounts}


def test_a_secret_of_a_server_is_its_variable(project: Project) -> None:
    spec, _ = het(project, f"HF_TOKEN={SECRET} srun --het-group=1 vllm serve a &", TRAIN)
    assert spec["services"][0] == {
        "name": "vllm", "command": ['set -u\nenv "HF_TOKEN=$HF_TOKEN" vllm serve a'], "shell": True,
        "on": "cpu", "port": 8000, "ready": {"http": "/health", "timeout": 1800},
    }  # fmt: skip
    assert spec["secrets"] == ["HF_TOKEN"]
    assert not any(SECRET in path.read_text() for path in project.root.glob("*.yaml"))


def test_what_slurm_hands_on_to_the_next_component_is_asked_for_there(project: Project) -> None:
    script = (
        f"{HEAD}#SBATCH -A a -p gpu --reservation=r -q high --switches=1\n#SBATCH hetjob\n"
        "#SBATCH -A b -q low --switches=1\n#SBATCH hetjob\n#SBATCH -p gpu\n"
        "srun --het-group=0-2 python3 -m train\n"
    )
    spec, site, notes, _ = imported(project, script)
    assert site["slurm"] == {
        "account": "a", "partition": "gpu", "qos": "high", "extra_sbatch": ["--switches=1"],
    }  # fmt: skip
    assert [(group["name"], group.get("slurm")) for group in spec["groups"]] == [
        ("gpu-0", None),
        ("group-1", {"account": "b", "partition": "", "qos": "low"}),
        ("gpu-2", {"account": "b", "qos": "low"}),
    ]
    assert spec["slurm"] == {"reservation": "r"}
    assert spec["train"] == {"command": ["python3", "-m", "train"]}  # on all nodes, as it was
    assert said(notes, "told", "`--switches=1` of component 0 holds for all groups")


def test_components_of_one_kind_are_groups_too(project: Project) -> None:
    spec, _ = het(project, "python3 -m train", more="-p gpu --gpus-per-node=2 --time=1:00:00")
    assert [group["name"] for group in spec["groups"]] == ["gpu-0", "gpu-1"]
    assert spec["train"]["command"] == [
        'set -u\ncase "$JOBSPEC_GROUP" in\ngpu-0) exec python3 -m train ;;\nesac'
    ]


def test_a_program_that_nobody_waits_for_is_not_part_of_the_run(project: Project) -> None:
    spec, notes = het(project, "srun --het-group=1 python3 -m watch &", TRAIN)
    assert "watch" not in spec["train"]["command"][0]
    assert said(notes, "danger", "`python3 -m watch` beside the driver is started by nobody now")
    assert said(notes, "listed", "`python3 -m watch`")


def test_programs_that_the_script_waits_for_are_one_command(project: Project) -> None:
    spec, _ = het(project, "srun --het-group=1 python3 -m watch &", f"{TRAIN} &", "wait")
    assert "cpu) exec python3 -m watch ;;" in spec["train"]["command"][0]


def test_sizes_by_task_are_those_of_a_node(project: Project) -> None:
    more = "-p cpu -N 2 -n 8 -c 3 --mem-per-cpu=2G --ntasks-per-core=1"
    spec, notes = het(project, "srun --het-group=1 hostname", TRAIN, more=more)
    assert spec["groups"][1] == {
        "name": "cpu", "nodes": 2, "gpus_per_node": 0, "cpus_per_node": 12, "memory": "24G",
        "slurm": {"partition": "cpu"},
    }  # fmt: skip
    assert said(notes, "listed", "`--ntasks-per-core=1` of component 1: a group has no key for it")
    assert said(notes, "replaced", "`hostname`")


def test_different_numbers_of_tasks_are_told(project: Project) -> None:
    notes = het(project, "srun --het-group=0,1 python3 -m train", more="-p cpu --ntasks-per-node=4")[1]
    assert said(notes, "danger", "the components start different numbers: 1, 4")


def test_tasks_without_nodes_are_listed(project: Project) -> None:
    notes = het(project, TRAIN, more="-p cpu -n 128")[1]
    assert said(notes, "listed", "`--ntasks=128` of component 1")


def test_host_names_of_a_component_are_those_of_its_group(project: Project) -> None:
    spec, _ = het(
        project,
        "readarray -t H < <(scontrol show hostnames ${SLURM_JOB_NODELIST_HET_GROUP_1})",
        "B=$(scontrol show hostnames $SLURM_JOB_NODELIST_HET_GROUP_1 | tr '\\n' ',')",
        'srun --het-group=0 python3 -m train ${H[0]} ${#H[@]} $B --list "$SLURM_JOB_NODELIST_HET_GROUP_1"',
        more="-p cpu -N 3",
    )
    (text,) = spec["train"]["command"]
    words = '"$${JOBSPEC_GROUP_CPU%%,*}" 3 "$JOBSPEC_GROUP_CPU" --list "$${JOBSPEC_GROUP_CPU}"'
    assert f"gpu) exec python3 -m train {words} ;;" in text


def test_components_of_a_call_of_sbatch_are_listed(project: Project) -> None:
    _, _, notes, _ = imported(
        project, "#!/bin/bash\npython3 -m train\nsbatch -N1 -t 60 : -N2 -p cpu job.sh\n"
    )
    assert said(notes, "listed", "`sbatch … : -N2 -p cpu job.sh`: further components")


def test_tasks_of_the_drivers_component_count(project: Project) -> None:
    more = "-p cpu -N 2 --ntasks-per-node=4 -c 2"
    spec, notes = het(project, "srun --het-group=1 python3 -m train", more=more)
    assert spec["launch"] == {"mode": "srun", "tasks_per_node": 4}
    assert [(group["name"], group.get("cpus_per_node")) for group in spec["groups"]] == [
        ("cpu", 8),
        ("gpu", None),
    ]
    assert not said(notes, "danger", "tasks_per_node")
