"""What sinfo, scontrol and `sbatch --test-only` print, read as a forecast. tests/slurm asks the real ones."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from jobspec.launchers.access.here import LocalClient
from jobspec.launchers.slurm import forecast as told
from jobspec.launchers.slurm.forecast import Gpus, Maintenance
from jobspec.plan import GroupPlan, Plan, SlurmPlan

NODES = """\
n1 idle gpu:h200:8(S:0-1,3) gpu:h200:0(IDX:N/A) n/a 1-00:00:00 batch*
n2 mix gpu:h200:8(S:0-1) gpu:h200:3(IDX:0,2-3) n/a 1-00:00:00 batch*
n3 drain gpu:a100:4 gpu:a100:0 n/a 1-00:00:00 batch*
n4 down* gpu:8,nvme:1 gpu:0 n/a 1-00:00:00 batch*
n9 idle gpu:b300:8 gpu:b300:0 n/a infinite other
"""
RESERVATION = (
    "ReservationName={name} StartTime={start} EndTime={end} Duration=1:00:00 Nodes={nodes} NodeCnt=2 "
    "PartitionName=(null) Flags={flags} Users=root State=INACTIVE\n"
)
PLAN = Plan("x", "command", "lab", "slurm", "srun", nodes=1, gpus_per_node=8, time_limit_s=3600)
NOW = 1_000_000


def ahead(plan: Plan, **changed: object) -> Maintenance | None:
    fields = {
        "name": "maint",
        "start": NOW + 1830,
        "end": NOW + 9000,
        "nodes": "n[1-4]",
        "flags": "MAINT,SPEC_NODES",
    }
    text = RESERVATION.format(**{**fields, **changed})
    return told._ahead(told.parse_reservations(text), plan, told.parse_nodes(NODES), NOW)


def test_idle_gpus_by_type_are_those_of_the_default_partition() -> None:
    assert told.gpus_of(told.parse_nodes(NODES)) == (Gpus("", 0, 8), Gpus("a100", 0, 4), Gpus("h200", 13, 16))


def test_a_maintenance_within_the_limit_leaves_whole_minutes() -> None:
    assert ahead(PLAN) == Maintenance("maint", NOW + 1830, NOW + 9000, 30)


@pytest.mark.parametrize(
    "changed",
    [
        {"start": NOW + 3600},
        {"flags": "SPEC_NODES"},
        {"nodes": "n1"},  # n2 is left
        {"start": NOW - 9000, "end": NOW - 1},
        {"nodes": "(null)"},
    ],
)
def test_what_does_not_stand_in_the_way_is_not_told(changed: dict[str, object]) -> None:
    assert ahead(PLAN, **changed) is None


def test_the_runs_own_reservation_is_none_of_it() -> None:
    assert ahead(replace(PLAN, slurm=SlurmPlan(reservation="maint"))) is None


def test_without_a_limit_the_partitions_own_counts() -> None:
    plan = replace(PLAN, time_limit_s=None)
    assert ahead(plan, start=NOW + 86399, end=NOW + 90000) is not None
    assert ahead(plan, start=NOW + 86401, end=NOW + 90000) is None


def test_one_that_is_under_way_leaves_nothing() -> None:
    found = ahead(PLAN, start=NOW - 60)
    assert found is not None
    assert found.longest == 0


class Programs:
    """A client whose programs are scripts of this test."""

    def __init__(self, folder: Path, **scripts: str) -> None:
        for name, text in scripts.items():
            (folder / name).write_text(f"#!/bin/bash\n{text}\n")
            (folder / name).chmod(0o755)
        self.folder = folder

    def client(self, monkeypatch: pytest.MonkeyPatch) -> LocalClient:
        monkeypatch.setenv("PATH", f"{self.folder}:/usr/bin:/bin")
        return LocalClient()


@pytest.mark.parametrize(
    "words",
    [
        "using 16 processors on nodes n[1-2] in partition batch",
        "a using 16 processors on nodes n[1-2] in partition batch",  # 26.05
        "on cluster lab a using 16 processors on nodes n[1-2] in partition batch",  # with several clusters
        "using 16 processors on n[1-2]",  # a heterogeneous job
    ],
)
def test_start_and_nodes_by_the_test_of_sbatch(
    words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = f"sbatch: Job 7 to start at 1000060 {words}"
    client = Programs(
        tmp_path,
        sbatch=f"[[ $SLURM_TIME_FORMAT$1$(cat) == %s--test-onlyscript ]] && echo '{said}' >&2",
        sinfo=f"cat <<'END'\n{NODES}END",
        scontrol="echo No reservations in the system",
    ).client(monkeypatch)
    found = told.foresee(client, PLAN, "script")
    assert (found.start, found.nodes, found.refused, found.unanswered) == (1000060, "n[1-2]", "", "")
    assert [gpus.type for gpus in found.gpus] == ["", "a100", "h200"]
    assert [*found.findings()] == []


@pytest.mark.parametrize(
    ("exclude", "listed", "short"),
    [
        ("", (), None),
        ("n[1-2],n9", (), None),  # n3 and n4 may come back, and n9 is in another partition
        ("n[1-3]", ("n3",), told.Short(2, 4, 1, ("n1", "n2", "n3"), ("n3",), "lab")),
        ("n[1-3]", (), told.Short(2, 4, 1, ("n1", "n2", "n3"), (), "lab")),
        ("n[1-", (), None),
    ],
)
def test_too_few_nodes_beside_the_excluded_ones_are_told(
    exclude: str, listed: tuple[str, ...], short: told.Short | None,
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    client = Programs(tmp_path, sinfo=f"cat <<'END'\n{NODES}END", scontrol="").client(monkeypatch)
    plan = replace(PLAN, nodes=2, slurm=SlurmPlan(exclude=exclude, avoided=listed))
    found = told.foresee(client, plan)
    assert found.short == short
    findings = [*found.findings()]
    if short is None:
        assert findings == []
        return
    (item,) = findings
    assert (item.rule, item.is_error, item.path) == ("nodes.too-many-excluded", True, "slurm.exclude")
    assert item.what == "1 of the partition's 4 nodes are left, and the run needs 2"
    assert item.why == "excluded are `n1`, `n2`, `n3`"
    assert ("`jobspec nodes remove n3 --cluster lab`" in item.fix) == bool(listed)
    assert ("`slurm.exclude`" in item.fix) != bool(listed)


def test_each_component_needs_the_nodes_of_its_own_partition(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = Programs(tmp_path, sinfo=f"cat <<'END'\n{NODES}END", scontrol="").client(monkeypatch)
    batch = GroupPlan("trainer", 0, 4, slurm=SlurmPlan(partition="batch", exclude="n9"))
    other = GroupPlan("envs", 4, 1, slurm=SlurmPlan(partition="other", exclude="n9"))
    plan = replace(PLAN, nodes=5, groups=(batch, other), slurm=batch.slurm)
    found = told.foresee(client, plan)
    assert found.short == told.Short(1, 1, 0, ("n9",), (), "lab")
    assert [gpus.type for gpus in found.gpus] == ["", "a100", "b300", "h200"]


def test_a_refusal_is_told_with_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    client = Programs(
        tmp_path,
        sinfo="",
        scontrol="",
        sbatch="echo 'allocation failure: Invalid qos specification' >&2; exit 1",
    ).client(monkeypatch)
    (item,) = told.foresee(client, PLAN, "script").findings()
    assert (item.rule, item.is_error) == ("launch.refused", True)
    assert "`slurm.qos`" in item.fix


@pytest.mark.parametrize(
    "sbatch", ["echo 'fatal: Could not establish a configuration source' >&2; exit 1", ""]
)
def test_a_slurm_that_is_away_stops_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sbatch: str
) -> None:
    scripts = {"sbatch": sbatch} if sbatch else {}
    client = Programs(tmp_path, sinfo="echo away >&2; exit 1", scontrol="", **scripts).client(monkeypatch)
    found = told.foresee(client, PLAN, "script" if sbatch else "")
    assert ("configuration source" if sbatch else "away") in found.unanswered
    assert (found.start, found.gpus, [*found.findings()]) == (0, (), [])
