"""Shared storage before a job: what is there, what is missing, and a mirror instead of a network."""

from __future__ import annotations

import shutil
import socket
from pathlib import Path

import pytest

from jobspec.finding import JobspecError
from jobspec.plan import Plan, StagePlan
from jobspec.runtime.staging import shared

COMMIT = "a" * 40


def cache_folder(hub: Path, name: str = "models--org--name") -> Path:
    """A model in Hugging Face cache layout: one blob, one snapshot, one ref."""
    folder = hub / name
    blob = folder / "blobs" / "b5bb9d8014a0f9b1d61e21e796d78dccdf1352f23cd32812f4850b878ae4944c"
    blob.parent.mkdir(parents=True)
    blob.write_bytes(b"foo\n")
    snapshot = folder / "snapshots" / COMMIT
    snapshot.mkdir(parents=True)
    (snapshot / "config.json").symlink_to(Path("../../blobs") / blob.name)
    (folder / "refs").mkdir()
    (folder / "refs" / "main").write_text(COMMIT)
    return folder


def plan(source: Path, **more: object) -> Plan:
    item = StagePlan("model", "model", str(source), repo_id="org/name", revision=COMMIT, **more)  # type: ignore[arg-type]
    return Plan("x", "trl", "local", "local", "ray", stage=(item,))


def test_complete_model_is_there_with_its_size(tmp_path: Path) -> None:
    (item,) = shared.inspect(plan(cache_folder(tmp_path)))
    assert (item.present, item.bytes, item.files) == (True, 4, 1)


def test_missing_model_says_so(tmp_path: Path) -> None:
    (item,) = shared.inspect(plan(tmp_path / "models--org--name"))
    assert not item.present
    assert item.findings


def test_half_a_model_is_missing(tmp_path: Path) -> None:
    folder = cache_folder(tmp_path)
    next((folder / "blobs").iterdir()).unlink()
    (item,) = shared.inspect(plan(folder))
    assert not item.present
    assert item.findings[0].rule == "stage.dangling"


def test_required_file_that_is_absent_makes_it_incomplete(tmp_path: Path) -> None:
    (item,) = shared.inspect(plan(cache_folder(tmp_path), require=("chat_template.jinja",)))
    assert not item.present


@pytest.mark.parametrize("below", ["", "hub"])
def test_mirror_is_copied_whole(tmp_path: Path, below: str) -> None:
    mirror = tmp_path / "mirror"
    cache_folder(mirror / below)
    wanted = plan(tmp_path / "shared" / "hub" / "models--org--name")
    (item,) = shared.inspect(wanted)
    shared.bring(item, mirror)
    (item,) = shared.inspect(wanted)
    assert item.present
    assert (Path(item.path) / "snapshots" / COMMIT / "config.json").is_symlink()
    assert [path.name for path in Path(item.path).parent.iterdir()] == ["models--org--name"]


def test_model_that_another_command_brings_meanwhile_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mirror, copy = tmp_path / "mirror", shutil.copytree
    cache_folder(mirror)
    wanted = plan(tmp_path / "shared" / "models--org--name")
    (item,) = shared.inspect(wanted)
    exists = Path.exists

    def look_then_lose(path: Path) -> bool:
        seen = exists(path)
        if str(path) == item.path and not seen:
            copy(mirror / path.name, path, symlinks=True)
        return seen

    monkeypatch.setattr(Path, "exists", look_then_lose)
    shared.bring(item, mirror)
    assert shared.inspect(wanted)[0].present
    assert [path.name for path in Path(item.path).parent.iterdir()] == ["models--org--name"]


def test_half_a_model_is_replaced_by_the_mirrors(tmp_path: Path) -> None:
    mirror = tmp_path / "mirror"
    cache_folder(mirror)
    broken = cache_folder(tmp_path / "shared")
    next((broken / "blobs").iterdir()).unlink()
    (item,) = shared.inspect(plan(broken))
    shared.bring(item, mirror)
    assert shared.inspect(plan(broken))[0].present
    assert [path.name for path in broken.parent.iterdir()] == ["models--org--name"]


def test_mirror_without_the_model_names_where_it_looked(tmp_path: Path) -> None:
    (item,) = shared.inspect(plan(tmp_path / "models--org--name"))
    with pytest.raises(JobspecError, match="has no `org/name`") as caught:
        shared.bring(item, tmp_path / "mirror")
    assert "models--org--name" in caught.value.findings[0].why


def test_model_by_path_cannot_be_fetched(tmp_path: Path) -> None:
    item = shared.Item(StagePlan("model", "model", str(tmp_path / "x"), layout="plain"), present=False)
    with pytest.raises(JobspecError, match="the spec names it by path"):
        shared.bring(item, None)


@pytest.mark.slow  # huggingface_hub tries for 20 s
def test_download_without_a_network_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The real huggingface_hub against a port where nobody listens."""
    pytest.importorskip("huggingface_hub")
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port = sock.getsockname()[1]
    monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{port}")
    (item,) = shared.inspect(plan(tmp_path / "models--org--name"))
    with pytest.raises(JobspecError, match="could not be downloaded") as caught:
        shared.bring(item, None)
    assert "--from DIR" in caught.value.findings[0].fix
