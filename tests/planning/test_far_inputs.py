"""Image, model and data of a cluster behind SSH: a real sshd that sees other files under the same paths."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from jobspec import pipeline
from jobspec.finding import Finding, JobspecError
from jobspec.launchers.access.ssh import SshClient
from jobspec.pipeline import Request
from jobspec.planning import far_side
from jobspec.planning.digests import file_digest, tree_digest
from jobspec.planning.far_inputs import answered
from jobspec.planning.image_stage import bring_image_at, image_item
from jobspec.runtime.staging import image_cache
from jobspec.spec.site import SiteContainer
from tests.kits import images_kit
from tests.kits.checkout_kit import write_checkout
from tests.kits.programs_kit import needs
from tests.kits.registry_kit import Registry
from tests.planning.test_elsewhere import CODE, Sides, pytestmark, server, sides
from tests.runtime.staging.stage_kit import COMMIT, blob_of, hf_repo, sharded

__all__ = ["pytestmark", "server", "sides"]  # the two sides, as the checkouts' tests have them
CONFIG = {
    "model_type": "qwen2",
    "num_hidden_layers": 4,
    "hidden_size": 256,
    "num_attention_heads": 4,
    "intermediate_size": 512,
    "vocab_size": 1024,
}


class Inputs:
    """A spec with a model by id, a data set by path and an image file, all below the folder of two faces."""

    def __init__(self, sides: Sides) -> None:
        self.sides = sides
        profile = yaml.safe_load((sides.root / "far.yaml").read_text())
        profile["paths"]["hf_home"] = str(sides.here / "hf")
        profile["container"] = {"runtime": "pyxis"}
        profile["node"] = {"gpus": 0}
        (sides.root / "far.yaml").write_text(yaml.safe_dump(profile))
        sides.write_spec(
            model={"id": "acme/tiny", "load": False},
            data=[{"name": "d", "source": f"{sides.here}/d.jsonl"}],
            container={"image": f"{sides.here}/x.sqsh"},
        )

    def put(self, side: Path, files: dict[str, bytes] | None = None) -> None:
        """The three of them on one side."""
        hf_repo(side / "hf" / "hub", files or {**sharded(), "config.json": json.dumps(CONFIG).encode()})
        (side / "d.jsonl").write_text("{}\n")
        (side / "x.sqsh").write_bytes(b"image of " + str(side).encode())

    def found(self) -> list[Finding]:
        return [
            item
            for item in pipeline.check(self.sides.request())
            if item.path in ("model", "data", "container.image")
        ]

    def missing(self) -> dict[str, Finding]:
        return {
            item.path: item
            for item in self.found()
            if item.rule in ("stage.missing", "container.image-absent")
        }


@pytest.fixture
def inputs(sides: Sides) -> Inputs:
    return Inputs(sides)


def test_what_only_we_have_is_missing(inputs: Inputs) -> None:
    inputs.put(inputs.sides.here)
    found = inputs.missing()
    assert sorted(found) == ["container.image", "data", "model"]
    assert all("does not exist on `login`" in item.what for item in found.values())
    with pytest.raises(JobspecError) as caught:
        pipeline.must_be_ready(inputs.sides.request())
    errors = {item.rule for item in caught.value.findings if item.is_error}
    assert errors == {"stage.missing", "container.image-absent"}


def test_what_only_the_cluster_has_is_planned(inputs: Inputs) -> None:
    inputs.put(inputs.sides.there)
    assert inputs.missing() == {}
    run = inputs.sides.render("out").run
    plan = json.loads(run.plan.read_text())
    assert {item["name"]: item["revision"] for item in plan["stage"]} == {"model": COMMIT, "d": ""}
    there = inputs.sides.there
    assert plan["container"]["digest"] == file_digest(there / "x.sqsh")
    lock = yaml.safe_load((run.root / "spec.lock.yaml").read_text())
    assert lock["model"]["revision"] == COMMIT
    assert tree_digest(str(there / "d.jsonl")) in json.dumps(lock["lock"])
    assert str(inputs.sides.state()) not in run.plan.read_text()


def test_model_that_is_not_whole_there_is_told(inputs: Inputs) -> None:
    inputs.put(inputs.sides.here)
    inputs.put(inputs.sides.there)
    blob = blob_of(inputs.sides.there / "hf/hub/models--acme--tiny", "model-00002-of-00003.safetensors")
    blob.write_bytes(blob.read_bytes()[:1000])
    found = inputs.missing()
    assert list(found) == ["model"]
    assert "on `login` is not whole" in found["model"].what
    assert "`model-00002-of-00003.safetensors` is not a whole safetensors file" in found["model"].what
    blob.unlink()
    assert "link to a file that is not there" in inputs.missing()["model"].what


def test_image_that_cannot_be_read_there_is_told(inputs: Inputs) -> None:
    inputs.put(inputs.sides.there)
    image = inputs.sides.there / "x.sqsh"
    image.unlink()
    image.symlink_to(image.name)
    (found,) = inputs.missing().values()
    assert found.rule == "container.image-absent"
    assert "x.sqsh` cannot be read on `login`" in found.what
    assert "symbolic links" in found.why


def test_sizes_are_those_of_the_clusters_config(inputs: Inputs) -> None:
    inputs.put(inputs.sides.there)
    resolved = pipeline.resolve(inputs.sides.request())
    assert resolved.lookups is not None
    model = resolved.lookups.model(
        resolved.spec, inputs.sides.spec.parent, str(inputs.sides.here / "hf"), "slurm"
    )
    assert model.architecture is not None and len(model.architecture.layers) == 4
    assert (model.has_config, model.absent) == (True, False)


def test_one_question_asks_for_checkouts_and_inputs(inputs: Inputs, monkeypatch: pytest.MonkeyPatch) -> None:
    sides = inputs.sides
    inputs.put(sides.there)
    write_checkout(sides.there / "code", {"src/a.py": ""})
    spec: dict[str, Any] = yaml.safe_load(sides.spec.read_text())
    spec["repos"] = [{**CODE, "path": str(sides.here / "code")}]
    sides.spec.write_text(yaml.safe_dump(spec))
    calls: list[list[str]] = []
    run = SshClient.run

    def counted(client: SshClient, argv: list[str], *args: object, **more: object) -> object:
        calls.append(argv)
        return run(client, argv, *args, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(SshClient, "run", counted)
    assert inputs.missing() == {}
    assert len(calls) == 1


def test_import_of_the_clusters_image_cache_is_what_the_run_starts_from(inputs: Inputs) -> None:
    sides = inputs.sides
    digest, reference = f"sha256:{'1' * 64}", "registry.example/rl/trainer:1.0"
    profile = yaml.safe_load((sides.root / "far.yaml").read_text())
    profile["container"] = {"runtime": "pyxis", "image_cache": f"{sides.here}/images", "ask_registry": False}
    (sides.root / "far.yaml").write_text(yaml.safe_dump(profile))
    sides.write_spec(container={"image": "registry.example#rl/trainer:1.0"})
    assert {item.rule for item in inputs.found()} == {"container.not-cached", "container.image-tag"}
    (sides.there / "images").mkdir()
    file = sides.there / "images" / image_cache.file_name("rl/trainer", digest, ".sqsh")
    file.write_bytes(b"hsqs of the cluster")
    record = image_cache.Record(reference, digest, file.name, "2" * 64, file.stat().st_size)
    image_cache.add(str(file.parent), record, 0o644)
    assert inputs.found() == []
    run = sides.render("cached").run
    container = json.loads(run.plan.read_text())["container"]
    assert container["image"] == str(sides.here / "images" / file.name), "its path on the cluster"
    assert (container["digest"], container["cached"]["digest"]) == (file_digest(file), digest)
    again = Request(run.root / "spec.lock.yaml", cluster_file=sides.root / "far.yaml")
    assert pipeline.make_plan(again).container.cached is not None


@needs("docker-registry")
def test_login_node_brings_an_image(inputs: Inputs, tmp_path: Path) -> None:
    sides, registry = inputs.sides, Registry(tmp_path / "registry")
    site = SiteContainer(runtime="apptainer", image_cache=f"{sides.here}/images")
    item = image_item(f"docker://{registry.host}/rl/trainer:1.0", site)
    elsewhere = pipeline.resolve(sides.request()).cluster.elsewhere
    assert item is not None and elsewhere is not None
    said: list[str] = []
    try:
        digest = registry.push("rl/trainer", "1.0", b"for the cluster")
        with pytest.raises(JobspecError) as caught:  # sshd's side has no Apptainer
            bring_image_at(elsewhere, item, 60, said.append)
        assert caught.value.findings[0].rule == "stage.image-program"
        file = sides.there / "images" / image_cache.file_name("rl/trainer", digest, ".sif")
        file.parent.mkdir()
        file.write_bytes(b"whole")
        record = image_cache.Record(item.reference, digest, file.name, "2" * 64, 5)
        image_cache.add(str(file.parent), record, 0o644)
        brought = bring_image_at(elsewhere, item, 60, said.append)
        assert (brought.imported, brought.image.digest) == (False, digest)
        assert brought.image.file == str(sides.here / "images" / file.name)
        assert said == ["importing on `login`; what is said there comes at the end"] * 2
    finally:
        registry.stop()


def test_what_a_login_node_says_of_an_import_arrives(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The program of `far_side` in this process: no login node here has a program that imports."""

    class Here:
        where = "login"

        def ask(self, request: Any, timeout_s: float = 0) -> Any:
            return json.loads(far_side.main(json.dumps(request)))

        def send(self, local: Path, remote: str) -> None:
            raise AssertionError

    images_kit.use("stand-in apptainer", tmp_path, monkeypatch)
    registry = Registry(tmp_path / "registry")
    site = SiteContainer(runtime="apptainer", image_cache=str(tmp_path / "images"))
    item = image_item(f"docker://{registry.host}/rl/trainer:1.0", site)
    assert item is not None
    said: list[str] = []
    try:
        first = registry.push("rl/trainer", "1.0", b"first")
        bring_image_at(Here(), item, 60, said.append)
        second = registry.push("rl/trainer", "1.0", b"second")
        brought = bring_image_at(Here(), item, 60, said.append)
    finally:
        registry.stop()
    assert (brought.imported, brought.before, brought.image.digest) == (True, first, second)
    assert said[-1] == f"importing `{item.reference}` at {second} by apptainer"
    assert item.images()[0] == brought.image


def test_no_answer_writes_outside_of_the_folder_for_answers(tmp_path: Path) -> None:
    names = ("config.json", "../../config.json", f"{tmp_path}/else/config.json")
    answer = {"texts": dict.fromkeys(names, "{}")}
    (found,) = answered([{"path": "/m"}], [answer], "login", tmp_path / "state").values()
    assert found.folder is not None
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == [found.folder / "config.json"]


def test_login_node_that_does_not_answer_is_a_warning_without_checkouts(inputs: Inputs) -> None:
    file = inputs.sides.root / "far.yaml"
    file.write_text(
        yaml.safe_dump({**yaml.safe_load(file.read_text()), "access": {"login": "no-such.invalid"}})
    )
    found = pipeline.check(inputs.sides.request())
    about = [item for item in found if item.rule.startswith("launch.")]
    assert about and "no-such.invalid" in about[0].what
    assert not [item for item in found if item.is_error]
