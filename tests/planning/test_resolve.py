"""Spec and site profile to Plan: defaults, paths, levels, mounts, and where each value came from."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from jobspec.plan import HelpersPlan, ImportProof, Mount, Plan, from_json, to_json
from jobspec.planning.lock import lock_text
from jobspec.planning.resolve import Resolved, resolve
from jobspec.spec.find_site import parse_cluster
from jobspec.spec.load import parse_spec
from jobspec.spec.paths import Origin
from jobspec.spec.yaml.dump import dump_spec

LOCAL: dict[str, Any] = {
    "version": 1,
    "name": "here",
    "scheduler": "local",
    "paths": {"node_local": "/tmp/js"},
}
SLURM: dict[str, Any] = {
    "version": 1,
    "name": "lab",
    "slurm": {"partition": "batch", "account": "rl"},
    "paths": {
        "runs": "/shared/runs",
        "hf_home": "/shared/hf",
        "scratch": "/scratch",
        "node_local": "/raid/ann",
    },
    "node": {"cpus": 96, "gpus": 8},
}
PYXIS: dict[str, Any] = {**SLURM, "container": {"runtime": "pyxis", "image_cache": "/images"}}


def resolved(
    profile: dict[str, Any], folder: Path = Path("/specs"), sets: tuple[str, ...] = (), **keys: Any
) -> Resolved:
    data = {"version": 1, "name": "x", "framework": "command", "train": {"command": ["x"]}, **keys}
    loaded = parse_spec(dump_spec(data), str(folder / "spec.yaml"), sets, env={})
    owner = {"USER": "ann", "HOME": "/home/ann"}
    cluster = parse_cluster(dump_spec(profile), Path("lab.yaml"), "--cluster-file", owner)
    return resolve(loaded, cluster, env=owner)


def plan(profile: dict[str, Any], folder: Path = Path("/specs"), **keys: Any) -> Plan:
    found = resolved(profile, folder, **keys)
    assert found.plan is not None, [finding.text() for finding in found.findings]
    return found.plan


def rules(found: Resolved) -> list[str]:
    return [finding.rule for finding in found.findings if finding.is_error]


@pytest.mark.parametrize(
    ("profile", "asked", "gpus"),
    [(LOCAL, {}, 0), (SLURM, {}, 8), (SLURM, {"gpus_per_node": 2}, 2), (LOCAL, {"gpus_per_node": 1}, 1)],
)
def test_gpus_come_from_the_profile_but_never_by_themselves_here(
    profile: dict[str, Any], asked: dict[str, int], gpus: int
) -> None:
    assert plan(profile, resources=asked).gpus_per_node == gpus


@pytest.mark.parametrize(
    ("profile", "given", "python"),
    [
        (LOCAL, None, sys.executable),
        (SLURM, None, "python3"),
        (LOCAL, "/opt/py", "/opt/py"),
        (SLURM, "py", "py"),
    ],
)
def test_the_interpreter(profile: dict[str, Any], given: str | None, python: str) -> None:
    assert plan(profile, container={"python": given} if given else {}).container.python == python


def test_relative_paths_count_from_the_specs_folder() -> None:
    found = plan(LOCAL, checkpoint={"dir": "../ckpt"}, hf_cache={"home": "./hf"}, model={"path": "m/x"})
    assert (found.checkpoint_dir, found.hf_home, found.stage[0].source) == (
        "/ckpt",
        "/specs/hf",
        "/specs/m/x",
    )


def test_a_profiles_relative_runs_folder_counts_from_the_current_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where a spec refers to it, wherever the spec lies."""
    monkeypatch.chdir(tmp_path)
    found = plan(LOCAL, checkpoint={"dir": "${cluster:runs}/c"})
    assert (found.runs, found.checkpoint_dir) == (f"{tmp_path}/runs", f"{tmp_path}/runs/c")


@pytest.mark.parametrize("sets", [("--level 0",), ("--level run",), ("coverage.level=0",), ()])
def test_levels_by_number_by_name_and_by_default(sets: tuple[str, ...]) -> None:
    found = resolved(SLURM, sets=sets)
    assert found.level is not None and found.level.name == "run"


def test_a_plan_carries_what_its_level_proves() -> None:
    found = resolved(SLURM)
    assert found.level is not None and found.plan is not None
    expect = found.plan.expect
    assert (expect.level, expect.number, expect.proves) == ("run", 0, found.level.proves)
    assert expect.limitations[: len(found.level.not_proved)] == found.level.not_proved


def test_an_unknown_level_is_told_the_known_ones() -> None:
    found = resolved(SLURM, coverage={"level": "runn"})
    (finding,) = [finding for finding in found.findings if finding.is_error]
    assert (finding.rule, finding.path, finding.line > 0) == (
        "coverage.level-unknown",
        "coverage.level",
        True,
    )
    assert "did you mean `run`" in finding.fix


def test_an_unknown_framework_is_told_the_near_one() -> None:
    found = resolved(SLURM, framework="trll", train={})
    assert found.plan is None
    assert any("did you mean `trl`" in finding.fix for finding in found.findings)


def test_an_unknown_cluster_key_is_a_finding_with_its_place() -> None:
    found = resolved(LOCAL, checkpoint={"dir": "${cluster:scratch}/x"})
    assert found.plan is None
    assert [(f.rule, f.path) for f in found.findings if f.is_error] == [("spec.cluster", "checkpoint.dir")]


@pytest.mark.parametrize(
    ("text", "slurm"),
    [("30", "0-00:30:00"), ("90:00", "0-01:30:00"), ("48:00:00", "2-00:00:00"), ("1-12", "1-12:00:00")],
)
def test_times_are_normalised(text: str, slurm: str) -> None:
    assert plan(SLURM, resources={"time": text}).slurm.time == slurm


def test_whole_nodes_are_the_default_for_several() -> None:
    assert [plan(SLURM, resources={"nodes": n}).slurm.exclusive for n in (1, 2)] == [False, True]
    assert plan(SLURM, resources={"nodes": 2, "exclusive": False}).slurm.exclusive is False


@pytest.mark.parametrize(
    ("gpus", "resources", "exclusive"),
    [
        ("none", {"gpus_per_node": 8}, True),
        ("none", {"gpus_per_node": 8, "exclusive": False}, False),
        ("none", {"gpus_per_node": 0}, False),
        ("gres", {"gpus_per_node": 8}, False),
    ],
)
def test_gpus_that_slurm_does_not_count_are_shared_with_nobody(
    gpus: str, resources: dict[str, Any], exclusive: bool
) -> None:
    site = {**SLURM, "slurm": {"gpus": gpus}}
    assert plan(site, resources={"nodes": 1, **resources}).slurm.exclusive is exclusive


def test_slurm_gets_the_profiles_options_and_the_specs_requests() -> None:
    slurm = plan(
        SLURM, launch={"requeue": {"max_attempts": 3, "grace": 60}}, resources={"memory": "10G"}
    ).slurm
    assert (slurm.account, slurm.partition, slurm.requeue_max, slurm.grace_s) == ("rl", "batch", 2, 60)
    assert (slurm.memory, slurm.cpus_per_task) == ("10G", 96)


def test_ray_comes_up_only_in_mode_ray() -> None:
    found = plan(SLURM, launch={"mode": "ray", "join_timeout": 60}).ray
    assert found is not None and (found.num_gpus, found.num_cpus, found.join_timeout_s) == (8, 96, 60.0)
    assert plan(SLURM, launch={"mode": "srun"}).ray is None


@pytest.mark.parametrize(
    ("train", "mode"),
    [
        ({"command": ["python3", "-c", "print(1)"]}, "srun"),
        ({"command": ["python3", "-c", "import ray\nray.init()"]}, "ray"),
        ({"command": ["ray", "job", "submit", "x"]}, "ray"),
        ({"command": ["echo", "array", "import array"]}, "srun"),
        ({"command": ["cd /x && python3 -m a; ray status"], "shell": True}, "ray"),
    ],
)
def test_a_command_starts_ray_only_where_it_is_seen_to_use_it(train: dict[str, Any], mode: str) -> None:
    found = resolved(SLURM, train=train)
    assert found.ready_plan.mode == mode
    assert found.origins["launch.mode"] == Origin("framework", "command")
    assert yaml.safe_load(lock_text(found))["launch"]["mode"] == mode


def test_a_cluster_that_is_held_is_one_of_ray() -> None:
    assert resolved(SLURM, launch={"hold": True}).ready_plan.mode == "ray"
    assert resolved(SLURM, launch={"hold": True, "mode": "srun"}).ready_plan.mode == "srun"


def test_a_command_on_several_nodes_says_which_mode_it_has() -> None:
    resources = {"nodes": 2, "time": "10"}
    assert [item.rule for item in resolved(SLURM, resources=resources).findings] == ["launch.mode-chosen"]
    assert resolved(SLURM, resources=resources, launch={"mode": "srun"}).findings == ()


def test_a_mode_that_the_framework_does_not_have_is_an_error() -> None:
    assert rules(resolved(SLURM, launch={"mode": "upstream"})) == ["launch.upstream-unsupported"]


def test_environment_of_site_and_spec_with_the_specs_on_top() -> None:
    found = plan({**SLURM, "env": {"A": "site", "B": "site"}}, container={"env": {"B": "spec"}})
    assert (found.env, found.container.env) == ({"A": "site", "B": "spec"}, {"A": "site", "B": "spec"})


def test_the_runs_folders_are_mounted_unless_they_are_visible() -> None:
    found = plan(PYXIS, container={"image": "x", "mounts": [{"source": "/shared", "target": "/shared"}]})
    assert found.container.mounts == (Mount("/shared", "/shared"), Mount("/raid/ann", "/raid/ann"))


def test_sources_are_mounted_read_only_and_a_read_only_mount_covers_no_output() -> None:
    mounts = [{"source": "/shared", "target": "/shared", "read_only": True}]
    checkpoint = {"dir": "/shared/ckpt"}
    found = plan(
        PYXIS, container={"image": "x", "mounts": mounts}, model={"path": "/models/a"}, checkpoint=checkpoint
    )
    assert Mount("/models/a", "/models/a", True) in found.container.mounts
    assert Mount("/shared/ckpt", "/shared/ckpt") in found.container.mounts


def test_bare_nodes_mount_nothing() -> None:
    assert plan(SLURM).container.mounts == ()


@pytest.mark.parametrize(
    ("image", "expected"),
    [
        ("registry.example.com#nvidia/x:1", "registry.example.com#nvidia/x:1"),
        ("./x.sqsh", "/specs/x.sqsh"),
        ("x.sqsh", "/specs/x.sqsh"),
        ("/images/x.sqsh", "/images/x.sqsh"),
        ("ubuntu", "ubuntu"),
    ],
)
def test_image_files_become_absolute_and_names_stay(image: str, expected: str) -> None:
    assert plan(PYXIS, container={"image": image}).container.image == expected


def test_an_image_in_the_sites_cache_is_found(tmp_path: Path) -> None:
    (tmp_path / "x.sqsh").touch()
    profile = {**SLURM, "container": {"runtime": "pyxis", "image_cache": str(tmp_path)}}
    assert plan(profile, container={"image": "x.sqsh"}).container.image == f"{tmp_path}/x.sqsh"


def test_an_image_file_that_is_not_there_is_told_where_its_disk_is_here(tmp_path: Path) -> None:
    def absent(image: str) -> list[str]:
        found = resolved(PYXIS, container={"image": image})
        return [item.what for item in found.findings if item.rule == "container.image-absent"]

    file = tmp_path / "x.sqsh"
    assert absent(str(file)) == [f"the image `{file}` does not exist"]
    file.touch()
    assert absent(str(file)) == []
    assert absent("/no-such-disk/x.sqsh") == absent("nvidia/cuda:12") == []


def test_models_and_data_by_id_lie_in_the_cache(tmp_path: Path) -> None:
    refs = tmp_path / "hub" / "models--org--m" / "refs"
    refs.mkdir(parents=True)
    (refs / "main").write_text("a" * 40)
    found = plan(
        LOCAL,
        hf_cache={"home": str(tmp_path)},
        model={"id": "org/m", "require": ["x.jinja"], "stage": "shared"},
        data=[{"name": "gsm-8k", "source": "openai/gsm8k"}],
    )
    model, data = found.stage
    assert (model.source, model.layout, model.revision) == (f"{tmp_path}/hub/models--org--m", "hf", "a" * 40)
    assert (model.env, model.node_local, model.require) == ("JOBSPEC_MODEL_PATH", False, ("x.jinja",))
    assert (data.source, data.kind) == (f"{tmp_path}/hub/datasets--openai--gsm8k", "dataset")
    assert (data.env, data.revision) == ("JOBSPEC_DATA_GSM_8K", "main")


def test_a_path_into_a_cache_is_that_snapshot(tmp_path: Path) -> None:
    found = plan(LOCAL, model={"path": f"/hf/hub/models--org--m/snapshots/{'b' * 40}"})
    assert (found.stage[0].source, found.stage[0].repo_id) == ("/hf/hub/models--org--m", "org/m")
    assert (found.stage[0].layout, found.stage[0].revision) == ("hf", "b" * 40)


def test_data_that_exists_beside_the_spec_is_a_path(tmp_path: Path) -> None:
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / "x.jsonl").touch()
    data = plan(LOCAL, tmp_path, data=[{"name": "d", "source": "d/x.jsonl"}]).stage[0]
    assert (data.source, data.layout) == (f"{tmp_path}/d/x.jsonl", "plain")


def test_an_id_without_a_cache_is_an_error() -> None:
    profile = {**SLURM, "paths": {"runs": "/r", "node_local": "/tmp/js"}}
    assert rules(resolved(profile, model={"id": "org/m"})) == ["stage.no-hf-home"]


def checkout(folder: Path) -> str:
    (folder / "src" / "pkg").mkdir(parents=True)
    (folder / "src" / "pkg" / "__init__.py").touch()
    who = ["-c", "user.name=ann", "-c", "user.email=ann@example.org"]
    for step in (["init", "-q"], ["add", "."], [*who, "commit", "-qm", "x"]):
        subprocess.run(["git", "-C", str(folder), *step], check=True)
    head = subprocess.run(
        ["git", "-C", str(folder), "rev-parse", "HEAD"], check=True, capture_output=True, text=True
    )
    return head.stdout.strip()


def test_a_repo_gives_code_proof_and_helpers(tmp_path: Path) -> None:
    commit = checkout(tmp_path / "r")
    repo = {"name": "r", "path": "./r", "ref": commit[:10], "pythonpath": ["src"], "prove": {"import": "pkg"}}
    found = plan(LOCAL, tmp_path, repos=[repo], mcore_helpers={"repo": "r", "subdir": "src"})
    assert (found.repos[0].commit, found.repos[0].dirty) == (commit, False)
    assert found.repos[0].pythonpath == (f"{tmp_path}/r/src",)
    assert found.proofs == (ImportProof("pkg", f"{tmp_path}/r/src", "r"),)
    assert found.helpers == HelpersPlan(source=f"{tmp_path}/r/src")


def test_proof_without_its_package_in_pythonpath_asks_for_the_checkout(tmp_path: Path) -> None:
    """The package may be built on the nodes; a folder that is there and holds it is the narrower root."""
    checkout(tmp_path / "r")
    repo = {"name": "r", "path": "./r", "pythonpath": ["src"], "prove": {"import": "pkg.made.later"}}
    assert plan(LOCAL, tmp_path, repos=[repo]).proofs[0].root == f"{tmp_path}/r"


@pytest.mark.parametrize(
    ("change", "rule"),
    [
        ({"path": "./nowhere"}, "repo.missing"),
        ({"pythonpath": ["lib"]}, "repo.pythonpath"),
        ({"ref": "nowhere"}, "repo.ref-unknown"),
        ({"ref": "HEAD~1"}, "repo.ref-mismatch"),
    ],
)
def test_what_is_wrong_with_a_repo(change: dict[str, Any], rule: str, tmp_path: Path) -> None:
    checkout(tmp_path / "r")
    who = ["-c", "user.name=ann", "-c", "user.email=ann@example.org"]
    subprocess.run(
        ["git", "-C", str(tmp_path / "r"), *who, "commit", "-q", "--allow-empty", "-m", "y"], check=True
    )
    found = resolved(LOCAL, tmp_path, repos=[{"name": "r", "path": "./r", **change}])
    assert rules(found) == [rule]
    assert all(finding.line for finding in found.findings if finding.is_error)


def test_repos_by_url_are_cloned_only_when_asked(tmp_path: Path) -> None:
    commit = checkout(tmp_path / "origin")
    data = {"version": 1, "name": "x", "framework": "command", "train": {"command": ["x"]}}
    data["repos"] = [{"name": "r", "url": f"file://{tmp_path}/origin", "ref": commit, "pythonpath": ["src"]}]
    profile = {**LOCAL, "paths": {"runs": f"{tmp_path}/runs", "node_local": "/tmp/js"}}
    cluster = parse_cluster(dump_spec(profile), Path("lab.yaml"), "--cluster-file", {})
    loaded = parse_spec(dump_spec(data), "/specs/spec.yaml", env={})
    before = resolve(loaded, cluster, env={})
    assert [finding.rule for finding in before.findings] == ["repo.not-fetched"]
    after = resolve(loaded, cluster, env={}, fetch=True)
    assert after.findings == ()
    assert after.plan is not None and (Path(after.plan.repos[0].path) / "src" / "pkg").is_dir()


def test_an_allowed_rule_becomes_a_warning() -> None:
    data = {
        "version": 1,
        "name": "x",
        "framework": "command",
        "train": {"command": ["x"]},
        "resources": {"nodes": 2},
        "launch": {"mode": "srun"},
    }
    loaded = parse_spec(dump_spec(data), "/specs/spec.yaml", env={})
    cluster = parse_cluster(dump_spec(LOCAL), Path("lab.yaml"), "--cluster-file", {})
    assert rules(resolve(loaded, cluster, env={})) == ["resources.local-nodes"]
    allowed = resolve(loaded, cluster, env={}, allow=["resources.local-nodes"])
    assert rules(allowed) == []
    assert "allowed" in allowed.findings[0].why


def test_an_allowed_error_of_the_framework_leaves_a_plan() -> None:
    """`submit --allow RULE` has something to render also where the framework's adapter found the error."""
    data = {"version": 1, "name": "x", "framework": "trl", "model": {"id": "org/tiny"},
            "data": [{"name": "prompts", "source": "org/prompts"}],
            "train": {"overrides": {"no_such_field": 1}}}  # fmt: skip
    loaded = parse_spec(dump_spec(data), "/specs/spec.yaml", env={})
    cluster = parse_cluster(dump_spec(LOCAL), Path("lab.yaml"), "--cluster-file", {})
    refused = resolve(loaded, cluster, env={})
    found = next(
        finding for finding in refused.findings if finding.is_error and finding.rule.startswith("trl.")
    )
    assert refused.plan is None
    assert resolve(loaded, cluster, env={}, allow=[found.rule]).plan is not None


def test_origins_name_what_resolution_chose() -> None:
    found = resolved(SLURM, resources={"nodes": 2})
    assert found.origins["resources.gpus_per_node"].kind == "cluster"
    assert found.origins["resources.nodes"].kind == "spec"
    assert found.origins["coverage.level"].kind == "framework"


def test_a_plan_is_the_same_every_time_and_survives_json() -> None:
    first = plan(PYXIS, container={"image": "x", "env": {"B": "1", "A": "2"}}, checkpoint={"dir": "/c"})
    assert first == plan(
        PYXIS, container={"image": "x", "env": {"A": "2", "B": "1"}}, checkpoint={"dir": "/c"}
    )
    assert from_json(to_json(first)) == first


def test_a_bundle_that_hides_a_folder_is_refused(tmp_path: Path) -> None:
    profile = {**SLURM, "container": {"runtime": "oci"}}
    mounts = [{"destination": "/shared", "source": "/shared", "type": "bind"}]
    (tmp_path / "config.json").write_text(json.dumps({"mounts": mounts}))
    found = resolved(profile, container={"image": str(tmp_path)})
    assert rules(found) == ["container.oci-mount"]
    assert any("/raid/ann" in finding.what for finding in found.findings)


def overridden(*sets: str) -> Resolved:
    data = {"version": 1, "name": "x", "framework": "command", "train": {"command": ["x"]}}
    data["resources"] = {"nodes": 1}
    loaded = parse_spec(dump_spec(data), "/specs/spec.yaml", sets, env={})
    cluster = parse_cluster(dump_spec(LOCAL), Path("here.yaml"), "--cluster-file", {})
    return resolve(loaded, cluster, env={"USER": "ann", "HOME": "/home/ann"})


@pytest.mark.parametrize(
    ("setting", "place"),
    [
        ("resources.nodes=2", "--set resources.nodes=2"),
        ("launch.mode=upstream", "--set launch.mode=upstream"),
        ("--level lerning", "--level lerning"),
        ("--level token", "--level token"),  # no secret's value
        ("coverage.level=lerning", "--set coverage.level=lerning"),
    ],
)
def test_a_finding_stands_at_the_argument_that_gave_the_value(setting: str, place: str) -> None:
    """The line of the file has another value, or none: it would send its reader to the wrong place."""
    errors = [finding for finding in overridden(setting).findings if finding.is_error]
    assert [(finding.file, finding.line) for finding in errors] == [(place, 0)]


def test_a_level_and_a_profile_given_by_argument_are_said_to_be() -> None:
    found = overridden("--level run")
    assert found.origins["coverage.level"] == Origin("set", "--level run")
    assert found.origins["cluster"] == Origin("cluster", "here.yaml")


def test_the_place_of_a_value_of_the_file() -> None:
    (found,) = resolved(LOCAL, resources={"nodes": 2}, launch={"mode": "srun"}).findings
    assert (found.file, found.line) == ("/specs/spec.yaml", 8)


def test_tests_that_an_adapter_would_leave_out_are_an_error(tmp_path: Path) -> None:
    """The toy of CONTRIBUTING.md, like an adapter of another package, gives no command for them."""
    text = (
        "version: 1\nname: t\nframework: {}\ntrain: {{}}\n" + f"repos: [{{{{name: r, path: {tmp_path}}}}}]\n"
    )
    text += "coverage: {{checks: [{{repo: r}}]}}\n"
    site = parse_cluster(dump_spec(LOCAL), Path("here.yaml"), "--cluster-file", {})
    for framework, missed in (("toy", ["coverage.checks[0]"]), ("command", [])):
        spec = text.format(framework).replace(
            "train: {}", "train: {command: [x]}" if not missed else "train: {}"
        )
        findings = resolve(parse_spec(spec, "/s.yaml", env={}), site, env={}).findings
        assert [item.path for item in findings if item.rule == "coverage.checks"] == missed


@pytest.mark.parametrize("framework", ["nemo_rl", "verl", "skyrl", "rlix"])
def test_a_missing_checkout_hides_no_error_of_the_site(framework: str) -> None:
    from jobspec.cli.commands.init import starter

    loaded = parse_spec(
        starter(framework, "x"),
        "/specs/spec.yaml",
        ("container.env.SLURM_X=1", "resources.gpus_per_node=16"),
        env={"HOME": "/nowhere"},
    )
    cluster = parse_cluster(dump_spec(PYXIS), Path("lab.yaml"), "--cluster-file", {})
    found = rules(resolve(loaded, cluster, env={"HOME": "/nowhere"}))
    assert {"repo.missing", "resources.gpus-per-node", "container.image-missing", "env.reserved"} <= {*found}
    assert "launch.no-command" not in found
