"""A path of the spec that leads nowhere is told once: no rule that would have looked there adds a word."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from pathlib import Path

import pytest

from jobspec.cli.commands.init import starter
from jobspec.finding import JobspecError
from jobspec.frameworks.nemo_rl.levels import BY_NAME
from jobspec.plan import from_json, to_json
from jobspec.planning.levels import spread
from jobspec.planning.resolve import Resolved, resolve
from jobspec.spec.find_site import load_cluster
from jobspec.spec.load import load_spec
from tests.kits.fake_rlix import make_fake_nemo_fork, make_fake_rlix
from tests.kits.fake_skyrl import make_fake_skyrl
from tests.kits.fake_suites import add_suites
from tests.kits.fake_verl import make_bridge, make_checkout
from tests.kits.framework_kit import make_fake_nemo_rl, site_text

ROOT = Path(__file__).parents[2]
EXAMPLES = sorted((ROOT / "examples").rglob("*.yaml"))
STARTERS = ("command", "nemo_rl", "rlix", "skyrl", "trl", "verl")


@dataclass(frozen=True)
class Case:
    """A spec whose checkouts are stand-ins below a home of its own."""

    path: Path
    home: Path

    @functools.cache  # noqa: B019 - of one module, and nothing below the home changes
    def resolved(self, *sets: str) -> Resolved:
        env = {"USER": "u", "HOME": str(self.home)}
        site = self.home / "site.yaml"
        site.write_text(site_text(cpus=192, memory="2000G", gpu_memory="141G"))
        profile = load_cluster(None, site, env=env)
        return resolve(spread(load_spec(self.path, sets=sets, env=env)), profile, env=env)

    def told(self, *sets: str) -> set[tuple[str, str]]:
        """Rule and severity of every finding."""
        try:
            return {(found.rule, found.severity) for found in self.resolved(*sets).findings}
        except JobspecError as problem:
            return {(found.rule, found.severity) for found in problem.findings}


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("home")
    make_fake_nemo_rl(home / "src/RL")
    add_suites(home / "src/RL", home / "src/RL" / BY_NAME["sizes"].config)
    test = home / "src/RL/tests/unit/models/megatron/test_megatron_setup.py"
    test.parent.mkdir(parents=True)
    test.touch()
    make_checkout(home / "src/verl", "0.9.0")
    make_bridge(home / "src/Megatron-Bridge")
    make_fake_skyrl(home / "src/SkyRL")
    return home


@pytest.fixture(scope="module")
def rlix_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """RLix's specs call its fork of NeMo-RL `~/src/RL`, too."""
    home = tmp_path_factory.mktemp("rlix")
    make_fake_rlix(home / "src/rlix")
    make_fake_nemo_fork(home / "src/RL")
    return home


@pytest.fixture(params=[*EXAMPLES, *STARTERS], ids=lambda item: item if isinstance(item, str) else item.stem)
def case(
    request: pytest.FixtureRequest, home: Path, rlix_home: Path, monkeypatch: pytest.MonkeyPatch
) -> Case:
    path = request.param
    if isinstance(path, str):
        path = home / f"{request.param}.yaml"
        path.write_text(starter(request.param, "mine"))
    own = rlix_home if "framework: rlix" in path.read_text() else home
    monkeypatch.setenv("HOME", str(own))
    return Case(path, own)


def test_valid_at_a_site_with_scratch_storage(case: Case) -> None:
    """With every checkout that it names no spec has an error; a starter still wants its image."""
    image = () if case.resolved().spec.container.image else ("container.image=org/image:1",)
    assert not {rule for rule, severity in case.told(*image) if severity == "error"}


def test_plan_is_read_back_as_it_was_written(case: Case) -> None:
    """Reading checks the type of every value, so each adapter's plan must keep to them."""
    plan = case.resolved().plan
    if plan is not None:
        assert from_json(to_json(plan)) == plan


def test_missing_checkout(case: Case) -> None:
    before = case.told()
    for index, repo in enumerate(case.resolved().spec.repos):
        sets = [f"repos[{index}].path={case.home}/nosuch", *([f"~repos[{index}].url"] if repo.url else [])]
        after = case.told(*sets)
        assert ("repo.missing", "error") in after
        assert after - before <= {("repo.missing", "error")}, repo.name


def test_checkout_that_is_not_cloned_yet(case: Case) -> None:
    before = case.told()
    for index, repo in enumerate(case.resolved().spec.repos):
        if repo.path is not None:
            at = f"repos[{index}]"
            sets = (f"~{at}.path", f"{at}.url=https://example.org/x.git", f"{at}.ref={'0' * 40}")
            assert case.told(*sets) - before <= {("repo.not-fetched", "warning")}, repo.name


def test_missing_model(case: Case) -> None:
    model = case.resolved().spec.model
    if model is None:
        return
    sets = [f"model.path={case.home}/nosuch", *([] if model.id is None else ["~model.id"])]
    before = case.told()
    after = case.told(*sets)
    assert ("stage.missing", "warning") in after
    # RLix wants a number in the spec where the model's sizes are not known, and its gates one model by its
    # name: those are things of their own to do.
    own = {("rlix.bucket-size", "error"), ("rlix.gates", "warning")}
    assert after - before <= {("stage.missing", "warning"), *own}


def test_starters_of_skyrl_ask_for_a_template_that_staging_proves(case: Case) -> None:
    assert "skyrl.chat-template" not in {rule for rule, _ in case.told()}


def test_missing_data(case: Case) -> None:
    before = case.told()
    for index, _ in enumerate(case.resolved().spec.data):
        after = case.told(f"data[{index}].source={case.home}/nosuch")
        assert after - before <= {("stage.missing", "warning")}


OTHERS = [
    ("rlix", "pipelines[0].config=examples/nosuch.yaml", "rlix.config"),
    ("nemo_rl", "repos[0].pythonpath=[nosuch, 3rdparty/Megatron-LM]", "repo.pythonpath"),
    ("verl", "repos[0].pythonpath=[nosuch, 3rdparty/Megatron-LM]", "repo.pythonpath"),
    ("skyrl", "repos[0].pythonpath=[nosuch]", "repo.pythonpath"),
    ("verl", "mcore_helpers={repo: bridge, subdir: nosuch}", "repo.helpers"),
    ("trl", "train.reward=nosuch.py:f", "trl.reward"),
    ("command", "launch.mode=upstream", "launch.upstream-unsupported"),
]


@pytest.mark.parametrize(("name", "setting", "cause"), OTHERS)
def test_other_paths(
    home: Path, rlix_home: Path, monkeypatch: pytest.MonkeyPatch, name: str, setting: str, cause: str
) -> None:
    own = rlix_home if name == "rlix" else home
    monkeypatch.setenv("HOME", str(own))
    path = own / f"other-{name}.yaml"
    path.write_text(starter(name, "mine"))
    case = Case(path, own)
    assert {rule for rule, _ in case.told(setting) - case.told()} == {cause}


@pytest.mark.parametrize(
    ("name", "setting"),
    [("trl", "train.reward=rewards.py:f"), ("command", "launch.mode=upstream")],
)
def test_a_file_of_a_checkout_that_is_not_here(
    home: Path, monkeypatch: pytest.MonkeyPatch, name: str, setting: str
) -> None:
    monkeypatch.setenv("HOME", str(home))
    path = home / f"file-{name}.yaml"
    path.write_text(starter(name, "mine"))
    case = Case(path, home)
    away = f"repos=[{{name: away, path: {home}/nosuch}}]"
    assert ("repo.missing", "error") in case.told(setting, away)
    assert not {rule for rule, _ in case.told(setting, away)} & {"trl.reward", "launch.upstream-unsupported"}


def test_a_checkout_that_the_spec_does_not_name_is_no_consequence(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(home))
    path = home / "unnamed-verl.yaml"
    path.write_text(starter("verl", "mine"))
    told = Case(path, home).told(
        f"repos=[{{name: bridge, path: {home}/nosuch, prove: {{import: megatron.bridge}}}}]"
    )
    assert {("repo.missing", "error"), ("verl.checkout", "error")} <= told


def test_nothing_is_planned_before_a_clone(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without an error there would be a plan, and a sweep would have points."""
    monkeypatch.setenv("HOME", str(home))
    path = home / "url.yaml"
    path.write_text(starter("nemo_rl", "mine"))
    bridge = "{name: bridge, url: 'https://example.org/b.git', ref: abc, prove: {import: megatron.bridge}}"
    away = f"repos=[{{name: nemo_rl, url: 'https://example.org/x.git', ref: abc}}, {bridge}]"
    found = Case(path, home).resolved(away, "resources.time=1:00:00", "container.image=x/y:1")
    assert found.plan is None
    assert not any(finding.is_error for finding in found.findings)
    assert [finding.rule for finding in found.problems if finding.is_error] == ["repo.not-here"]
