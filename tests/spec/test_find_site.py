"""Site profiles: search order, references, rules, and the ones that are shipped."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from jobspec.finding import JobspecError
from jobspec.spec import find_site, site_rules
from jobspec.spec.find_site import list_clusters, load_cluster, parse_cluster

SITE = "version: 1\nname: {name}\npaths: {{runs: /shared/{folder}}}\n"
SHIPPED = [
    "local", "slurm-by-partition", "slurm-generic", "slurm-no-accounting", "slurm-pyxis",
    "slurm-second-factor", "slurm-untyped", "slurm-whole-nodes",
]  # fmt: skip


@pytest.fixture
def env(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """A home and a system folder of this test alone."""
    monkeypatch.setattr(find_site, "SYSTEM_FOLDER", tmp_path / "etc")
    return {"HOME": str(tmp_path / "home"), "USER": "alice"}


def write(folder: Path, name: str, text: str = "", suffix: str = ".yaml") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}{suffix}"
    path.write_text(text or SITE.format(name=name, folder=folder.name))
    return path


# -- search order


def test_the_default_is_local(env: dict[str, str]) -> None:
    loaded = load_cluster(None, env=env)
    assert (loaded.profile.name, loaded.profile.scheduler, loaded.origin) == ("local", "local", "shipped")


def test_each_place_hides_those_behind_it(tmp_path: Path, env: dict[str, str]) -> None:
    places = [
        tmp_path / "etc",
        tmp_path / "home/.config/jobspec/clusters",
        tmp_path / "second",
        tmp_path / "first",
    ]
    env["JOBSPEC_CLUSTERS"] = f"{tmp_path / 'first'}::{tmp_path / 'second'}:{tmp_path / 'nowhere'}"
    found = []
    for place in places:
        write(place, "local")
        found.append(load_cluster("local", env=env))
    assert [loaded.profile.paths.runs for loaded in found] == [f"/shared/{place.name}" for place in places]
    assert [loaded.origin for loaded in found] == ["system", "user", "$JOBSPEC_CLUSTERS", "$JOBSPEC_CLUSTERS"]
    file = write(tmp_path / "zero", "other")
    last = load_cluster("local", file, env=env)
    assert (last.profile.name, last.origin, last.path) == ("other", "--cluster-file", file)


def test_xdg_folder_replaces_the_home_folder(tmp_path: Path, env: dict[str, str]) -> None:
    write(tmp_path / "home/.config/jobspec/clusters", "a")
    write(tmp_path / "xdg/jobspec/clusters", "b")
    env["XDG_CONFIG_HOME"] = str(tmp_path / "xdg")
    assert [entry.name for entry in list_clusters(env)] == ["b", *SHIPPED]


def test_variable_names_files_too(tmp_path: Path, env: dict[str, str]) -> None:
    env["JOBSPEC_CLUSTERS"] = str(write(tmp_path / "x", "mine", suffix=".yml"))
    assert load_cluster("mine", env=env).profile.name == "mine"


def test_listing(tmp_path: Path, env: dict[str, str]) -> None:
    write(tmp_path / "etc", "site")
    write(tmp_path / "etc", "notes", "not a profile", suffix=".txt")
    entries = list_clusters(env)
    assert [(entry.name, entry.origin) for entry in entries] == [
        ("site", "system"), *((name, "shipped") for name in SHIPPED)
    ]  # fmt: skip
    assert all(entry.path.is_file() for entry in entries)


def test_without_a_home(env: dict[str, str]) -> None:
    assert [entry.name for entry in list_clusters({})] == SHIPPED


def test_unknown_name_lists_the_known_ones(env: dict[str, str]) -> None:
    with pytest.raises(JobspecError) as caught:
        load_cluster("slurm-pyxi", env=env)
    (found,) = caught.value.findings
    assert found.rule == "cluster.unknown"
    assert all(name in found.why for name in SHIPPED)
    assert "did you mean `slurm-pyxis`" in found.fix


def test_unknown_name_that_is_near_to_none(env: dict[str, str]) -> None:
    with pytest.raises(JobspecError) as caught:
        load_cluster("h200-efa", env=env)
    assert "--cluster-file" in caught.value.findings[0].fix


@pytest.mark.parametrize("name", ["../local", "/etc/passwd", "", "local.yaml"])
def test_a_name_is_no_path(name: str, env: dict[str, str]) -> None:
    if not name:
        assert load_cluster(name, env=env).profile.name == "local"
        return
    with pytest.raises(JobspecError) as caught:
        load_cluster(name, env=env)
    assert caught.value.findings[0].rule == "cluster.unknown"


def test_missing_cluster_file(tmp_path: Path, env: dict[str, str]) -> None:
    with pytest.raises(JobspecError) as caught:
        load_cluster(None, tmp_path / "nowhere.yaml", env=env)
    assert caught.value.findings[0].rule == "spec.file"


def test_places_without_a_profile_are_told(tmp_path: Path, env: dict[str, str]) -> None:
    """A folder that is not there hides its profiles: another of the same name is used, or none is known."""
    (tmp_path / "empty").mkdir()
    good, wrong = write(tmp_path / "good", "site"), write(tmp_path, "site", "x", suffix=".json")
    parts = [tmp_path / "nosuch", tmp_path / "empty", wrong, good.parent, good]
    env["JOBSPEC_CLUSTERS"] = ":".join(map(str, parts))
    found = load_cluster("site", env=env).findings
    assert {(item.rule, item.severity, item.file) for item in found} == {
        ("cluster.place", "warning", "$JOBSPEC_CLUSTERS")
    }
    assert [item.what for item in found] == [
        f"`{tmp_path}/nosuch` does not exist",
        f"`{tmp_path}/empty` has no `*.yaml` or `*.yml`",
        f"`{wrong}` is no `.yaml` file",
    ]
    with pytest.raises(JobspecError) as caught:
        load_cluster("other", env=env)
    assert [item.rule for item in caught.value.findings] == [*["cluster.place"] * 3, "cluster.unknown"]
    assert load_cluster(None, good, env=env).findings == ()


def test_a_file_and_a_name_in_each_others_place(
    tmp_path: Path, env: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write(tmp_path, "mine")
    for name, file, fix in (
        ("mine.yaml", None, "--cluster-file mine.yaml"),
        (None, Path("local"), "--cluster local"),
    ):
        with pytest.raises(JobspecError) as caught:
            load_cluster(name, file, env=env)
        assert caught.value.findings[0].fix == f"write `{fix}`"


def test_name_and_file_name_should_agree(tmp_path: Path, env: dict[str, str]) -> None:
    write(tmp_path / "etc", "site", SITE.format(name="other", folder="x"))
    loaded = load_cluster("site", env=env)
    assert [(f.rule, f.severity, f.line) for f in loaded.findings] == [("cluster.name", "warning", 2)]


# -- what is shipped


@pytest.mark.parametrize("name", SHIPPED)
def test_shipped_profiles_are_clean(name: str, env: dict[str, str]) -> None:
    loaded = load_cluster(name, env=env)
    ports = loaded.profile.network.ray_ports
    assert loaded.findings == ()
    assert loaded.profile.description
    assert max(ports.head, ports.worker_max) < site_rules.EPHEMERAL_FROM
    assert "${" not in str(loaded.profile)
    assert loaded.profile.paths.node_local == "/tmp/jobspec-alice"


def commented_keys(text: str) -> str:
    """The profile with its commented-out keys turned on."""
    rows = []
    for row in text.splitlines():
        bare = row.lstrip()
        key = bare[2:].split(":")[0] if bare.startswith("# ") else ""
        is_key = ":" in bare and key.isidentifier() and (row != bare or key == "node")
        rows.append(row.replace("# ", "", 1) if is_key else row)
    return "\n".join(rows)


@pytest.mark.parametrize("name", SHIPPED)
def test_commented_keys_of_shipped_profiles_are_right(name: str, env: dict[str, str]) -> None:
    path = load_cluster(name, env=env).path
    text = commented_keys(path.read_text())
    text = text.replace("\n  subnet: 10.0.0.0/16", "")  # it excludes `interface`
    assert parse_cluster(text, path, env=env).findings == ()


def test_commented_keys_are_found(env: dict[str, str]) -> None:
    profile = parse_cluster(
        commented_keys(load_cluster("slurm-pyxis", env=env).path.read_text()),
        Path("slurm-pyxis.yaml"),
        env=env,
    ).profile
    assert (profile.slurm.partition, profile.network.interface) == ("batch", "eth0")
    assert {"NCCL_SOCKET_IFNAME", "FI_PROVIDER", "NCCL_NVLS_ENABLE"} <= set(profile.env)


# -- references


def parse(body: str, env: dict[str, str] | None = None) -> Any:
    given = {"USER": "alice", "HOME": "/home/alice"} if env is None else env
    return parse_cluster(f"version: 1\nname: site\n{body}", Path("site.yaml"), env=given).profile


def test_references() -> None:
    profile = parse(
        "paths: {runs: '${home}/runs', scratch: '/s/${user}/${env:GROUP}', hf_home: '/x/$${y}'}\n"
        "env: {WHO: '${user}'}\nhooks: {setup: ['echo ${HOME}']}",
        {"USER": "alice", "HOME": "/home/alice", "GROUP": "rl"},
    )
    assert (profile.paths.runs, profile.paths.scratch, profile.paths.hf_home) == (
        "/home/alice/runs",
        "/s/alice/rl",
        "/x/${y}",
    )
    assert profile.paths.node_local == "/tmp/jobspec-alice"
    assert profile.env == {"WHO": "alice"}
    assert profile.hooks.setup == ("echo ${HOME}",)


def test_user_of_another_host() -> None:
    profile = parse("access: {login: far, user: bob}\npaths: {runs: '/r/${user}'}")
    assert profile.paths.runs == "/r/bob"


def test_user_without_a_variable() -> None:
    assert parse("paths: {runs: '/r/${user}'}", {}).paths.runs != "/r/"


BAD: list[tuple[str, str, str]] = [
    ("paths: {runs: '${hom}/x'}", "cluster.reference", "`${home}`"),
    ("paths: {runs: '${home'}", "cluster.reference", "not closed"),
    ("paths: {runs: '/${env:NOWHERE}'}", "cluster.env", "export NOWHERE"),
    ("paths: {runs: '/${env:MY_TOKEN}'}", "cluster.secret", "MY_TOKEN"),
    ("access: {login: far}\npaths: {runs: '${home}/x'}", "cluster.reference", "SSH"),
    ("paths: {runs: relative}", "cluster.path", "absolute"),
    ("paths: {runs: '/a:b'}", "cluster.path", "colon"),
    ("paths: {runs: /x, node_local: /x}", "cluster.path", "folder of its own"),
    ("paths: {runs: /x, node_local: /}", "cluster.path", "folder of its own"),
    ("paths: {runs: /x}\nnetwork: {interface: e, subnet: 10.0.0.0/8}", "cluster.network", "both"),
    ("paths: {runs: /x}\nnetwork: {subnet: 10.0.0.1/8}", "cluster.network", "host bits"),
    ("paths: {runs: /x}\nnetwork: {subnet: fe80::/10}", "cluster.network", "IPv4"),
    ("paths: {runs: /x}\nnetwork: {ray_ports: {worker_min: 21000}}", "cluster.ports", "above"),
    ("paths: {runs: /x}\nnetwork: {ray_ports: {head: 20500}}", "cluster.ports", "workers' range"),
    ("paths: {runs: /x}\nnetwork: {ray_ports: {head: 80}}", "spec.range", "1024"),
    ("paths: {runs: /x}\nnetwork: {ray_ports: {head: 70000}}", "spec.range", "65535"),
    ("paths: {runs: /x}\nslurm: {extra_sbatch: [constraint=h200]}", "cluster.sbatch", "--switches=1"),
    ("paths: {runs: /x}\nslurm: {extra_sbatch: ['--comment x']}", "cluster.sbatch", "--comment=x"),
    ("paths: {runs: /x}\nslurm: {extra_sbatch: [--qos=x]}", "cluster.sbatch", "slurm.qos: x"),
    ("paths: {runs: /x}\naccess: {login: h, master: aut}", "cluster.access", "did you mean `auto`"),
    ("paths: {runs: /x}\naccess: {login: h, master: cm/x}", "cluster.access", "starts with `/` or `~/`"),
    ("paths: {runs: /x}\nslurm: {gpu_types: {h200: {}}}", "cluster.gpu-type", "gres: h200"),
    ("paths: {runs: /x}\nslurm: {gpu_types: {h200: {gres: 'gpu:h200'}}}", "cluster.gpu-type", "`h200`"),
    (
        'paths: {runs: /x}\nslurm: {extra_sbatch: ["--a=b\\n#SBATCH --c"]}',
        "cluster.sbatch",
        "not an sbatch option",
    ),
    ("scheduler: local\ncontainer: {runtime: pyxis}", "cluster.runtime", "part of Slurm"),
    ("paths: {runs: /x}\nenv: {WANDB_API_KEY: x}", "cluster.secret", "`secrets`"),
    ("paths: {runs: /x}\nenv: {A: true}", "spec.not-text", '"true"'),
    ("paths: {run: /x}", "spec.unknown-key", "did you mean `runs`"),
    ("runs: /x", "spec.unknown-key", "did you mean `paths.runs`"),
    ("paths: {runs: /x}\nscheduler: pbs", "spec.choice", "`slurm`"),
]


@pytest.mark.parametrize(("body", "rule", "words"), BAD)
def test_bad_profile(body: str, rule: str, words: str) -> None:
    with pytest.raises(JobspecError) as caught:
        parse(body)
    errors = [found for found in caught.value.findings if found.is_error]
    assert [(f.rule, f.file) for f in errors] == [(rule, "site.yaml")]
    assert errors[0].line >= 3
    assert words in errors[0].text()


WARNED: list[tuple[str, str, str]] = [
    ("paths: {runs: /x}\nnetwork: {ray_ports: {head: 40000}}", "cluster.ports", "ephemeral"),
    (
        "paths: {runs: /x}\nnetwork: {ray_ports: {worker_min: 20000, worker_max: 20010}}",
        "cluster.ports",
        "11 ports",
    ),
    ("scheduler: local\nslurm: {partition: p}", "cluster.unused", "no effect"),
    ("paths: {runs: /x}\naccess: {master: auto}", "cluster.unused", "`login: here`"),
    ("paths: {runs: /x}\nenv: {NCCL_IB_GID_INDEX: 3}", "spec.unquoted", '"3"'),
]


@pytest.mark.parametrize(("body", "rule", "words"), WARNED)
def test_warned_about(body: str, rule: str, words: str) -> None:
    env = {"USER": "alice", "HOME": "/home/alice"}
    (found,) = parse_cluster(f"version: 1\nname: site\n{body}", Path("site.yaml"), env=env).findings
    assert (found.rule, found.severity) == (rule, "warning")
    assert words in found.text()


def test_every_error_of_a_profile_at_once() -> None:
    with pytest.raises(JobspecError) as caught:
        parse("paths: {runs: '${hom}'}\nnode: {gpus: eight}\nfoo: 1\nscheduler: pbs")
    assert {found.rule for found in caught.value.findings} == {
        "cluster.reference", "spec.type", "spec.unknown-key", "spec.choice"
    }  # fmt: skip


@pytest.mark.parametrize(
    ("name", "value", "told"),
    [
        ("JOBSPEC_STAGE_MAX_GB", "500", "did you mean `JOBSPEC_STAGE_MAX_GIB`?"),
        ("JOBSPEC_TOKEN_FILE", "x", "remove it"),
        ("JOBSPEC_STAGE_MAX_GIB", "500G", 'write it like `"500"`'),
        ("JOBSPEC_STAGE_MAX_GIB", "-1", 'write it like `"500"`'),
        ("JOBSPEC_STAGE_MAX_GIB", "", 'write it like `"500"`'),
    ],
)
def test_variables_of_jobspec_itself(name: str, value: str, told: str) -> None:
    """Nobody reads the first two, and the third would stop a job that has its nodes already."""
    with pytest.raises(JobspecError) as caught:
        parse(f"paths: {{runs: /r}}\nenv: {{{name}: '{value}'}}")
    (found,) = caught.value.findings
    assert (found.rule, found.path) == ("cluster.variable", f"env.{name}")
    assert told in found.fix


@pytest.mark.parametrize("value", ["500", "0", "0.5"])
def test_a_bound_on_staging_is_a_number(value: str) -> None:
    given = f"paths: {{runs: /r}}\nenv: {{JOBSPEC_STAGE_MAX_GIB: '{value}'}}"
    assert parse(given).env == {"JOBSPEC_STAGE_MAX_GIB": value}


def test_a_folder_that_cannot_be_read_has_no_profiles(tmp_path: Path, env: dict[str, str]) -> None:
    folder = tmp_path / "closed"
    write(folder, "hidden")
    env["JOBSPEC_CLUSTERS"] = str(folder)
    assert "hidden" in [entry.name for entry in list_clusters(env)]
    folder.chmod(0)
    user = os.geteuid()
    if user == 0:  # root reads every folder
        os.seteuid(65534)
    try:
        assert "hidden" not in [entry.name for entry in list_clusters(env)]
    finally:
        os.seteuid(user)
