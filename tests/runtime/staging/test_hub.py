"""Downloads: the real huggingface_hub in a child process, against a fake hub on this machine."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from jobspec.finding import JobspecError
from jobspec.runtime.staging import hub
from tests.kits.fake_hub import COMMIT, FakeHub

pytest.importorskip("huggingface_hub")
FILES = {"config.json": b'{"model_type": "x"}', "sub/data.txt": b"x" * 100_000, "skip.bin": b"y"}


@pytest.fixture
def serve(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., FakeHub]]:
    made: list[FakeHub] = []

    def start(files: Mapping[str, bytes] = FILES, **more: int) -> FakeHub:
        made.append(FakeHub(files, **more))
        monkeypatch.setenv("HF_ENDPOINT", made[-1].url)
        return made[-1]

    yield start
    for one in made:
        one.close()


def wanted(cache: Path, **more: object) -> hub.Download:
    return hub.Download("org/name", "model", "main", str(cache), pause_s=0.05, **more)  # type: ignore[arg-type]


def test_download_is_in_cache_layout(tmp_path: Path, serve: Callable[..., FakeHub]) -> None:
    serve()
    told: list[int] = []
    hub.download(wanted(tmp_path / "hub", ignore=("*.bin",)), told.append)
    snapshot = tmp_path / "hub" / "models--org--name" / "snapshots" / COMMIT
    assert (snapshot / "sub" / "data.txt").read_bytes() == FILES["sub/data.txt"]
    assert not (snapshot / "skip.bin").exists()


def test_file_renamed_meanwhile_costs_only_its_own_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    what = wanted(tmp_path)
    blobs = tmp_path / "models--org--name" / "blobs"
    blobs.mkdir(parents=True)
    (blobs / "whole").write_bytes(b"12345")
    (blobs / "gone.incomplete").write_bytes(b"678")
    scan = os.scandir

    def list_then_remove(folder: Path) -> list[os.DirEntry[str]]:
        entries = list(scan(folder))
        (blobs / "gone.incomplete").unlink()
        return entries

    monkeypatch.setattr(os, "scandir", list_then_remove)
    count = hub.on_disk(what)
    monkeypatch.undo()
    assert count == 5


def test_too_many_requests_are_waited_out(tmp_path: Path, serve: Callable[..., FakeHub]) -> None:
    served = serve(refuse=3)
    hub.download(wanted(tmp_path / "hub"))
    assert served.refuse == 0 and (tmp_path / "hub" / "models--org--name" / "snapshots" / COMMIT).is_dir()


def test_too_many_requests_for_ever_end(tmp_path: Path, serve: Callable[..., FakeHub]) -> None:
    serve(refuse=10**6)
    with pytest.raises(JobspecError, match="could not be downloaded") as caught:
        hub.download(wanted(tmp_path / "hub", tries=2))
    assert "HF_TOKEN" in caught.value.findings[0].fix


def test_space_is_checked_first(tmp_path: Path, serve: Callable[..., FakeHub]) -> None:
    served = serve()
    served.sizes["skip.bin"] = 2**60
    with pytest.raises(JobspecError) as caught:
        hub.download(wanted(tmp_path / "hub"))
    assert caught.value.findings[0].rule == "stage.space" and "GiB are free" in caught.value.findings[0].what
    assert not any("resolve" in path for path in served.seen)


def test_download_that_stands_still_is_started_again(tmp_path: Path, serve: Callable[..., FakeHub]) -> None:
    serve(hang=1)
    hub.download(wanted(tmp_path / "hub", allow=("config.json",)), stall_s=4.0)
    snapshot = tmp_path / "hub" / "models--org--name" / "snapshots" / COMMIT
    assert (snapshot / "config.json").read_bytes() == FILES["config.json"]
