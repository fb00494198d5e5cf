"""The fault table: after every fault nothing unverified is accepted, and the finding names the file."""

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
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from stage_kit import (
    COMMIT,
    Source,
    blob_of,
    content,
    digest_of,
    flip,
    hf_repo,
    item,
    rules,
    run,
    safetensors,
    sharded,
    stager,
)

from jobspec.runtime import stage
from jobspec.runtime.hfcache import FileEntry
from jobspec.runtime.transfer import Stream, open_local

NAME = "model-00002-of-00003.safetensors"
needs_root = pytest.mark.skipif(
    os.geteuid() != 0, reason="needs root, to mount a file system or to become another user"
)


def snapshot(node: Path) -> Path:
    return node / f"hf-{os.geteuid()}" / "hub" / "models--acme--tiny" / "snapshots" / COMMIT


@pytest.fixture
def tmpfs(tmp_path: Path) -> Iterator[Callable[[str], Path]]:
    """Mounts a real small file system: `tmpfs("size=8m")`."""
    folder = tmp_path / "tmpfs"
    folder.mkdir()

    def mount(options: str) -> Path:
        done = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", options, "none", folder], capture_output=True, check=False
        )
        if done.returncode:
            pytest.skip(f"needs the right to mount a tmpfs: {done.stderr.decode().strip()}")
        return folder

    yield mount
    # Lazy: the lock of a model stays open until its process ends, and a mount must not outlive the test.
    subprocess.run(["umount", "--lazy", folder], capture_output=True, check=False)


# Source


def test_bit_flipped_in_source_is_named_with_both_hashes(tmp_path: Path) -> None:
    repo = hf_repo(tmp_path, sharded())
    blob = blob_of(repo, NAME)
    flip(blob)
    result = run(repo, tmp_path / "node")
    (finding,) = result.findings
    assert (finding.rule, finding.file, result.ready) == ("stage.corrupt", str(blob), {})
    assert NAME in finding.what and blob.name in finding.why and digest_of(blob) in finding.why
    assert not snapshot(tmp_path / "node").exists()


def test_source_truncated_is_seen_before_copying(tmp_path: Path) -> None:
    repo, source = hf_repo(tmp_path, sharded()), Source()
    os.truncate(blob_of(repo, NAME), 1000)
    result = run(repo, tmp_path / "node", open_source=source)
    assert rules(result) == ["stage.corrupt"] and NAME in result.findings[0].what
    assert source.opened == []


def test_truncated_file_without_a_header_is_seen_by_its_hash(tmp_path: Path) -> None:
    repo = hf_repo(tmp_path, {**sharded(), "tokenizer.json": b"t" * 5000})
    os.truncate(blob_of(repo, "tokenizer.json"), 4096)
    result = run(repo, tmp_path / "node")
    assert rules(result) == ["stage.corrupt"] and "tokenizer.json" in result.findings[0].what
    assert not snapshot(tmp_path / "node").exists()


def test_repaired_source_needs_only_the_rest(tmp_path: Path) -> None:
    files = sharded()
    repo = hf_repo(tmp_path, files)
    flip(blob_of(repo, NAME))
    run(repo, tmp_path / "node", lanes=1)
    hf_repo(tmp_path / "again", files)
    blob_of(repo, NAME).write_bytes(files[NAME])
    result = run(repo, tmp_path / "node", lanes=1)
    assert content(Path(result.ready["model"])) == files
    assert result.bytes < sum(map(len, files.values()))


class Truncating(Source):
    """Cuts the file off while it is read."""

    def after(self, entry: FileEntry, view: memoryview) -> None:
        os.truncate(entry.path, 10)


@pytest.mark.parametrize("layout", ["hf", "plain"])
def test_source_cut_off_while_read(tmp_path: Path, layout: str) -> None:
    repo = hf_repo(tmp_path, {"model.safetensors": safetensors(9 << 20)})
    source = repo if layout == "hf" else repo / "snapshots" / COMMIT
    result = run(source, tmp_path / "node", layout=layout, open_source=Truncating())
    assert rules(result) == ["stage.corrupt"] and "ends after" in result.findings[0].what


class Touching(Source):
    def after(self, entry: FileEntry, view: memoryview) -> None:
        os.utime(entry.path, ns=(1, 1))


def test_plain_source_changed_while_read(tmp_path: Path) -> None:
    (tmp_path / "data.jsonl").write_text("{}\n")
    result = run(tmp_path / "data.jsonl", tmp_path / "node", layout="plain", open_source=Touching())
    assert rules(result) == ["stage.changed"]


class Vanishing(Source):
    def __call__(self, entry: FileEntry, offset: int) -> Stream:
        Path(entry.path).unlink(missing_ok=True)
        return super().__call__(entry, offset)


def test_source_vanishes_between_list_and_copy(tmp_path: Path) -> None:
    result = run(hf_repo(tmp_path, sharded()), tmp_path / "node", open_source=Vanishing())
    assert rules(result) == ["stage.vanished"] and result.findings[0].file


def test_missing_source(tmp_path: Path) -> None:
    result = run(tmp_path / "no such", tmp_path / "node", layout="plain")
    assert rules(result) == ["stage.vanished"] and str(tmp_path / "no such") in result.findings[0].what


@pytest.mark.parametrize("layout", ["hf", "plain"])
def test_empty_folder(tmp_path: Path, layout: str) -> None:
    empty = tmp_path / "models--a--b"
    (empty / "snapshots" / COMMIT).mkdir(parents=True)
    source = empty if layout == "hf" else empty / "snapshots" / COMMIT
    assert rules(run(source, tmp_path / "node", layout=layout)) == ["stage.empty"]


def test_dangling_link(tmp_path: Path) -> None:
    repo = hf_repo(tmp_path, sharded())
    blob_of(repo, "config.json").unlink()
    result = run(repo, tmp_path / "node")
    assert rules(result) == ["stage.dangling"] and "`config.json`" in result.findings[0].what


class Failing(Source):
    """read(2) fails `times` times, as it does after a server was replaced."""

    def __init__(self, code: int, times: int) -> None:
        super().__init__()
        self.code, self.times = code, times

    def after(self, entry: FileEntry, view: memoryview) -> None:
        if self.times and entry.name == NAME:
            self.times -= 1
            raise OSError(self.code, os.strerror(self.code))


def test_stale_handle_is_tried_again(tmp_path: Path) -> None:
    repo, source = hf_repo(tmp_path, sharded()), Failing(errno.ESTALE, 2)
    result = run(repo, tmp_path / "node", open_source=source)
    assert result.findings == () and source.opened.count(NAME) == 3


def test_handle_that_stays_stale_ends(tmp_path: Path) -> None:
    repo = hf_repo(tmp_path, sharded())
    result = run(repo, tmp_path / "node", open_source=Failing(errno.ESTALE, 99))
    assert rules(result) == ["stage.vanished"] and "stale" in result.findings[0].what
    assert result.findings[0].file == str(blob_of(repo, NAME))


class FlippingOnce(Source):
    done = False

    def after(self, entry: FileEntry, view: memoryview) -> None:
        if entry.name == NAME and not self.done:
            self.done = True
            view[5] ^= 1


def test_bit_flipped_in_flight_is_read_again(tmp_path: Path) -> None:
    files, source = sharded(), FlippingOnce()
    result = run(hf_repo(tmp_path, files), tmp_path / "node", open_source=source)
    assert result.findings == () and source.opened.count(NAME) == 2
    assert content(Path(result.ready["model"])) == files


# The node's own disk


def test_bit_flipped_at_rest_is_copied_again(tmp_path: Path) -> None:
    files = sharded()
    repo = hf_repo(tmp_path, files)
    ready = Path(run(repo, tmp_path / "node").ready["model"])
    flip((ready / NAME).resolve())
    source = Source()
    result = run(repo, tmp_path / "node", open_source=source)
    assert source.opened == [NAME] and result.findings == ()
    assert content(ready) == files


def test_silent_flip_at_rest_is_found_by_rehash(tmp_path: Path) -> None:
    """Same size, mtime and inode: only reading can tell, and `rehash` reads."""
    files = sharded()
    repo = hf_repo(tmp_path, files)
    ready = Path(run(repo, tmp_path / "node").ready["model"])
    flip((ready / NAME).resolve(), keep_times=True)
    assert run(repo, tmp_path / "node").cached
    source = Source()
    run(repo, tmp_path / "node", rehash=True, open_source=source)
    assert source.opened == [NAME] and content(ready) == files


def test_deleted_blob_comes_back(tmp_path: Path) -> None:
    files = sharded()
    repo = hf_repo(tmp_path, files)
    ready = Path(run(repo, tmp_path / "node").ready["model"])
    (ready / NAME).resolve().unlink()
    source = Source()
    run(repo, tmp_path / "node", open_source=source)
    assert source.opened == [NAME] and content(ready) == files


def test_lost_journal_costs_a_hash_and_no_copy(tmp_path: Path) -> None:
    repo = hf_repo(tmp_path, sharded())
    home = Path(run(repo, tmp_path / "node").hf_home)
    (home / "stage" / f"{repo.name}.journal").unlink()
    source = Source()
    result = run(repo, tmp_path / "node", open_source=source)
    assert result.findings == () and (result.bytes, source.opened) == (0, [])


@pytest.mark.parametrize("damage", [b'{"v": 1, "key": "torn', b"\x00" * 300, b'{"v": 9}\n[]\nnull\n'])
def test_damaged_journal_is_no_obstacle(tmp_path: Path, damage: bytes) -> None:
    repo = hf_repo(tmp_path, sharded())
    home = Path(run(repo, tmp_path / "node").hf_home)
    with (home / "stage" / f"{repo.name}.journal").open("ab") as stream:
        stream.write(damage)
    blob_of(repo, NAME)
    (Path(run(repo, tmp_path / "node").ready["model"]) / NAME).resolve().unlink()
    assert run(repo, tmp_path / "node").findings == ()
    assert run(repo, tmp_path / "node").cached


@needs_root
def test_model_larger_than_the_disk_is_refused_first(tmp_path: Path, tmpfs: Callable[[str], Path]) -> None:
    source = Source()
    result = run(hf_repo(tmp_path, sharded(4, 4 << 20)), tmpfs("size=8m") / "node", open_source=source)
    (finding,) = result.findings
    assert finding.rule == "stage.space" and source.opened == []
    assert "needs 16.0" in finding.what and "are free" in finding.what


class FillingDisk(Source):
    """Another program fills the disk when byte `at` of the source has been read."""

    def __init__(self, folder: Path, at: int) -> None:
        super().__init__()
        self.folder, self.at = folder, at

    def after(self, entry: FileEntry, view: memoryview) -> None:
        if self.bytes >= self.at and not (self.folder / "hog").exists():
            with (self.folder / "hog").open("wb") as hog:
                for _ in range(1 << 16):
                    try:
                        hog.write(b"\0" * 65536)
                        hog.flush()
                    except OSError:
                        break


@needs_root
@pytest.mark.parametrize("at", [1, 3 << 20, 7 << 20])
def test_disk_full_at_byte(tmp_path: Path, tmpfs: Callable[[str], Path], at: int) -> None:
    files = sharded(2, 6 << 20)
    repo, disk = hf_repo(tmp_path, files), tmpfs("size=24m")
    result = run(repo, disk / "node", open_source=FillingDisk(disk, at), lanes=1)
    (finding,) = result.findings
    assert finding.rule == "stage.disk-full" and finding.file.startswith(str(repo)) and result.ready == {}
    assert not snapshot(disk / "node").exists()
    (disk / "hog").unlink()
    assert content(Path(run(repo, disk / "node").ready["model"])) == files


@needs_root
def test_read_only_target(tmp_path: Path, tmpfs: Callable[[str], Path]) -> None:
    result = run(hf_repo(tmp_path, sharded(1)), tmpfs("size=8m,ro") / "node")
    assert rules(result) == ["stage.read-only"]


def in_child(work: Callable[[], Any], become: Callable[[], None]) -> Any:
    """`work()`'s JSON value from a forked child after `become()`: other user or other limits."""
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            become()
            os.write(write, json.dumps(work()).encode())
        except BaseException:  # noqa: BLE001 - a child of pytest must never return into it
            traceback.print_exc()
        finally:
            os._exit(0)
    os.close(write)
    with os.fdopen(read, "rb") as stream:
        text = stream.read()
    os.waitpid(pid, 0)
    return json.loads(text)


def as_nobody() -> None:
    os.setgroups([])
    os.setgid(65534)
    os.setuid(65534)


def told(result: stage.StageResult) -> dict[str, Any]:
    return {"rules": rules(result), "ready": dict(result.ready), "files": [f.file for f in result.findings]}


@pytest.fixture
def public(tmp_path: Path) -> Path:
    """A folder that another user can get to; pytest's own are private."""
    for folder in (tmp_path, *tmp_path.parents):
        if folder == tmp_path or folder.name.startswith("pytest-"):
            folder.chmod(0o755)
    return tmp_path


@needs_root
def test_unreadable_file_is_named(public: Path) -> None:
    repo = hf_repo(public, sharded())
    (public / "node").mkdir(mode=0o1777)
    (public / "node").chmod(0o1777)
    blob = blob_of(repo, NAME)
    blob.chmod(0o600)
    got = in_child(lambda: told(run(repo, public / "node")), as_nobody)
    assert got == {"rules": ["stage.permission"], "ready": {}, "files": [str(blob)]}


@needs_root
def test_unreadable_folder_is_named(public: Path) -> None:
    repo = hf_repo(public, sharded())
    repo.chmod(0o700)
    got = in_child(lambda: told(run(repo, public / "node")), as_nobody)
    assert got["rules"] == ["stage.permission"] and got["files"][0].startswith(str(repo))


@needs_root
def test_target_that_only_root_may_write(public: Path) -> None:
    repo = hf_repo(public, sharded(1))
    (public / "node").mkdir(mode=0o755)
    got = in_child(lambda: told(run(repo, public / "node")), as_nobody)
    assert got["rules"] == ["stage.permission"] and got["files"][0].startswith(str(public / "node"))


@needs_root
def test_two_users_have_a_copy_each(public: Path) -> None:
    files = sharded(1)
    repo = hf_repo(public, files)
    mine = run(repo, public / "node")
    got = in_child(lambda: told(run(repo, public / "node")), as_nobody)
    assert got["rules"] == []
    theirs = Path(got["ready"]["model"])
    assert theirs != Path(mine.ready["model"]) and content(theirs) == files
    assert (theirs / "config.json").stat().st_uid == 65534


@needs_root
def test_folder_prepared_by_another_user_is_not_trusted(public: Path) -> None:
    trap = public / "node" / "hf-0"
    trap.mkdir(parents=True)
    os.chown(trap, 65534, 65534)
    result = run(hf_repo(public, sharded(1)), public / "node")
    assert Path(result.hf_home).name == "hf-0-1" and list(trap.iterdir()) == []


def test_file_size_limit(tmp_path: Path) -> None:
    import resource

    repo = hf_repo(tmp_path, sharded(2, 3 << 20))
    got = in_child(
        lambda: told(run(repo, tmp_path / "node")),
        lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20)),
    )
    assert got["rules"] == ["stage.file-limit"] and got["ready"] == {}


# Time


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
        thread.join(10)
    assert content(ready) == files


def test_deadline_says_how_far_it_got(tmp_path: Path) -> None:
    source = Hanging()
    result = run(hf_repo(tmp_path, sharded()), tmp_path / "node", open_source=source, deadline_s=0.8)
    source.end()
    assert rules(result) == ["stage.deadline"] and " bytes done" in result.findings[0].what


def test_source_that_does_not_answer_while_listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read, write = os.pipe()
    monkeypatch.setattr(stage, "list_plain", lambda *a: os.read(read, 1))  # as stat(2) does on a dead mount
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
        "import sys, time\nfrom jobspec.runtime import nodelock\n"
        "with nodelock.hold(sys.argv[1], time.monotonic() + 9):\n"
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


def test_killed_at_random_bytes_fifty_times(tmp_path: Path) -> None:
    """Nothing is accepted after any kill, and what was read before it is not read again."""
    files = {**sharded(4, 12 << 20), **{f"t{i}.txt": b"x" * i for i in range(50)}}
    repo, node, total = hf_repo(tmp_path, files), tmp_path / "node", sum(map(len, files.values()))
    chance = random.Random(20261128)
    kills = [chance.randrange(1, total // 60) for _ in range(50)]
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
    results: list[stage.StageResult] = []
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


def test_open_local_starts_at_the_offset(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"0123456789")
    buffer = bytearray(4)
    stream = open_local(FileEntry("f", str(tmp_path / "f"), 10, 0, 0o644), 7)
    assert (stream.readinto(memoryview(buffer)), bytes(buffer)) == (3, b"789\0")
    stream.close()


def test_items_share_one_result(tmp_path: Path) -> None:
    """A fault in the second item keeps the first one out of training, but on the disk."""
    good, bad = hf_repo(tmp_path, sharded(1)), hf_repo(tmp_path, sharded(1, 999), org="acme--bad")
    flip(blob_of(bad, "config.json"), offset=0)
    result = stage.run([item(good), item(bad, name="judge")], str(tmp_path / "node"), lambda e, d: None, 60)
    assert rules(result) == ["stage.corrupt"] and list(result.ready) == ["model"]
    assert not result.ok
