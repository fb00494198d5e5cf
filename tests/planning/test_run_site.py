"""A spec's own `slurm` and its kind of GPU over the site's profile: values, origins, bounds."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from jobspec.cli import main
from jobspec.planning.lock import lock_data
from jobspec.planning.resolve import Resolved, resolve
from jobspec.runs import avoided
from jobspec.runs.avoided import Avoided
from jobspec.runs.paths import RunPaths
from jobspec.runs.records import Launch, write_json, write_launch
from jobspec.spec.find_site import parse_cluster
from jobspec.spec.load import parse_spec
from jobspec.spec.paths import Origin
from jobspec.spec.yaml.dump import dump_spec

RUN = "20261128-013207-f5c483"
H200 = {"cpus": 192, "gpus": 8, "gpu_memory": "141G"}
SITE: dict[str, Any] = {
    "version": 1,
    "name": "lab",
    "slurm": {
        "account": "rl",
        "partition": "batch",
        "qos": "normal",
        "exclude": "n9",
        "mail": {"user": "ann@example.org"},
        "extra_sbatch": ["--switches=1"],
        "gpu_types": {
            "h100": {"gres": "h100"},
            "h200": {"partition": "gpu-h200,gpu-long", "node": H200},
            "a100": {"constraint": "a100"},
            "ada": {"constraint": "l40|l40s"},
        },
    },
    "paths": {"runs": "/shared/runs"},
    "node": {"cpus": 96, "gpus": 4, "gpu_memory": "80G"},
    "limits": {"max_nodes": 64, "max_time": "24:00:00"},
}
OFFERED = {
    **SITE,
    "limits": {
        "max_nodes": 64,
        "max_time": "24:00:00",
        "partitions": {"debug": {"max_nodes": 2, "max_time": "00:30:00"}, "long": {"max_time": "7-00"}},
    },
}
LOCAL = {"version": 1, "name": "here", "scheduler": "local"}


def resolved(
    site: dict[str, Any] = SITE, sets: tuple[str, ...] = (), home: str = "/home/ann", **keys: Any
) -> Resolved:
    data = {"version": 1, "name": "x", "framework": "command", "train": {"command": ["x"]}, **keys}
    loaded = parse_spec(dump_spec(data), "/specs/spec.yaml", sets, env={})
    owner = {"USER": "ann", "HOME": home}
    return resolve(
        loaded, parse_cluster(dump_spec(site), Path("lab.yaml"), "--cluster-file", owner), env=owner
    )


def test_the_specs_values_win_and_what_it_leaves_out_is_the_sites() -> None:
    found = resolved(
        slurm={"qos": "high", "exclude": "n[1-2]", "extra_sbatch": ["--comment=x"], "nodelist": "n3"}
    )
    slurm = found.ready_plan.slurm
    assert (slurm.account, slurm.partition, slurm.qos) == ("rl", "batch", "high")
    assert (slurm.exclude, slurm.nodelist) == ("n9,n[1-2]", "n3")
    assert slurm.extra_sbatch == ("--switches=1", "--comment=x")
    assert slurm.mail_user == "ann@example.org"
    assert found.origins["slurm.account"] == Origin("cluster", "lab")
    assert found.origins["slurm.mail.user"] == Origin("cluster", "lab")
    assert found.origins["slurm.exclude"] == Origin("cluster", "lab and the spec")
    assert found.origins["slurm.qos"].kind == "spec"


def test_a_value_by_set_and_an_empty_one_that_asks_for_none() -> None:
    slurm = resolved(sets=("slurm.partition=long", "slurm.qos=''")).ready_plan.slurm
    assert (slurm.partition, slurm.qos) == ("long", "")


@pytest.mark.parametrize(
    ("kind", "gpus", "asked"),
    [
        ("h100", "gres", {"gpu_type": "h100"}),
        ("h200", "gres", {"partition": "gpu-h200,gpu-long"}),
        ("a100", "gres", {"constraint": "(ib|roce)&a100"}),
        ("ada", "gres", {"constraint": "(ib|roce)&(l40|l40s)"}),
    ],
)
def test_a_kind_of_gpu_by_gres_by_partition_or_by_feature(
    kind: str, gpus: str, asked: dict[str, str]
) -> None:
    found = resolved(resources={"gpu_type": kind}, slurm={"constraint": "ib|roce"})
    slurm = found.ready_plan.slurm
    assert {key: getattr(slurm, key) for key in asked} == asked
    assert found.ready_plan.gpus_per_node == (8 if kind == "h200" else 4)  # of the node that the kind is in
    if kind == "h200":
        assert slurm.cpus_per_task == 192
        assert found.origins["slurm.partition"] == Origin("cluster", "lab, gpu_type h200")


@pytest.mark.parametrize(
    ("own", "asked"),
    [
        ("[rack1|rack2]", "[rack1|rack2]&(l40|l40s)"),
        ("[ib*1&roce*1]", "[ib*1&roce*1]&(l40|l40s)"),
        ("(ib|roce)&nvme", "(ib|roce)&nvme&(l40|l40s)"),
        ("ib|roce&nvme", "(ib|roce&nvme)&(l40|l40s)"),
    ],
)
def test_brackets_keep_their_meaning_beside_a_kind_of_gpu(own: str, asked: str) -> None:
    """Slurm 22.05 takes nodes of both racks for `([rack1|rack2])&l40`, and refuses `([ib*1&roce*1])&l40`."""
    found = resolved(resources={"gpu_type": "ada"}, slurm={"constraint": own})
    assert found.ready_plan.slurm.constraint == asked


def test_two_pairs_of_brackets_are_refused() -> None:
    kinds = {"rack": {"constraint": "[rack1|rack2]"}}
    site = {**SITE, "slurm": {**SITE["slurm"], "gpu_types": kinds}}
    found = resolved(site, resources={"gpu_type": "rack"}, slurm={"constraint": "[ib|roce]"})
    (wrong,) = errors(found)
    assert wrong == (
        "resources.gpu-type",
        "slurm.constraint",
        "remove the brackets, or ask for another kind of GPU",
    )


def errors(found: Resolved) -> list[tuple[str, str, str]]:
    return [(item.rule, item.path, item.fix) for item in found.findings if item.is_error]


@pytest.mark.parametrize(
    ("site", "keys", "wrong"),
    [
        (SITE, {"resources": {"gpu_type": "h20"}}, ("resources.gpu-type", "resources.gpu_type", "`h200`")),
        (SITE, {"resources": {"gpu_type": "b300"}}, ("resources.gpu-type", "resources.gpu_type", "`h100`, ")),
        (
            {**SITE, "slurm": {}},
            {"resources": {"gpu_type": "b300"}},
            ("resources.gpu-type", "resources.gpu_type", "{b300: {gres: b300}}"),
        ),
        (
            SITE,
            {"resources": {"gpu_type": "h200"}, "slurm": {"partition": "debug"}},
            ("resources.partition", "slurm.partition", "remove `slurm.partition`"),
        ),
        (OFFERED, {"slurm": {"partition": "debgu"}}, ("resources.partition", "slurm.partition", "`debug`")),
        (
            OFFERED,
            {"slurm": {"partition": "debug"}, "resources": {"nodes": 3, "time": "00:10:00"}},
            ("resources.max-nodes", "resources.nodes", "use 2 or fewer"),
        ),
        (
            OFFERED,
            {"slurm": {"partition": "debug"}, "resources": {"time": "01:00:00"}},
            ("resources.max-time", "resources.time", "use 0-00:30:00 or less"),
        ),
        (OFFERED, {"resources": {"time": "2-00"}}, ("resources.max-time", "resources.time", "1-00:00:00")),
    ],
)
def test_bounds(site: dict[str, Any], keys: dict[str, Any], wrong: tuple[str, str, str]) -> None:
    (found,) = errors(resolved(site, **keys))
    assert found[:2] == wrong[:2]
    assert wrong[2] in found[2]


def test_a_partitions_own_limit_holds_in_place_of_the_sites() -> None:
    assert errors(resolved(OFFERED, slurm={"partition": "long"}, resources={"time": "6-00"})) == []


def test_one_of_the_partitions_of_a_kind_may_be_named() -> None:
    found = resolved(resources={"gpu_type": "h200"}, slurm={"partition": "gpu-long"})
    assert found.ready_plan.slurm.partition == "gpu-long"


def test_without_slurm_the_keys_are_told_to_do_nothing() -> None:
    found = resolved(LOCAL, slurm={"partition": "x"}, resources={"gpu_type": "h200"})
    told = [(item.rule, item.path) for item in found.findings]
    assert ("resources.unused", "slurm") in told
    assert ("resources.unused", "resources.gpu_type") in told
    assert found.plan is not None


@pytest.mark.parametrize(
    ("resources", "node", "missing"),
    [
        ({}, {"gpus": 4}, ["CPUs", "memory"]),
        ({"cpus_per_node": 8}, {"gpus": 4}, ["memory"]),
        ({"cpus_per_node": 8, "memory": "64G"}, {"gpus": 4}, []),
        ({"exclusive": True}, {"gpus": 4}, []),
        ({"gpus_per_node": 0}, {"gpus": 4}, []),
    ],
)
def test_what_is_not_asked_for_beside_the_gpus_is_told(
    resources: dict[str, Any], node: dict[str, Any], missing: list[str]
) -> None:
    found = resolved({**SITE, "node": node}, resources={"time": "1", **resources})
    told = [item.what for item in found.findings if item.rule == "resources.site-default"]
    assert [what.rpartition(" ")[2] for what in told] == missing


def test_the_lock_keeps_what_the_spec_asked_for_and_another_site_drops_it() -> None:
    data = lock_data(resolved(slurm={"qos": "high", "begin": "now+1hour"}, resources={"gpu_type": "h100"}))
    assert data["slurm"] == {"qos": "high", "begin": "now+1hour"}
    assert data["resources"]["gpu_type"] == "h100"
    of_site = data["lock"]["of_site"]
    assert (of_site["slurm.qos"], of_site["slurm.begin"]) == (None, None)


def finished(runs: Path, state: str = "", cluster: str = "lab") -> None:
    root = runs / "first" / RUN
    root.mkdir(parents=True)
    (root / "plan.json").write_text("{}")
    run = RunPaths(root)
    write_launch(run, Launch(RUN, str(root), cluster, "slurm", f"first-{RUN}", 1.0, job_id="4711"))
    if state:
        write_json(run.scheduler, {"state": state})


@pytest.mark.parametrize(
    ("state", "condition", "asked"),
    [
        ("", f"afterok:{RUN}", ("afterok:4711",)),
        ("", f"after:{RUN}+5", ("after:4711+5",)),
        ("", "afterany:99_3", ("afterany:99_3",)),
        ("", "singleton", ("singleton",)),
        ("COMPLETED", f"afterok:{RUN}", ()),  # Slurm has forgotten the job, and would refuse
        ("FAILED", f"afternotok:{RUN}", ()),
        ("TIMEOUT", f"afterany:{RUN}", ()),
    ],
)
def test_a_dependency_on_a_run_is_one_on_its_job(
    tmp_path: Path, state: str, condition: str, asked: tuple[str, ...]
) -> None:
    finished(tmp_path / "runs", state)
    site = {**SITE, "paths": {"runs": str(tmp_path / "runs")}}
    found = resolved(site, home=str(tmp_path), slurm={"dependency": [condition]})
    assert found.ready_plan.slurm.dependency == asked


@pytest.mark.parametrize(
    ("state", "cluster", "condition", "says"),
    [
        ("FAILED", "lab", f"afterok:{RUN}", "has ended FAILED, and `afterok` waits"),
        ("COMPLETED", "lab", f"afternotok:{RUN}", "has ended COMPLETED"),
        ("", "other", f"afterok:{RUN}", "is on `other`, and this one goes to `lab`"),
        ("", "lab", "afterok:20261128-013207-000000", "no run `20261128-013207-000000`"),
        ("", "lab", "afterok:first", "no run's whole id"),
    ],
)
def test_a_dependency_that_cannot_hold_is_an_error(
    tmp_path: Path, state: str, cluster: str, condition: str, says: str
) -> None:
    finished(tmp_path / "runs", state, cluster)
    site = {**SITE, "paths": {"runs": str(tmp_path / "runs")}}
    found = resolved(site, home=str(tmp_path), slurm={"dependency": ["singleton", condition]})
    (item,) = [item for item in found.findings if item.is_error]
    assert (item.rule, item.path) == ("resources.dependency", "slurm.dependency[1]")
    assert says in item.what
    if condition == "afterok:first":
        assert item.fix == f"did you mean `{RUN}`, its newest run?"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("afterOK:7", "did you mean `afterok`?"),
        ("afterok", "write it like"),
        ("singleton:7", "write it like"),
        ("afterok:7:8", "give each an entry of its own"),
        ("after:7+x", "write it like `after:4711+30`"),
        ("after:7+5x", "write it like `after:4711+30`"),  # sbatch would wait 5 minutes
        ("after:7+0", "write it like `after:4711+30`"),
    ],
)
def test_a_dependency_in_other_words_is_an_error_with_the_right_ones(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, says: str
) -> None:
    spec = tmp_path / "s.yaml"
    slurm = f"slurm: {{dependency: ['{text}']}}\n"
    spec.write_text("version: 1\nname: x\nframework: command\ntrain: {command: [x]}\n" + slurm)
    words = ["validate", str(spec), "--cluster", "slurm-generic", "--json"]
    assert main(words) == 2
    (found,) = json.loads(capsys.readouterr().out)["specs"][0]["findings"]
    assert (found["rule"], found["path"]) == ("spec.dependency", "slurm.dependency[0]")
    assert says in found["fix"]
    assert main([*words, "--allow", "spec.dependency"]) == 2  # it has no number of a job all the same


def test_explain_shows_the_sites_values_with_their_origin(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    spec, site = tmp_path / "s.yaml", tmp_path / "lab.yaml"
    spec.write_text(
        "version: 1\nname: x\nframework: command\ntrain: {command: [x]}\nresources: {gpu_type: h200}\n"
    )
    site.write_text(dump_spec(SITE))
    assert main(["explain", str(spec), "slurm", "--json", "--cluster-file", str(site)]) == 0
    values = json.loads(capsys.readouterr().out)
    assert values["slurm.partition"] == {"value": "gpu-h200,gpu-long", "origin": "cluster lab, gpu_type h200"}
    assert values["slurm.account"] == {"value": "rl", "origin": "cluster lab"}
    assert values["slurm.nice"]["origin"] == "default"


# -- the user's list of nodes to avoid ----------------------------------------------------------------------

SOON = 4_000_000_000.0


def avoiding(home: Path, *entries: Avoided) -> str:
    """A home whose list has these nodes of `lab`, and one each of another cluster and of yesterday."""
    env = {"HOME": str(home)}
    avoided.add(env, [*entries, Avoided("n4", "other", SOON), Avoided("n5", "lab", 1.0)])
    return str(home)


def test_listed_nodes_of_the_cluster_are_excluded_beside_the_keys(tmp_path: Path) -> None:
    told = {"reason": "a GPU", "run": RUN, "attempt": 2, "file": "a.log", "line": 7, "text": "Xid 79"}
    home = avoiding(tmp_path, Avoided("n1", "lab", SOON, **told), Avoided("n9", "lab", SOON))
    found = resolved(home=home, slurm={"exclude": "n[2-3]"})
    slurm = found.ready_plan.slurm
    assert (slurm.exclude, slurm.avoided) == ("n9,n[2-3],n1", ("n1",))
    assert found.origins["slurm.exclude"] == Origin("cluster", "lab, the spec and `jobspec nodes`")
    (finding,) = [item for item in found.findings if item.rule == "nodes.avoided"]
    assert not finding.is_error
    assert finding.what == "your list of nodes to avoid excludes `n1`"
    assert finding.why == f"`n1` until 2096-10-02 07:06 UTC (a GPU: {RUN}, attempt 2, a.log:7)"
    assert "`jobspec nodes remove n1 --cluster lab`" in finding.fix
    locked = lock_data(found)
    assert locked["slurm"] == {"exclude": "n[2-3]"}
    kept = {"reason": "a GPU", "run": RUN, "attempt": 2, "line": "Xid 79", "until": "2096-10-02 07:06 UTC"}
    assert locked["lock"]["avoided"] == {"n1": kept}


def test_the_origin_without_an_exclude_of_the_site(tmp_path: Path) -> None:
    home = avoiding(tmp_path, Avoided("n1", "lab", SOON))
    site = {**SITE, "slurm": {"gpus": "none"}}
    assert resolved(site, home=home).origins["slurm.exclude"] == Origin("nodes", "`jobspec nodes`")
    both = resolved(site, home=home, slurm={"exclude": "n2"})
    assert both.origins["slurm.exclude"] == Origin("nodes", "`jobspec nodes` and the spec")


def test_a_node_that_the_spec_names_wins_with_a_warning(tmp_path: Path) -> None:
    home = avoiding(tmp_path, Avoided("n1", "lab", SOON), Avoided("n2", "lab", SOON, "slow"))
    found = resolved(home=home, slurm={"nodelist": "n[2-3]"})
    assert found.ready_plan.slurm.exclude == "n9,n1"
    (finding,) = [item for item in found.findings if item.rule == "nodes.asked-for"]
    assert (finding.is_error, finding.path, finding.why) == (False, "slurm.nodelist", "slow")
    assert "asks for `n2`" in finding.what


@pytest.mark.parametrize("where", ["spec", "profile"])
def test_the_list_is_left_out_on_request(where: str, tmp_path: Path) -> None:
    home = avoiding(tmp_path, Avoided("n1", "lab", SOON))
    off = {"avoid_listed": False}
    site = {**SITE, "slurm": {**SITE["slurm"], **off}} if where == "profile" else SITE
    found = resolved(site, home=home, **({"slurm": off} if where == "spec" else {}))
    slurm = found.ready_plan.slurm
    assert (slurm.exclude, slurm.avoided, slurm.avoid_listed) == ("n9", (), False)
    assert "nodes.avoided" not in {item.rule for item in found.findings}
    assert "avoided" not in lock_data(found)["lock"]
    if where == "profile":
        assert found.origins["slurm.avoid_listed"] == Origin("cluster", "lab")
        assert resolved(site, home=home, slurm={"avoid_listed": True}).ready_plan.slurm.avoided == ("n1",)


def test_a_list_that_cannot_be_read_is_a_warning(tmp_path: Path) -> None:
    file = tmp_path / ".local/state/jobspec/nodes.json"
    file.parent.mkdir(parents=True)
    file.write_text('{"version": 1, "nodes": [{"node": "--x", "cluster": "lab", "until": 4e9}]}')
    found = resolved(home=str(tmp_path))
    assert found.ready_plan.slurm.exclude == "n9"
    assert [item.severity for item in found.findings if item.rule == "nodes.damaged"] == ["warning"]


def test_the_list_is_no_matter_of_this_machine(tmp_path: Path) -> None:
    home = avoiding(tmp_path, Avoided("n1", "here", SOON))
    found = resolved(LOCAL, home=home)
    assert found.ready_plan.slurm.avoided == ()
    assert not [item for item in found.findings if item.rule.startswith("nodes.")]
