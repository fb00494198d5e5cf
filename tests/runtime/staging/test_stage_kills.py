"""The fault table of staging, time and others: hanging reads, locks, races, and kills at any byte."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from jobspec.runtime.staging import items, listed
from jobspec.runtime.staging.hfcache import FileEntry
from jobspec.runtime.staging.transfer import Stream
from tests.runtime.staging.stage_kit import (
    COMMIT,
    NAME,
    Source,
    blob_of,
    content,
    digest_of,
    flip,
    hf_repo,
    rules,
    run,
    safetensors,
    sharded,
    snapshot,
    stager,
)


class Hanging(Source):
    """Every read of `NAME` waits for bytes that never come: a real read(2) on a pipe nobody writes to."""

    def __init__(self) -> None:
        super().__init__()
        self.pipe = os.pipe()

    def __call__(self, entry: FileEntry, offset: int) -> Stream:
        if entry.name == NAME:
            return os.fdopen(os.dup(self.pipe[0]), "rb", buffering=0)
        return super().__call__(entry, offset)

    def end(self) -> None:
        for fd in self.pipe:
            os.close(fd)


def test_read_that_hangs_ends_with_the_files_name(tmp_path: Path) -> None:
    repo, source = hf_repo(tmp_path, sharded()), Hanging()
    result = run(repo, tmp_path / "node", open_source=source, stall_s=0.5)
    source.end()
    assert rules(result) == ["stage.stalled"] and result.findings[0].file == str(blob_of(repo, NAME))
    assert "reading" in result.findings[0].what and not snapshot(tmp_path / "node").exists()


def test_abandoned_read_changes_nothing_when_it_wakes_up(tmp_path: Path) -> None:
    files = sharded()
    repo, source = hf_repo(tmp_path, files), Hanging()
    before = set(threading.enumerate())
    run(repo, tmp_path / "node", open_source=source, stall_s=0.3)
    ready = Path(run(repo, tmp_path / "node").ready["model"])
    os.write(source.pipe[1], b"late")
    source.end()
    for thread in set(threading.enumerate()) - before:
        thread.join(60)
    assert content(ready) == files


def test_deadline_says_how_far_it_got(tmp_path: Path) -> None:
    source = Hanging()
    result = run(hf_repo(tmp_path, sharded()), tmp_path / "node", open_source=source, deadline_s=0.8)
    source.end()
    assert rules(result) == ["stage.deadline"] and " bytes done" in result.findings[0].what


def test_source_that_does_not_answer_while_listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read, write = os.pipe()
    monkeypatch.setattr(listed, "list_source", lambda _: os.read(read, 1))  # as stat(2) does on a dead mount
    result = run(tmp_path, tmp_path / "node", layout="plain", stall_s=0.3)
    os.close(write)
    assert rules(result) == ["stage.stalled"] and result.findings[0].file == str(tmp_path)


def test_clock_set_back_is_no_obstacle(tmp_path: Path) -> None:
    """mtimes in the future and the past are compared for equality only."""
    repo = hf_repo(tmp_path, sharded())
    for name, when in (("config.json", 2**33), (NAME, 1)):
        os.utime(blob_of(repo, name), (when, when))
    assert run(repo, tmp_path / "node").findings == ()
    assert run(repo, tmp_path / "node").cached


# Others on the node


def test_waiting_names_the_holder(tmp_path: Path) -> None:
    repo = hf_repo(tmp_path, sharded(1))
    home = Path(run(repo, tmp_path / "node").hf_home)
    lock = home / "stage" / f"{repo.name}.lock"
    events: list[Any] = []
    script = (
        "import sys, time\nfrom jobspec.runtime.base import node_lock\n"
        "with node_lock.hold(sys.argv[1], time.monotonic() + 60):\n"
        "    print('held', flush=True)\n    sys.stdin.read()\n"
    )
    command = [sys.executable, "-c", script, str(lock)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None and holder.stdout.readline() == b"held\n"
        result = run(
            repo, tmp_path / "node", deadline_s=0.5, report=lambda e, d: events.append((e, d["holder"]))
        )
        holder.communicate()
    assert rules(result) == ["stage.locked"] and f"process {holder.pid} of" in result.findings[0].what
    assert events and events[0][0] == "waiting" and str(holder.pid) in events[0][1]
    assert run(repo, tmp_path / "node").cached


@pytest.mark.parametrize("times", [10, pytest.param(50, marks=pytest.mark.nightly)])
def test_killed_at_random_bytes_again_and_again(tmp_path: Path, times: int) -> None:
    """Nothing is accepted after any kill, and what was read before it is not read again."""
    files = {**sharded(4, 12 << 20), **{f"t{i}.txt": b"x" * i for i in range(50)}}
    repo, node, total = hf_repo(tmp_path, files), tmp_path / "node", sum(map(len, files.values()))
    chance = random.Random(20261128)
    kills = [chance.randrange(1, total // 60) for _ in range(times)]
    for kill_at in kills:
        with stager(repo, node, kill_at) as process:
            process.communicate()
        assert process.returncode == -signal.SIGKILL and not snapshot(node).exists()
        for blob in (snapshot(node).parents[1] / "blobs").iterdir():
            assert digest_of(blob) == blob.name
    source = Source()
    result = run(repo, node, open_source=source)
    assert result.findings == () and content(Path(result.ready["model"])) == files
    in_flight = len(kills) * 2 * (64 << 10)  # one chunk of each lane may be read and not yet written
    assert source.bytes <= total - sum(kills) + in_flight


@pytest.mark.parametrize("share", [0.05, 0.35, 0.65, 0.95])
def test_part_of_a_killed_run_is_continued(tmp_path: Path, share: float) -> None:
    files = {"model.safetensors": safetensors(8 << 20)}
    repo, node, total = hf_repo(tmp_path, files), tmp_path / "node", len(next(iter(files.values())))
    with stager(repo, node, int(total * share)) as process:
        process.communicate()
    assert process.returncode == -signal.SIGKILL
    source = Source()
    result = run(repo, node, open_source=source)
    assert content(Path(result.ready["model"])) == files
    assert source.bytes <= total * (1 - share) + (128 << 10)


def test_spoiled_part_is_started_anew(tmp_path: Path) -> None:
    """What a power cut leaves may have the length but not the bytes; the source is not blamed for it."""
    files = {"model.safetensors": safetensors(8 << 20)}
    repo, node = hf_repo(tmp_path, files), tmp_path / "node"
    with stager(repo, node, 4 << 20) as process:
        process.communicate()
    (part,) = (node / f"hf-{os.geteuid()}" / "stage" / f"{repo.name}.parts").iterdir()
    flip(part, offset=100)
    result = run(repo, node)
    assert result.findings == () and content(Path(result.ready["model"])) == files


def test_part_of_an_older_content_is_not_continued(tmp_path: Path) -> None:
    """A plain file has no known hash: the beginning of what it was must not meet the end of what it is."""
    source, node = tmp_path / "data.bin", tmp_path / "node"
    source.write_bytes(b"old" * (3 << 20))
    with stager(source, node, 4 << 20, "plain") as process:
        process.communicate()
    assert process.returncode == -signal.SIGKILL
    source.write_bytes(b"new" * (3 << 20))
    ready = Path(run(source, node, layout="plain").ready["model"])
    assert ready.read_bytes() == source.read_bytes()


@pytest.mark.parametrize("point", ["os.replace", "os.rename", "os.symlink", "os.fsync", "shutil.rmtree"])
def test_killed_while_publishing(tmp_path: Path, point: str) -> None:
    files = sharded(2, 5 << 20)
    repo, node = hf_repo(tmp_path, files), tmp_path / "node"
    pid = os.fork()
    if pid == 0:
        module = os if point.startswith("os.") else shutil
        setattr(module, point.partition(".")[2], lambda *a, **k: os.kill(os.getpid(), signal.SIGKILL))
        run(repo, node)
        os._exit(0)
    _, status = os.waitpid(pid, 0)
    assert os.WTERMSIG(status) == signal.SIGKILL
    if snapshot(node).exists():
        assert content(snapshot(node)) == files
    assert content(Path(run(repo, node).ready["model"])) == files
    assert [p.name for p in snapshot(node).parent.iterdir()] == [COMMIT]


def test_two_racing_processes_read_the_source_once(tmp_path: Path) -> None:
    files = sharded(4, 4 << 20)
    repo, node, total = hf_repo(tmp_path, files), tmp_path / "node", sum(map(len, files.values()))
    racers = [stager(repo, node, 10 * total) for _ in range(2)]
    told = [json.loads(racer.communicate()[0]) for racer in racers]
    assert [t[0] for t in told] == [[], []] and told[0][1] == told[1][1]
    assert sorted(t[2] for t in told) == [0, total]
    assert content(Path(told[0][1]["model"])) == files


def test_file_system_without_locks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_locks(*_: Any) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", no_locks)
    files = sharded(2, 5 << 20)
    repo = hf_repo(tmp_path, files)
    results: list[items.StageResult] = []
    threads = [
        threading.Thread(target=lambda: results.append(run(repo, tmp_path / "node"))) for _ in range(3)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [result.findings for result in results] == [(), (), ()]
    assert content(Path(results[0].ready["model"])) == files
    assert [p.name for p in (tmp_path / "node").glob("hf-*/stage/*") if "parts" in p.name] == []
    assert run(repo, tmp_path / "node").cached
