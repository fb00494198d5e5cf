"""Free sbatch options beside those of the job script: refused, or fine."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from jobspec.checks.sbatch_options import options_agree
from jobspec.finding import Finding
from jobspec.plan import Plan, SlurmPlan
from jobspec.rendering.files import directives
from jobspec.spec.find_site import parse_cluster
from jobspec.spec.load import parse_spec
from jobspec.spec.sbatch import GPUS, KEYS, OWN, bad_options, read_option

SLURM = SlurmPlan(
    account="research", partition="gpu", qos="normal", time="1-00:00:00", gpus="gres", memory="120G",
    cpus_per_task=32,
)  # fmt: skip
PLAN = Plan("x", "command", "lab", "slurm", "ray", nodes=2, gpus_per_node=8, slurm=SLURM)
SPEC = parse_spec("version: 1\nname: x\nframework: command\ntrain: {command: [x]}\n", "/s.yaml", env={}).spec
PROFILE = parse_cluster(
    "{version: 1, name: lab, scheduler: slurm, paths: {runs: /r}}", Path("lab.yaml"), "", {}
).profile


def findings(option: str, **slurm: object) -> list[Finding]:
    plan = replace(PLAN, slurm=replace(SLURM, extra_sbatch=(option,), **slurm))  # type: ignore[arg-type]
    return list(options_agree(plan, SPEC, PROFILE))


@pytest.mark.parametrize(
    ("option", "ours"),
    [
        ("--mem-per-cpu=3968M", "--mem=120G"),
        ("--mem-per-gpu=64G", "--mem=120G"),
        ("--cpus-per-gpu=8", "--cpus-per-task=32"),
        ("--gres=nvme:1", "--gres=gpu:8"),
    ],
)
def test_a_contradiction_is_an_error_that_names_both(option: str, ours: str) -> None:
    (found,) = findings(option)
    assert found.is_error
    assert f"`{option}`" in found.what
    assert f"`{ours}`" in found.what


def test_an_option_of_the_spec_is_named_there() -> None:
    text = "version: 1\nname: x\nframework: command\ntrain: {command: [x]}\n"
    text += "slurm: {extra_sbatch: [--mem-per-cpu=1G]}\n"
    spec = parse_spec(text, "/s.yaml", env={}).spec
    plan = replace(PLAN, slurm=replace(SLURM, extra_sbatch=("--switches=1", "--mem-per-cpu=1G")))
    (found,) = options_agree(plan, spec, PROFILE)
    assert found.path == "slurm.extra_sbatch[0]"
    assert found.fix == "remove `--mem-per-cpu=1G` from the spec"


@pytest.mark.parametrize(
    "option",
    [
        "--switches=1",
        "--comment=two words",
        "--container=/bundle",
        "--no-kill",
        "--mem-bind=local",
        "--gres=nvme:1",
        "--tres-per-task=cpu:4",
        "--mem-per-cpu=1G",
        "--wait-all-nodes=1",
        "--cluster-constraint=fast",
        "--use-min-nodes",
        "--hold",
    ],
)
def test_an_option_of_its_own_is_fine(option: str) -> None:
    assert [*bad_options([option], gpus_are_asked=True)] == []
    assert findings(option, gpus="none", memory="") == []


def test_another_resource_beside_the_gpus_is_fine() -> None:
    assert findings("--gres=nvme:1", gpus="gpus-per-node") == []


def test_a_site_that_asks_for_no_gpus_itself_may_do_so() -> None:
    assert [*bad_options(["--gres=gpu:h100:8"], gpus_are_asked=False, of_site=True)] == []
    assert findings("--gres=gpu:h100:8", gpus="none") == []


@pytest.mark.parametrize(
    ("option", "fix"),
    [
        ("--partition=debug", "write `slurm.partition: debug` in its place"),
        ("-pdebug", "write `slurm.partition: debug` in its place"),
        ("-C h200", "write `slurm.constraint: h200` in its place"),
        ("--mail-type=END", "write `slurm.mail.events: [end]` in its place"),
        ("--nodelist=n1", "write `slurm.nodelist: n1` in a spec"),
        ("--time=60", "use `resources.time` of a spec in its place"),
        ("--tasks-per-node=8", "use `launch.tasks_per_node` of a spec in its place"),
        ("--requeue", "use `launch.requeue.max_attempts` of a spec in its place"),
        ("-o out", "remove it"),
        ("--outp=out", "remove it"),
        ("--part=debug", "write `slurm.partition: debug` in its place"),
        ("--part debug", "write `slurm.partition: debug` in its place"),
        ("--switches 1", "write `--switches=1`"),
        ("--comment = x", "write `--comment=x`"),
        ("--reservation rl", "write `slurm.reservation: rl` in its place"),
        ("switches=1", "write it like `--switches=1`"),
        ("--", "write it like `--switches=1`"),
        ("--wait", "remove it: `jobspec run` waits for the end"),
        ("-W", "remove it: `jobspec run` waits for the end"),
        ("--test", "remove it: `jobspec submit --dry-run` asks for the start"),
        ("-M other", "remove it, and write a profile for that cluster"),
        ("--cluster=other", "remove it, and write a profile for that cluster"),
        ("-F nodes.txt", "write the file's nodes in `slurm.nodelist`"),
        ("--uid=ann", "remove it, and submit as that user"),
        ("--export-file=env", "use `container.env` of a spec in its place"),
        ("--ntasks-per-gpu=1", "remove it"),
        ("--array=0-3", "use `sweep` of a spec in its place"),
        ("--wrap=hostname", "remove it"),
    ],
)
def test_an_option_that_a_key_stands_for_or_that_is_none_is_told_what_to_write(option: str, fix: str) -> None:
    (bad,) = bad_options([option], gpus_are_asked=True, of_site=True)
    assert bad.fix == fix
    assert f"`{option}`" in bad.what


@pytest.mark.parametrize(
    "option",
    [
        "--gres=gpu:4",
        "-G 8",
        "--gpus-per-node=4",
        "--gres=gres/gpu:h100:8,nvme:1",
        "--gpus-per-socket=2",
        "--tres-per-task=cpu:4,gres/gpu:1",
        "--tres-per-task=cpu=4,gres/gpu=1",
    ],
)
def test_gpus_are_asked_for_by_their_keys(option: str) -> None:
    (bad,) = bad_options([option], gpus_are_asked=True)
    assert "`resources.gpus_per_node`" in bad.why


def test_whole_nodes_leave_the_memory_to_a_site_that_names_it() -> None:
    """`--mem=0` beside the site's `--mem-per-cpu` would end every job of several nodes."""
    assert findings("--mem-per-cpu=3968M", memory="", exclusive=True) == []
    plan = replace(
        PLAN, slurm=replace(SLURM, memory="", exclusive=True, extra_sbatch=("--mem-per-cpu=3968M",))
    )
    assert [line for line in directives(plan, "/r") if line.startswith("--mem")] == ["--mem-per-cpu=3968M"]
    assert "--mem=0" in [*directives(replace(plan, slurm=replace(plan.slurm, extra_sbatch=())), "/r")]


def test_every_option_of_the_job_script_is_refused_in_the_free_ones() -> None:
    full = SlurmPlan(
        account="x", partition="x", qos="x", reservation="x", constraint="x", nodelist="x", exclude="x",
        licenses="x", nice=1, begin="x", dependency=("singleton",), mail_events=("end",), mail_user="x",
        time="1", gpus="gres", exclusive=True, memory="1G", cpus_per_task=1, array="0-3", requeue_max=2,
    )  # fmt: skip
    script = {read_option(line).name for line in directives(replace(PLAN, slurm=full), "/r")}
    assert len(script) > 25
    assert script <= {*KEYS, *OWN, *GPUS, "signal"}  # a site may have a warning signal of its own


# Options of sbatch(1), Slurm 22.05; the first ones leave a submission what it is.
FREE = """
acctg-freq batch bb bbf cluster-constraint comment container contiguous core-spec cores-per-socket
cpu-freq cpus-per-gpu deadline delay-boot distribution extra-node-info get-user-env gpu-bind gpu-freq
gres-flags help hint hold ignore-pbs kill-on-invalid-dep mcs-label mem-bind mem-per-cpu mem-per-gpu
mincpus network no-kill ntasks-per-core ntasks-per-socket overcommit power prefer priority profile
propagate quiet reboot signal sockets-per-node spread-job switches thread-spec threads-per-core time-min
tmp usage use-min-nodes verbose version wait-all-nodes wckey
"""
REFUSED = """
account array begin chdir clusters constraint cpus-per-task dependency error exclude exclusive export
export-file gid gpus gpus-per-node gpus-per-socket gpus-per-task input job-name licenses mail-type
mail-user mem nice no-requeue nodefile nodelist nodes ntasks ntasks-per-gpu ntasks-per-node open-mode
output oversubscribe parsable partition qos requeue reservation test-only time uid wait wrap
"""


def test_whole_list_of_sbatch_is_refused_or_free() -> None:
    """`gres` is either: refused where it names GPUs."""
    names = {*FREE.split(), *REFUSED.split()}
    assert {name for name in names if [*bad_options([f"--{name}"], gpus_are_asked=True)]} == {
        *REFUSED.split()
    }
