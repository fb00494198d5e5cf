"""`stage --images`, and what the other commands then know of the image."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from jobspec import pipeline
from jobspec.cli.output import size
from jobspec.pipeline import Request
from jobspec.plan import ContainerPlan
from jobspec.planning.provenance import changed_since
from jobspec.runtime.staging import image_cache
from tests.kits import images_kit
from tests.kits.programs_kit import needs
from tests.kits.project_kit import Project
from tests.kits.registry_kit import Registry

pytestmark = needs("docker-registry")


@pytest.fixture(scope="module")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Registry]:
    made = Registry(tmp_path_factory.mktemp("registry") / "open")
    yield made
    made.stop()


class Site:
    """A spec with an image of the registry, on a site with an image cache."""

    def __init__(self, project: Project, registry: Registry, name: str = "rl/trainer:1.0") -> None:
        self.project, self.registry, self.name = project, registry, name
        self.image = f"{registry.host}#{name}"
        self.reference = f"{registry.host}/{name}"
        self.cache = project.root / "images"
        self.profile()
        self.spec()

    def profile(self, name: str = "site", **container: Any) -> Path:
        container = {"runtime": "pyxis", "image_cache": str(self.cache), **container}
        paths = {"runs": str(self.project.root / "runs")}
        data = {"version": 1, "name": name, "container": container, "paths": paths, "node": {"gpus": 0}}
        return self.project.write(f"{name}.yaml", yaml.safe_dump(data))

    def spec(self, **container: Any) -> Path:
        data = {"version": 1, "name": "x", "framework": "command", "train": {"command": ["true"]}}
        data |= {"resources": {"time": "10:00"}, "container": container or {"image": self.image}}
        return self.project.write("spec.yaml", yaml.safe_dump(data))

    def served(self, image: str, container: str) -> Path:
        """A spec whose service has an image of its own."""
        self.spec(image=container)
        data = yaml.safe_load((self.project.root / "spec.yaml").read_text())
        data["services"] = [{"name": "judge", "command": ["true"], "container": {"image": image}}]
        return self.project.write("spec.yaml", yaml.safe_dump(data))

    def cli(self, command: str, *words: object, spec: str = "spec.yaml") -> Any:
        return self.project.cli(command, spec, "--cluster-file", "site.yaml", *words)

    def rules(self, site: str = "site.yaml") -> list[str]:
        return [item.rule for item in pipeline.check(self.request(site=site))]

    def request(self, spec: str = "spec.yaml", site: str = "site.yaml") -> Request:
        return Request(self.project.root / spec, cluster_file=self.project.root / site)

    def container(self, spec: str = "spec.yaml") -> ContainerPlan:
        return pipeline.make_plan(self.request(spec)).container


@pytest.fixture
def site(project: Project, registry: Registry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Site:
    images_kit.use("stand-in enroot", tmp_path, monkeypatch)
    return Site(project, registry)


Staged = Callable[[bytes], dict[str, Any]]


@pytest.fixture
def staged(site: Site) -> Staged:
    """Push an image and stage it: what the command says in JSON."""

    def stage(content: bytes) -> dict[str, Any]:
        name, _, tag = site.name.partition(":")
        site.registry.push(name, tag, content)
        done = site.cli("stage", "--images", "--json")
        assert done.code == 0, done.err
        said: dict[str, Any] = json.loads(done.out)
        return said

    return stage


def test_image_is_told_imported_and_then_used(site: Site) -> None:
    digest = site.registry.push("rl/trainer", "1.0", b"one")
    warned = site.cli("validate")
    assert "container.not-cached" in warned.err and "`jobspec stage SPEC --images`" in warned.err
    looked = site.cli("stage", "--images", "--check")
    assert (looked.code, looked.out) == (1, f"{site.reference}: MISSING in {site.cache}\n")
    assert not site.cache.exists()
    done = site.cli("stage", "--images")
    file = site.cache / f"rl+trainer+{digest.replace(':', '-')}.sqsh"
    assert (done.code, done.out) == (0, f"{site.reference}: {file}, {size(file.stat().st_size)}, {digest}\n")
    assert f"importing `{site.reference}`" in done.err
    assert site.cli("stage", "--images", "--check").out == done.out
    assert site.rules() == []
    assert site.container().image == str(file)
    shown = site.cli("explain", "container.image", "--json").out
    assert json.loads(shown)["container.image"] == {
        "value": str(file),
        "origin": f"cluster imported from {site.reference}",
    }
    assert f"imported from {site.reference} to {file}" in site.cli("submit", "--dry-run").out
    assert site.cli("render", "--out", "out").code == 0
    assert f"--container-image={file}" in (site.project.root / "out/srun.sh").read_text()


def test_lock_has_reference_digest_file_and_sha256(site: Site, staged: Staged) -> None:
    said = staged(b"locked")
    pipeline.render_run(site.request(), site.project.root / "out")
    lock = yaml.safe_load((site.project.root / "out/spec.lock.yaml").read_text())
    wanted = {key: said[key] for key in ("reference", "digest", "file", "sha256", "bytes")}
    assert lock["lock"]["cached_image"] == wanted
    assert lock["lock"]["image"] == f"sha256:{said['sha256']}"
    assert lock["container"]["image"] == said["file"]
    assert lock["container"]["source_tag"] == site.reference
    assert lock["lock"]["of_site"]["container.image"] == site.image
    pipeline.render_run(site.request("out/spec.lock.yaml"), site.project.root / "again")
    assert yaml.safe_load((site.project.root / "again/spec.lock.yaml").read_text()) == lock
    assert f", from {site.reference}" in pipeline.report_text(site.project.root / "out", "md")


def test_lock_keeps_its_image_when_the_tag_moves(site: Site, staged: Staged) -> None:
    first = staged(b"first")
    pipeline.render_run(site.request(), site.project.root / "out")
    second = staged(b"second")
    assert site.container().image == second["file"]
    lock = "out/spec.lock.yaml"
    assert site.container(lock).image == first["file"]
    resolved = pipeline.resolve(site.request(lock))
    facts = resolved.loaded.data["lock"]
    assert [item for item in changed_since(facts, resolved) if item.rule == "reproduce.image"] == []
    looked = json.loads(site.cli("stage", "--images", "--json", spec=lock).out)
    assert looked["file"] == first["file"], "a lock names one file"
    other = pipeline.resolve(site.request())
    (found,) = (item for item in changed_since(facts, other) if item.rule == "reproduce.image")
    assert found.is_error and first["digest"] in found.why and second["digest"] in found.why
    Path(first["file"]).unlink()
    assert "container.image-absent" in {item.rule for item in pipeline.check(site.request(lock))}


def test_same_image_of_another_sites_cache_is_no_difference(site: Site, staged: Staged) -> None:
    staged(b"here and there")
    pipeline.render_run(site.request(), site.project.root / "out")
    site.profile("site", image_cache=str(site.project.root / "other"))
    site.cli("stage", "--images")
    lock = yaml.safe_load((site.project.root / "out/spec.lock.yaml").read_text())["lock"]
    resolved = pipeline.resolve(site.request())
    assert resolved.ready_plan.container.image.startswith(str(site.project.root / "other"))
    assert [item for item in changed_since(lock, resolved) if item.rule == "reproduce.image"] == []


def test_tag_that_moved_is_told_by_submission_and_by_staging(site: Site, staged: Staged) -> None:
    first = staged(b"monday")
    digest = site.registry.push("rl/trainer", "1.0", b"tuesday")
    found = {
        item.rule: item for item in pipeline.render_run(site.request(), site.project.root / "out").findings
    }
    moved = found["container.tag-moved"]
    assert moved.severity == "warning"
    assert f"the cache has {first['digest']}, and the registry {digest}" in moved.why
    assert site.container().image == first["file"], "the run starts from what was imported"
    done = site.cli("stage", "--images")
    assert f"was {first['digest']} and is {digest} now; both files are kept" in done.err
    assert Path(first["file"]).exists()
    again = pipeline.render_run(site.request(), site.project.root / "again").findings
    assert [item.rule for item in again if item.rule.startswith("container.")] == []


def test_site_without_a_network_asks_no_registry(site: Site, staged: Staged) -> None:
    staged(b"asked")
    site.registry.push("rl/trainer", "1.0", b"moved")
    site.profile(ask_registry=False)
    found = pipeline.render_run(site.request(), site.project.root / "out").findings
    assert [item.rule for item in found if item.rule.startswith("container.")] == []


def test_digest_in_the_spec_is_cached_too(site: Site) -> None:
    digest = site.registry.push("rl/trainer", "by-digest", b"by digest")
    site.spec(image=f"{site.registry.host}#rl/trainer@{digest}")
    assert site.rules() == ["container.not-cached"]
    assert site.cli("stage", "--images").code == 0
    assert site.rules() == []


def test_control_characters_of_another_users_record_reach_no_terminal(site: Site) -> None:
    file = site.cache / "x.sqsh"
    file.parent.mkdir()
    file.write_bytes(b"whole")
    record = image_cache.Record(site.reference, "\x1b[2J", file.name, "0" * 64, 5)
    image_cache.add(str(site.cache), record, 0o644)
    done = site.cli("stage", "--images", "--check")
    assert (done.code, "\x1b" in done.out + done.err) == (0, False)
    assert "\\x1b[2J" in done.out
    site.registry.push("rl/trainer", "1.0", b"newer")
    done = site.cli("stage", "--images")
    assert (done.code, "\x1b" in done.out + done.err) == (0, False)
    assert f"`{site.reference}` was \\x1b[2J and is sha256:" in done.err


def test_image_has_no_mirror(site: Site) -> None:
    done = site.cli("stage", "--images", "--from", "/mirror")
    assert done.code == 2
    assert "--from: not allowed with argument --images" in done.err


@pytest.mark.parametrize(
    ("container", "image", "rule", "words"),
    [
        ({"image_cache": None}, "IMAGE", "stage.image-cache", "set `container.image_cache`"),
        ({"runtime": "podman"}, "IMAGE", "stage.image-runtime", "use pyxis or apptainer"),
        ({}, "/images/rl.sqsh", "stage.image-kind", "a file or a folder is used where it lies"),
        ({}, "alice@IMAGE", "stage.image-kind", "its name has a user"),
        ({"runtime": "none"}, None, "stage.no-image", "`site` starts no containers"),
    ],
)
def test_what_is_not_imported_is_said(
    site: Site, container: dict[str, Any], image: str | None, rule: str, words: str
) -> None:
    site.profile(**container)
    site.spec(**({"image": image.replace("IMAGE", site.image)} if image else {"python": "python3"}))
    done = site.cli("stage", "--images")
    assert done.code == 2
    assert rule in done.err and words in done.err


def test_image_of_a_service_is_imported_beside_the_run_s(site: Site) -> None:
    ours = site.registry.push("rl/trainer", "1.0", b"one")
    theirs = site.registry.push("rl/judge", "1.0", b"judge")
    site.served(f"{site.registry.host}#rl/judge:1.0", site.image)
    warned = [item.path for item in pipeline.check(site.request()) if item.rule == "container.not-cached"]
    assert warned == ["container.image", "services[0].container.image"]
    done = site.cli("stage", "--images", "--json")
    assert [row["digest"] for row in json.loads(done.out)] == [ours, theirs]
    plan = pipeline.make_plan(site.request())
    service = plan.services[0].container
    assert service is not None and service.cached is not None
    assert (service.cached.digest, service.image) == (theirs, service.cached.file)
    shown = json.loads(site.cli("explain", "services[0].container.image", "--json").out)
    assert shown["services[0].container.image"] == {
        "value": service.image,
        "origin": f"cluster imported from {site.registry.host}/rl/judge:1.0",
    }


def test_image_that_two_containers_share_is_imported_and_told_once(site: Site) -> None:
    digest = site.registry.push("rl/trainer", "1.0", b"of both")
    site.served(site.image, site.image)
    done = site.cli("stage", "--images", "--json")
    assert (done.code, json.loads(done.out)["digest"]) == (0, digest), done.err
    assert done.err.count(f"importing `{site.reference}`") == 1


def test_image_of_a_service_alone_is_imported_where_the_run_has_a_file(site: Site) -> None:
    theirs = site.registry.push("rl/judge", "1.0", b"judge")
    file = site.project.write("train.sqsh", "")
    site.served(f"{site.registry.host}#rl/judge:1.0", str(file))
    done = site.cli("stage", "--images", "--json")
    assert (done.code, json.loads(done.out)["digest"]) == (0, theirs), done.err


def test_lock_keeps_the_import_that_a_service_had(site: Site) -> None:
    theirs = site.registry.push("rl/judge", "1.0", b"judge")
    file = site.project.write("train.sqsh", "")
    site.served(f"{site.registry.host}#rl/judge:1.0", str(file))
    assert site.cli("stage", "--images").code == 0
    had = pipeline.make_plan(site.request()).services[0].container
    pipeline.render_run(site.request(), site.project.root / "out")
    site.registry.push("rl/judge", "1.0", b"another judge")
    assert site.cli("stage", "--images").code == 0
    assert had is not None and had.cached is not None
    assert had.cached.digest == theirs
    assert pipeline.make_plan(site.request()).services[0].container != had
    kept = pipeline.make_plan(site.request("out/spec.lock.yaml")).services[0].container
    assert kept == had
    lock = yaml.safe_load((site.project.root / "out/spec.lock.yaml").read_text())["lock"]
    assert lock["services"]["judge"]["cached_image"]["digest"] == theirs
    assert lock["of_site"]["services[0].container.image"] == f"{site.registry.host}#rl/judge:1.0"
