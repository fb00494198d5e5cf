"""Bringing a model by a job: submitit's own local executor runs it here."""

from __future__ import annotations

from pathlib import Path

import pytest

from jobspec.finding import JobspecError
from jobspec.launchers.function_jobs.stage import bring_image_there, bring_there
from jobspec.plan import StagePlan
from jobspec.planning.image_stage import image_item
from jobspec.runtime.staging import shared
from jobspec.spec.find_site import load_cluster
from jobspec.spec.site import ClusterProfile, SiteContainer
from tests.kits import images_kit
from tests.kits.programs_kit import needs
from tests.kits.registry_kit import Registry

pytest.importorskip("submitit")


def item(target: Path) -> shared.Item:
    return shared.Item(StagePlan("m", "model", str(target), repo_id="org/name"), present=False)


@pytest.fixture
def profile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ClusterProfile:
    monkeypatch.chdir(tmp_path)  # the shipped profile keeps runs in ./runs
    return load_cluster("local").profile


def test_job_brings_from_a_mirror(tmp_path: Path, profile: ClusterProfile) -> None:
    source = tmp_path / "mirror" / "models--org--name"
    source.mkdir(parents=True)
    (source / "x").write_text("y")
    bring_there(profile, item(tmp_path / "hub" / source.name), tmp_path / "mirror", 60)
    assert (tmp_path / "hub" / source.name / "x").read_text() == "y"


def test_findings_of_the_job_are_the_callers(tmp_path: Path, profile: ClusterProfile) -> None:
    (tmp_path / "mirror").mkdir()
    with pytest.raises(JobspecError, match="the mirror") as caught:
        bring_there(profile, item(tmp_path / "hub" / "models--org--name"), tmp_path / "mirror", 60)
    assert caught.value.findings[0].rule == "stage.mirror"


@needs("docker-registry")
def test_job_imports_an_image(
    tmp_path: Path, profile: ClusterProfile, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where the login node has no program for it."""
    runtime = images_kit.use("stand-in apptainer", tmp_path, monkeypatch)
    registry = Registry(tmp_path / "registry")
    try:
        digest = registry.push("rl/trainer", "1.0", b"by a job")
        site = SiteContainer(runtime=runtime, image_cache=str(tmp_path / "images"))  # type: ignore[arg-type]
        name = f"docker://{registry.host}/rl/trainer"
        wanted, unknown = image_item(f"{name}:1.0", site), image_item(f"{name}:2.0", site)
        assert wanted is not None and unknown is not None
        brought = bring_image_there(profile, wanted, 60)
        assert (brought.imported, brought.image.digest) == (True, digest)
        assert wanted.images() == [brought.image]
        with pytest.raises(JobspecError) as caught:
            bring_image_there(profile, unknown, 60)
        assert caught.value.findings[0].rule == "stage.image-unknown"
    finally:
        registry.stop()
