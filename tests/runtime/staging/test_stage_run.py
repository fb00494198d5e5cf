"""Staging without faults: what is on the node afterwards, what is read, what is reported."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from jobspec.runtime.staging import items as stage
from tests.kits.pythons import PYTHON39, needs_python39
from tests.runtime.staging.stage_kit import (
    COMMIT,
    Source,
    blob_of,
    content,
    hf_repo,
    item,
    rules,
    run,
    safetensors,
    sharded,
)


def test_staged_model_is_the_source(tmp_path: Path) -> None:
    files = {**sharded(3, 1 << 20), "sub folder/ü 模型.txt": b"hi"}
    result = run(hf_repo(tmp_path / "shared disk", files), tmp_path / "node")
    assert result.findings == () and result.ok
    assert content(Path(result.ready["model"])) == files
    assert result.bytes == sum(len(data) for data in files.values())


def test_second_run_reads_nothing(tmp_path: Path) -> None:
    repo = hf_repo(tmp_path, sharded())
    first, source = run(repo, tmp_path / "node"), Source()
    second = run(repo, tmp_path / "node", open_source=source)
    assert second.cached and second.ready == first.ready
    assert (second.bytes, source.opened) == (0, [])


def test_variable_names_the_path(tmp_path: Path) -> None:
    result = run(hf_repo(tmp_path, sharded(1)), tmp_path / "node", env="JOBSPEC_MODEL_PATH")
    assert list(result.ready) == ["JOBSPEC_MODEL_PATH"]


def test_two_revisions_share_blobs(tmp_path: Path) -> None:
    other = "f" * 40
    files = sharded(2)
    repo = hf_repo(tmp_path, files)
    hf_repo(tmp_path, {**files, "config.json": b'{"new": 1}'}, commit=other, refs=("dev",))
    run(repo, tmp_path / "node")
    result = run(repo, tmp_path / "node", revision="dev")
    assert result.bytes == len(b'{"new": 1}')
    hub = Path(result.hf_home) / "hub" / repo.name
    assert {p.name: p.read_text() for p in (hub / "refs").iterdir()} == {"main": COMMIT, "dev": other}
    assert content(hub / "snapshots" / COMMIT) == files


def test_commit_without_ref_becomes_main(tmp_path: Path) -> None:
    result = run(hf_repo(tmp_path, sharded(1), refs=()), tmp_path / "node", revision=COMMIT[:10])
    assert (Path(result.hf_home) / "hub/models--acme--tiny/refs/main").read_text() == COMMIT


def test_patterns_bound_what_is_copied(tmp_path: Path) -> None:
    source = Source()
    files = {**sharded(1), "pytorch_model.bin": b"x" * 100, "original/w.pth": b"y"}
    result = run(
        hf_repo(tmp_path, files), tmp_path / "node", ignore=("*.bin", "original/"), open_source=source
    )
    assert sorted(content(Path(result.ready["model"]))) == sorted(sharded(1))
    assert not {"pytorch_model.bin", "original/w.pth"} & set(source.opened)


def test_later_wider_selection_completes_the_snapshot(tmp_path: Path) -> None:
    repo = hf_repo(tmp_path, {**sharded(1), "extra.bin": b"x"})
    run(repo, tmp_path / "node", ignore=("*.bin",))
    result = run(repo, tmp_path / "node")
    assert content(Path(result.ready["model"]))["extra.bin"] == b"x"
    assert result.bytes == 1


def test_snapshot_without_blob_links_is_staged_by_its_bytes(tmp_path: Path) -> None:
    folder = tmp_path / "models--a--b" / "snapshots" / COMMIT
    folder.mkdir(parents=True)
    (folder / "model.safetensors").write_bytes(safetensors(5 << 20))
    (folder / "config.json").write_text("{}")
    first = run(tmp_path / "models--a--b", tmp_path / "node")
    again = run(tmp_path / "models--a--b", tmp_path / "node")
    assert content(Path(first.ready["model"])) == content(folder)
    assert again.cached


def test_plain_folder_is_kept_equal_to_its_source(tmp_path: Path) -> None:
    source = tmp_path / "my data"
    for name in ("a.txt", "dir/b.txt", "gone.txt", "swap"):
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        (source / name).write_text(name)
    run(source, tmp_path / "node", layout="plain", kind="dataset")
    (source / "gone.txt").unlink()
    (source / "swap").unlink()
    (source / "swap").mkdir()
    (source / "swap" / "in.txt").write_text("now a folder")
    (source / "a.txt").write_text("changed")
    result = run(source, tmp_path / "node", layout="plain", kind="dataset")
    assert content(Path(result.ready["model"])) == content(source)
    assert result.bytes == len("changed") + len("now a folder")


def test_two_plain_folders_of_one_name_do_not_meet(tmp_path: Path) -> None:
    for parent in ("one", "two"):
        (tmp_path / parent / "data").mkdir(parents=True)
        (tmp_path / parent / "data" / "x").write_text(parent)
    paths = [
        run(tmp_path / p / "data", tmp_path / "node", layout="plain").ready["model"] for p in ("one", "two")
    ]
    assert [(Path(p) / "x").read_text() for p in paths] == ["one", "two"]


def test_single_file_is_ready_as_a_file(tmp_path: Path) -> None:
    (tmp_path / "train set.jsonl").write_text("{}\n")
    result = run(tmp_path / "train set.jsonl", tmp_path / "node", layout="plain", kind="dataset")
    ready = Path(result.ready["model"])
    assert (ready.name, ready.read_text()) == ("train set.jsonl", "{}\n")


def test_private_source_becomes_readable_by_the_group(tmp_path: Path) -> None:
    repo = hf_repo(tmp_path, sharded(1))
    blob_of(repo, "model-00001-of-00001.safetensors").chmod(0o600)
    blob_of(repo, "config.json").chmod(0o666)
    ready = Path(run(repo, tmp_path / "node").ready["model"])
    assert oct((ready / "model-00001-of-00001.safetensors").stat().st_mode)[-3:] == "640"
    assert oct((ready / "config.json").stat().st_mode)[-3:] == "644"


def test_program_of_a_plain_folder_stays_executable(tmp_path: Path) -> None:
    (tmp_path / "tools").mkdir()
    (tmp_path / "tools" / "run.sh").write_text("#!/bin/sh\necho staged\n")
    (tmp_path / "tools" / "run.sh").chmod(0o755)
    ready = run(tmp_path / "tools", tmp_path / "node", layout="plain", kind="dataset").ready["model"]
    assert (
        subprocess.run([f"{ready}/run.sh"], capture_output=True, text=True, check=True).stdout == "staged\n"
    )


def test_shared_item_stays_and_is_found_by_id(tmp_path: Path) -> None:
    repo, source = hf_repo(tmp_path, sharded(2)), Source()
    result = run(repo, tmp_path / "node", node_local=False, open_source=source)
    assert result.ready["model"] == str(repo / "snapshots" / COMMIT)
    assert source.opened == []
    assert (Path(result.env["HF_HUB_CACHE"]) / repo.name).resolve() == repo


def test_shared_item_is_still_checked(tmp_path: Path) -> None:
    files = sharded(2)
    del files["model-00001-of-00002.safetensors"]
    result = run(hf_repo(tmp_path, files), tmp_path / "node", node_local=False)
    assert (rules(result), result.ready) == (["stage.shards"], {})


def test_staging_replaces_an_earlier_link_to_shared(tmp_path: Path) -> None:
    repo = hf_repo(tmp_path, sharded(1))
    run(repo, tmp_path / "node", node_local=False)
    before = content(repo)
    result = run(repo, tmp_path / "node")
    assert str(tmp_path / "node") in str(Path(result.ready["model"], "config.json").resolve())
    assert content(repo) == before


def test_blobs_on_another_file_system(tmp_path: Path) -> None:
    other = Path("/dev/shm")
    if not other.is_dir() or other.stat().st_dev == tmp_path.stat().st_dev:
        pytest.skip("needs /dev/shm as a file system of its own")
    repo = hf_repo(tmp_path, sharded(1))
    blob = blob_of(repo, "model-00001-of-00001.safetensors")
    target = other / f"jobspec-test-{os.getpid()}"
    try:
        target.write_bytes(blob.read_bytes())
        blob.unlink()
        blob.symlink_to(target)
        result = run(repo, tmp_path / "node")
    finally:
        target.unlink()
    assert content(Path(result.ready["model"])) == sharded(1)


def test_progress_says_how_far_and_how_fast(tmp_path: Path) -> None:
    events: list[tuple[str, dict[str, Any]]] = []
    files = sharded(2)
    run(
        hf_repo(tmp_path, files),
        tmp_path / "node",
        report=lambda event, data: events.append((event, dict(data))),
    )
    progress = [data for event, data in events if event == "progress"]
    assert progress[-1]["bytes"] == progress[-1]["total"] == sum(map(len, files.values()))
    assert progress[-1]["rate"] > 0 and progress[-1]["eta_s"] == 0
    assert events[-1][0] == "ready" and events[-1][1]["cached"] is False
    json.dumps(events)


def test_all_items_are_checked_before_a_byte_moves(tmp_path: Path) -> None:
    source = Source()
    good, bad = hf_repo(tmp_path, sharded(1)), tmp_path / "nowhere"
    items = [item(good), item(bad, name="data", layout="plain"), item(bad, name="more", layout="plain")]
    result = stage.run(items, str(tmp_path / "node"), lambda e, d: None, 60, open_source=source)
    assert rules(result) == ["stage.vanished", "stage.vanished"]
    assert source.opened == [] and not (tmp_path / "node").exists()


@pytest.mark.parametrize("folders", [20, pytest.param(200, marks=pytest.mark.nightly)])
def test_thousands_of_small_files(tmp_path: Path, folders: int) -> None:
    source = tmp_path / "many"
    for part in range(folders):
        (source / f"{part:03d}").mkdir(parents=True)
        for number in range(100):
            (source / f"{part:03d}" / f"{number}.txt").write_text(f"{part}/{number}")
    first = run(source, tmp_path / "node", layout="plain", kind="dataset", deadline_s=250)
    counted = Source()
    second = run(
        source, tmp_path / "node", layout="plain", kind="dataset", open_source=counted, deadline_s=250
    )
    assert first.findings == () and second.cached and counted.opened == []
    assert sum(len(files) for _, _, files in os.walk(first.ready["model"])) == 100 * folders
    assert Path(first.ready["model"], "012", "45.txt").read_text() == "12/45"


def test_long_file_is_hashed_beside_the_copy(tmp_path: Path) -> None:
    """Longer than transfer.OVERLAP_BYTES: reading, writing and hashing overlap over a ring of buffers."""
    files = {"model.safetensors": safetensors(100 << 20)}
    result = run(hf_repo(tmp_path, files), tmp_path / "node", lanes=1)
    assert result.findings == ()
    assert Path(result.ready["model"], "model.safetensors").read_bytes() == files["model.safetensors"]


@needs_python39
def test_runs_on_the_oldest_python(tmp_path: Path) -> None:
    """Containers bring Python 3.9; the runtime must work there as it does here."""
    repo = hf_repo(tmp_path, sharded(1))
    root = Path(stage.__file__).resolve().parents[2]
    script = (
        "import sys, types\n"
        f"root, repo, node = {str(root)!r}, {str(repo)!r}, {str(tmp_path / 'node')!r}\n"
        "for name, path in (('jobspec', root + '/jobspec'), ('jobspec.runtime', root + '/runtime')):\n"
        "    sys.modules[name] = types.ModuleType(name); sys.modules[name].__path__ = [path]\n"
        "from jobspec.runtime.staging import items\nfrom jobspec.plan import StagePlan\n"
        "from jobspec.runtime.checkouts import imports, mcore_helpers\n"
        "r = items.run([StagePlan('m', 'model', repo)], node, lambda e, d: None, 60)\n"
        "print(r.findings, r.ready['m'])\n"
        "import threading\nfrom jobspec.runtime.staging.swarm import Peer, Swarm\n"
        "swarms = [Swarm(i, 't') for i in (0, 1)]\n"
        "peers = [Peer('n', '127.0.0.1', swarm.listen([0])) for swarm in swarms]\n"
        "found = []\n"
        "def work(i):\n"
        "    swarms[i].meet(peers)\n"
        "    wanted = [StagePlan('m', 'model', repo)]\n"
        "    r = items.run(wanted, node + str(i), lambda e, d: None, 60, swarm=swarms[i])\n"
        "    found.append(r.findings)\n"
        "threads = [threading.Thread(target=work, args=(i,)) for i in (0, 1)]\n"
        "[thread.start() for thread in threads]; [thread.join() for thread in threads]\n"
        "print(found)\n"
    )
    done = subprocess.run([PYTHON39, "-c", script], capture_output=True, text=True, check=False)
    assert done.stdout.startswith("() /"), done.stderr
    assert done.stdout.splitlines()[1:] == ["[(), ()]"], done.stdout + done.stderr
