"""`jobspec framework recipes` and `init --model` on a stand-in checkout with a real git history."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from jobspec.frameworks.base import RecipeNote
from jobspec.frameworks.nemo_rl.levels import BY_NAME
from jobspec.megatron.shape import TrainShape
from jobspec.planning.site_fit import site_fit
from jobspec.spec.load import load_spec
from jobspec.spec.site import ClusterProfile, Limits, Node, Paths
from tests.kits.fake_suites import DTENSOR, MOONLIGHT, PLANE, PPO, QWEN, add_suites
from tests.kits.framework_kit import make_fake_nemo_rl, site_text
from tests.kits.project_kit import Project

WHO = ("-c", "user.name=t", "-c", "user.email=t@example.org")


def commit(root: Path, day: str) -> None:
    when = {
        "GIT_AUTHOR_DATE": f"{day}T12:00:00Z",
        "GIT_COMMITTER_DATE": f"{day}T12:00:00Z",
        "HOME": str(root),
    }
    for words in (("add", "-A"), (*WHO, "commit", "-qm", "x")):
        subprocess.run(["git", *words], cwd=root, check=True, env={**when, "PATH": "/usr/bin:/bin"})


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("recipes") / "RL"
    root.mkdir()
    make_fake_nemo_rl(root)
    add_suites(root, root / BY_NAME["sizes"].config)
    subprocess.run(["git", "init", "-q"], cwd=root, check=True)
    commit(root, "2026-01-02")
    changed = root / f"examples/configs/recipes/llm/{MOONLIGHT}.yaml"
    changed.write_text(changed.read_text() + "\n")
    commit(root, "2026-03-04")
    return root


@pytest.fixture
def site(project: Project) -> Path:
    return project.write("site.yaml", site_text(cpus=96, memory="1800G", gpu_memory="141G"))


def test_recipes_of_a_family_with_their_sizes(project: Project, root: Path, site: Path) -> None:
    asked = ("framework", "recipes", "nemo_rl", "--repo", root, "--cluster-file", site, "--json")
    found = {item["name"]: item for item in project.cli(*asked, "--model", "qwen3-30b").json}
    assert all("qwen3-30b" in name for name in found)
    assert found[QWEN] == {
        "name": QWEN,
        "file": f"examples/configs/recipes/llm/{QWEN}.yaml",
        "algorithm": "grpo",
        "model": "Qwen/Qwen3-30B-A3B",
        "nodes": 8,
        "gpus_per_node": 8,
        "steps": 30,
        "minutes": 300,
        "parallel": {"tp": 2, "ep": 8},
        "changed": "2026-01-02",
        "problem": "",
        "fits": "yes",
        "why": "by the memory estimate",
    }
    moonlight = project.cli(*asked, "--model", "moonlight").json
    assert {item["name"]: item["changed"] for item in moonlight} == {
        MOONLIGHT: "2026-03-04",
        PLANE: "2026-01-02",
    }


def test_site_without_gpus_is_named_once(project: Project, root: Path) -> None:
    asked = ("framework", "recipes", "nemo_rl", "--repo", root, "--model", "moonlight")
    for more in ((), ("--fits",)):
        assert project.cli(*asked, *more).out.count("the site profile has no `node.gpus`") == 1


def test_what_cannot_run_is_listed_on_request_alone(project: Project, root: Path, site: Path) -> None:
    asked = ("framework", "recipes", "nemo_rl", "--repo", root, "--cluster-file", site)
    plain, everything = project.cli(*asked).out, project.cli(*asked, "--all").out
    assert QWEN in plain
    assert PPO not in plain
    assert "cannot run: runs `examples/run_ppo.py`" in everything
    assert next(line for line in everything.splitlines() if DTENSOR in line).endswith("Megatron")
    assert "--all lists them" in plain
    assert "`limits.max_nodes`" in plain


def test_this_folder_is_the_checkout_by_default(
    project: Project, root: Path, site: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = ("framework", "recipes", "nemo_rl", "--cluster-file", site)
    wrong = project.cli(*asked)
    assert (wrong.code, "--repo PATH" in wrong.err) == (2, True)
    monkeypatch.chdir(root)
    assert QWEN in project.cli(*asked).out


@pytest.mark.parametrize(
    ("words", "rule"),
    [(("verl",), "usage.recipes"), (("nemo_rl", "--model", "no-such"), "usage.recipes")],
)
def test_what_is_not_there_is_an_error(
    project: Project, root: Path, words: tuple[str, ...], rule: str
) -> None:
    done = project.cli("framework", "recipes", *words, "--repo", root)
    assert (done.code, f"error[{rule}]" in done.err) == (2, True)


def test_family_without_a_recipe_gets_the_closest_one(project: Project, root: Path) -> None:
    done = project.cli("framework", "recipes", "nemo_rl", "--repo", root, "--model", "Moonlight-99B")
    assert f"the closest is `{MOONLIGHT}`" in done.err


def test_history_that_is_not_there_is_no_date(
    project: Project, root: Path, site: Path, tmp_path: Path
) -> None:
    clone = tmp_path / "shallow"
    subprocess.run(["git", "clone", "-q", "--depth=1", f"file://{root}", clone], check=True)
    asked = ("framework", "recipes", "nemo_rl", "--repo", clone, "--cluster-file", site)
    done = project.cli(*asked)
    assert "CHANGED is not known" in done.out
    assert {item["changed"] for item in project.cli(*asked, "--json").json} == {None}


PATHS = Paths(runs="/r")
LARGE = TrainShape(1, 8, tp=1, pp=1, seq_length=8192, micro_batch=1)


@pytest.mark.parametrize(
    ("note", "node", "limits", "holds", "why"),
    [
        (RecipeNote("x", "f", gpus=8), Node(gpus=4), Limits(), "no", "a node has 4"),
        (RecipeNote("x", "f", nodes=8), Node(gpus=8), Limits(max_nodes=4), "no", "may have 4"),
        (RecipeNote("x", "f"), Node(), Limits(), "not known", "`node.gpus`"),
        (RecipeNote("x", "f"), Node(gpus=8), Limits(), "not known", "`node.gpu_memory`"),
        (RecipeNote("x", "f", model="a/b"), Node(gpus=8, gpu_memory="80G"), Limits(), "not known", "`a/b`"),
        (
            RecipeNote("x", "f", model="Qwen/Qwen3-30B-A3B", gpus=8, shape=LARGE),
            Node(gpus=8, gpu_memory="80G"),
            Limits(),
            "no",
            "are needed",
        ),
    ],
)
def test_site_that_cannot_hold_a_recipe_says_why(
    note: RecipeNote, node: Node, limits: Limits, holds: str, why: str
) -> None:
    profile = ClusterProfile(version=1, name="c", scheduler="slurm", paths=PATHS, node=node, limits=limits)
    fit = site_fit(note, profile)
    assert fit.holds == holds
    assert why in fit.why


def test_only_recipes_that_fit(project: Project, root: Path) -> None:
    small = project.write("small.yaml", site_text(cpus=8, memory="64G", gpu_memory="16G"))
    asked = ("framework", "recipes", "nemo_rl", "--repo", root, "--cluster-file", small, "--json")
    every = {item["name"]: item["fits"] for item in project.cli(*asked).json}
    assert every[QWEN] == "no"
    fitting = {item["name"] for item in project.cli(*asked, "--fits").json}
    assert fitting == {name for name, fits in every.items() if fits == "yes"}


def test_init_starts_from_the_closest_recipe(project: Project, root: Path) -> None:
    done = project.cli("init", "--framework", "nemo_rl", "--model", "Qwen/Qwen3-30B-A3B", "--repo", root)
    assert done.code == 0
    spec = load_spec("my-run.yaml", env={}).spec
    assert (spec.train.recipe, spec.coverage.level, spec.coverage.variants) == (QWEN, "parallel", ())
    assert (spec.resources.nodes, spec.resources.gpus_per_node, spec.resources.time) == (8, 8, "05:00:00")
    assert [repo.path for repo in spec.repos if repo.name == "nemo_rl"] == [str(root)]


def test_init_from_a_named_recipe(project: Project, root: Path) -> None:
    assert project.cli("init", "nemo_rl", "--from-recipe", QWEN, "--repo", root).code == 0
    assert load_spec("my-run.yaml", env={}).spec.train.recipe == QWEN
    wrong = project.cli("init", "nemo_rl", "--from-recipe", QWEN[:-2], "--repo", root, "--name", "x")
    assert (wrong.code, f"did you mean `{QWEN}`?" in wrong.err) == (2, True)


@pytest.mark.parametrize(
    ("words", "rule"),
    [
        (("nemo_rl", "--from-recipe", "no-such-recipe"), "init.recipe"),
        (("verl", "--from-recipe", "x"), "init.recipe"),
        (("nemo_rl", "--from-recipe", "x", "--model", "qwen3"), "usage.arguments"),
        (("--framework", "nemo_rl", "--model", "org/unheard-of"), "init.recipe"),
        (("--framework", "verl", "--model", "qwen3"), "init.recipe"),
        (("--framework", "nemo_rl"), "usage.init"),
    ],
)
def test_init_without_a_recipe_writes_nothing(
    project: Project, root: Path, words: tuple[str, ...], rule: str
) -> None:
    done = project.cli("init", *words, "--repo", root)
    assert (done.code, f"error[{rule}]" in done.err) == (2, True)
    assert not Path("my-run.yaml").exists()
