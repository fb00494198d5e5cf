"""Every example validates, and the model they use is the same bytes each time it is made."""

from __future__ import annotations

import hashlib
import json
import subprocess
from pathlib import Path
from types import ModuleType

import pytest

from jobspec.planning.resolve import Resolved, resolve
from jobspec.runtime.staging import hfcache
from jobspec.runtime.staging.listing_checks import check_listing
from jobspec.spec.find_site import load_cluster
from jobspec.spec.load import load_spec
from jobspec.sweeps.points import check_points
from tests.kits.script_module import load_script

EXAMPLES = Path(__file__).parents[2] / "examples"
SPECS = sorted(EXAMPLES.glob("*.yaml"))
# These need a checkout of SkyRL, most of them a site with H200s as well: tests/frameworks/skyrl.
ON_A_CLUSTER = {"groups": "slurm-generic"}  # has several nodes
HERE = [path for path in SPECS if "framework: skyrl" not in path.read_text()]
SLURM = ("resources.time=00:10:00",)


@pytest.fixture(scope="module")
def maker() -> ModuleType:
    return load_script(EXAMPLES / "make_tiny_model.py")


def resolved(path: Path, cluster: str = "local", sets: tuple[str, ...] = ()) -> Resolved:
    env = {"USER": "u", "HOME": "/home/u"}
    return resolve(load_spec(path, sets=sets, env=env), load_cluster(cluster, None, env=env), env=env)


def tree(folder: Path) -> dict[str, str]:
    """Every file and link below `folder`: digest or target."""
    return {
        str(path.relative_to(folder)): str(path.readlink())
        if path.is_symlink()
        else hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_symlink() or path.is_file()
    }


# -- specs -------------------------------------------------------------------------------------------


def test_there_are_examples() -> None:
    assert {path.stem for path in SPECS} >= {"quickstart", "addition", "checkpoint_resume", "command_hello"}


@pytest.mark.parametrize("path", HERE, ids=lambda path: path.stem)
def test_example_validates(path: Path) -> None:
    found = resolved(path, ON_A_CLUSTER.get(path.stem, "local"))
    assert not [finding for finding in found.findings if finding.is_error]
    assert found.plan is not None


@pytest.mark.parametrize("path", SPECS, ids=lambda path: path.stem)
def test_example_names_its_schema_for_editors(path: Path) -> None:
    first = path.read_text().splitlines()[0]
    assert first == "# yaml-language-server: $schema=../jobspec/spec/job.schema.json"
    assert (path.parent / first.partition("$schema=")[2]).is_file()


@pytest.mark.parametrize("path", SPECS, ids=lambda path: path.stem)
def test_commands_in_comments_name_the_file_itself(path: Path) -> None:
    """A spec that was copied from another one and still says how to run that one misleads."""
    commands = [line for line in path.read_text().splitlines() if line.startswith("#   jobspec ")]
    assert commands
    assert all(f"examples/{path.name}" in line for line in commands)


EQUAL = [path for path in HERE if path.stem not in ON_A_CLUSTER]


@pytest.mark.parametrize("path", EQUAL, ids=lambda path: path.stem)
def test_example_runs_on_two_slurm_nodes_by_set_alone(path: Path) -> None:
    found = resolved(path, "slurm-generic", ("resources.nodes=2", *SLURM))
    errors = [
        finding for finding in found.findings if finding.is_error and not finding.rule.startswith("stage.")
    ]
    assert not errors
    assert found.plan is not None
    assert found.plan.nodes == 2


def test_reward_server_has_an_image_of_its_own_where_the_site_starts_containers() -> None:
    path = EXAMPLES / "reward_server.yaml:own-image"
    found = resolved(path, str(load_spec(path, env={}).spec.cluster))  # as `validate` of the file takes it
    errors = {item.rule for item in found.findings if item.is_error}
    assert errors <= {"stage.missing"}
    (service,) = found.ready_plan.services
    assert service.container is not None
    assert service.container.image == "/images/reward-server.sqsh"


def test_quickstart_asks_for_all_that_it_shows() -> None:
    plan = resolved(EXAMPLES / "quickstart.yaml").plan
    assert plan is not None
    assert [proof.module for proof in plan.proofs] == ["tiny_rewards"]
    assert plan.helpers is not None
    assert {item.kind for item in plan.stage} == {"model", "dataset"}
    assert plan.expect.checkpoint
    assert plan.expect.learning is not None
    assert json.loads(plan.commands[0].argv[-1])["workers"] == 2


def test_sweep_has_four_points_and_two_that_cannot_run() -> None:
    found = resolved(EXAMPLES / "sweep_small.yaml")
    checked = check_points(found.loaded, found.cluster)
    assert (len(checked.points), {item.rule for item in checked.pruned}) == (4, {"trl.generations"})


# -- model -------------------------------------------------------------------------------------------


def test_same_seed_same_bytes(maker: ModuleType, tmp_path: Path) -> None:
    maker.make(tmp_path / "a")
    maker.make(tmp_path / "b")
    assert tree(tmp_path / "a") == tree(tmp_path / "b")


def test_other_seed_other_weights(maker: ModuleType, tmp_path: Path) -> None:
    one, _ = maker.make(tmp_path / "a", seed=0)
    two, _ = maker.make(tmp_path / "b", seed=1)
    assert (one / "model.safetensors").read_bytes() != (two / "model.safetensors").read_bytes()
    assert (one / "tokenizer.json").read_bytes() == (two / "tokenizer.json").read_bytes()


def test_second_call_writes_nothing(maker: ModuleType, tmp_path: Path) -> None:
    maker.make(tmp_path)
    before = {path: path.lstat().st_mtime_ns for path in tmp_path.rglob("*")}
    maker.make(tmp_path)
    assert {path: path.lstat().st_mtime_ns for path in tmp_path.rglob("*")} == before


def test_damaged_blob_is_repaired(maker: ModuleType, tmp_path: Path) -> None:
    model, _ = maker.make(tmp_path)
    blob = (model / "model.safetensors").resolve()
    whole = blob.read_bytes()
    blob.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    maker.make(tmp_path)
    assert blob.read_bytes() == whole


def test_runtime_takes_the_cache_for_complete(maker: ModuleType, tmp_path: Path) -> None:
    for kind, snapshot in zip(("model", "dataset"), maker.make(tmp_path), strict=True):
        listing = hfcache.list_hf(str(snapshot.parents[1]), snapshot.name, (), ())
        assert not check_listing(listing, kind, (), (), ())


def test_blob_names_are_what_git_and_sha256_say(maker: ModuleType, tmp_path: Path) -> None:
    model, _ = maker.make(tmp_path)
    config, weights = model / "config.json", model / "model.safetensors"
    by_git = subprocess.run(["git", "hash-object", str(config)], capture_output=True, text=True, check=True)
    assert config.readlink().name == by_git.stdout.strip()
    assert weights.readlink().name == hashlib.sha256(weights.read_bytes()).hexdigest()


@pytest.mark.train
def test_transformers_loads_it_whole(maker: ModuleType, tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    model, _ = maker.make(tmp_path)
    loaded, info = transformers.AutoModelForCausalLM.from_pretrained(model, output_loading_info=True)
    assert not info["missing_keys"]
    assert not info["unexpected_keys"]
    assert sum(value.numel() for value in loaded.parameters()) == 77_568
    tokenizer = transformers.AutoTokenizer.from_pretrained(model)
    chat = tokenizer.apply_chat_template(
        [{"role": "user", "content": "12+34="}], add_generation_prompt=True, tokenize=False
    )
    assert chat == "<user>12+34=<eos><assistant>"
    ids = tokenizer(chat)["input_ids"]
    assert len(ids) == 9
    assert tokenizer.decode(ids) == chat
