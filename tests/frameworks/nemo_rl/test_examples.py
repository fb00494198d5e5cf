"""The examples of NeMo-RL on stand-in checkouts: each validates, plans, and is where the docs say."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from jobspec.frameworks.nemo_rl.levels import BY_NAME
from jobspec.frameworks.nemo_rl.properties import planned
from jobspec.planning.levels import spread
from jobspec.planning.resolve import Resolved, resolve
from jobspec.spec.find_site import load_cluster
from jobspec.spec.load import load_spec
from jobspec.sweeps.points import check_sweep
from tests.kits.fake_suites import add_suites
from tests.kits.framework_kit import make_fake_nemo_rl

ROOT = Path(__file__).parents[3]
TWO_NODES = ("resources.nodes=2", "resources.gpus_per_node=8")
DYNAMIC = (
    "train.parallel.cp=1",
    "train.overrides.policy.sequence_packing.enabled=false",
    "train.overrides.policy.dynamic_batching.enabled=true",
)
SPECS = sorted((ROOT / "examples/nemo_rl").glob("*.yaml"))


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home folder with both checkouts as git repositories."""
    home = tmp_path_factory.mktemp("home")
    make_fake_nemo_rl(home / "src/RL")
    add_suites(home / "src/RL", home / "src/RL" / BY_NAME["sizes"].config)
    bridge = home / "src/Megatron-Bridge"
    for folder in ("src/megatron/bridge", "3rdparty/Megatron-LM", "tests/unit_tests/models"):
        (bridge / folder).mkdir(parents=True)
    (bridge / "tests/unit_tests/models/test_param_mapping.py").touch()
    test = home / "src/RL/tests/unit/models/megatron/test_megatron_setup.py"
    test.parent.mkdir(parents=True)
    test.touch()
    who = ("-c", "user.name=t", "-c", "user.email=t@example.org")
    for root in (home / "src/RL", bridge):
        for words in (("init", "-q"), ("add", "."), (*who, "commit", "-qm", "x")):
            subprocess.run(["git", *words], cwd=root, check=True)
    return home


def resolved(path: Path, home: Path, *sets: str) -> Resolved:
    env = {"USER": "u", "HOME": str(home)}
    profile = load_cluster("slurm-pyxis", None, env=env)
    return resolve(spread(load_spec(path, sets=sets, env=env)), profile, env=env)


@pytest.mark.parametrize("path", SPECS, ids=lambda path: path.stem)
def test_example_plans(path: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(home))
    found = resolved(path, home)
    assert not [finding for finding in found.findings if finding.is_error]
    assert found.plan is not None
    assert found.plan.expect.variants == (found.spec.coverage.variants or (found.spec.train.recipe,))
    assert [proof.module for proof in found.plan.proofs] == ["megatron.bridge"]


@pytest.mark.parametrize("path", SPECS, ids=lambda path: path.stem)
def test_example_says_how_to_run_it(path: Path) -> None:
    text = path.read_text()
    assert text.splitlines()[0] == "# yaml-language-server: $schema=../../jobspec/spec/job.schema.json"
    assert f"#   jobspec run examples/nemo_rl/{path.name}" in text


def test_there_is_one_for_each_level(home: Path) -> None:
    levels = {path.stem: load_spec(path, env={}).spec.coverage.level for path in SPECS}
    names = ("smoke", "lora", "refit", "generation", "parallel", "features", "learning")
    assert [levels[f"level{number}"] for number in range(7)] == list(names)
    assert {"data_plane", "r3"} <= set(levels)


@pytest.mark.parametrize(
    ("name", "sets"),
    [
        ("data_plane", ("coverage.variants=[data-plane-simple]",)),
        ("data_plane", ("coverage.variants=[data-plane-nodes]", *TWO_NODES)),
        ("data_plane_30b", ("train.overrides.data_plane.backend=simple",)),
        ("data_plane_30b", DYNAMIC),
        ("recipe", ("resources.nodes=2", "train.steps=3")),
        # The stand-in's recipe has no expert parallelism, without which this model fits no GPU.
        ("level2", ("coverage.variants=[delta]", "resources.nodes=4", "resources.gpus_per_node=8")),
    ],
)
def test_settings_in_the_comments_work(
    name: str, sets: tuple[str, ...], home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(home))
    path = ROOT / f"examples/nemo_rl/{name}.yaml"
    assert all(f"--set {item}" in path.read_text() for item in sets)
    found = resolved(path, home, *sets)
    assert {finding.rule for finding in found.findings if finding.is_error} <= {"memory.gpu"}


def test_several_levels_are_points_that_can_all_run(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(home))
    env = {"USER": "u", "HOME": str(home)}
    loaded = spread(load_spec(ROOT / "examples/nemo_rl/levels.yaml", env=env))
    points, plans, findings = check_sweep(loaded, load_cluster("slurm-pyxis", None, env=env))
    assert not [finding for finding in findings if finding.is_error]
    assert [(plan.ready_plan.expect.number, plan.ready_plan.expect.variants) for plan in plans] == [
        (0, ("colocated",)),
        (1, ("lora",)),
        (1, ("resume",)),
    ]
    assert all(item.ready_plan.checks[0].name == "checks-bridge" for item in plans)
    assert len(points) == 3


def test_checks_come_before_training(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(home))
    plan = resolved(ROOT / "examples/nemo_rl/level0.yaml", home).plan
    assert plan is not None
    assert [item.name for item in plan.checks] == ["checks-bridge", "checks-nemo_rl"]
    assert [item.name for item in plan.commands] == ["bridge-import", "colocated"]


def test_large_model_on_the_data_plane_announces_and_proves(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(home))
    plan = resolved(ROOT / "examples/nemo_rl/data_plane_30b.yaml", home).plan
    assert plan is not None
    assert [item.name for item in plan.commands] == ["bridge-import", "announce-address", "sizes"]
    (variant,) = planned(plan.expect)
    assert (variant.trainer, variant.proofs) == ("transfer_queue", ("parallel-sizes", "data-plane-mooncake"))


def test_upstream_example_names_the_checkout_s_script(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(home))
    plan = resolved(ROOT / "examples/nemo_rl/level4.yaml", home).plan
    assert plan is not None
    assert plan.upstream is not None
    assert (plan.upstream.root, plan.ray) == (str(home / "src/RL"), None)
