"""Staging on several nodes: what leaves shared storage, what they give each other, who is left out."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from jobspec.runtime.base.channel import ChannelError, Hello, connect
from jobspec.runtime.staging import chunks
from jobspec.runtime.staging.hfcache import FileEntry
from jobspec.runtime.staging.swarm import Peer
from tests.kits.quota_kit import quota
from tests.runtime.staging.stage_kit import (
    COMMIT,
    Source,
    blob_of,
    content,
    flip,
    hf_repo,
    rules,
    run,
    safetensors,
    sharded,
    stager,
)
from tests.runtime.staging.swarm_kit import (
    TOKEN,
    Node,
    ProcessNode,
    Relay,
    nodes,
    peers_of,
    read_in_all,
    stage_all,
)

MODEL = sharded(3, 9 << 20)
BIG = {"model.safetensors": safetensors(48 << 20)}  # a share has as many chunks on every node
TOTAL = sum(map(len, MODEL.values()))
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to mount a file system")


def snapshot(node: Node) -> Path:
    return node.folder / f"hf-{os.geteuid()}" / "hub" / "models--acme--tiny" / "snapshots" / COMMIT


def excluded(node: Node) -> list[str]:
    return [data["peer"] for event, data in node.events if data.get("state") == "excluded"]


@pytest.mark.parametrize("count", [1, 2, 3, 5])
def test_each_byte_leaves_shared_storage_once(tmp_path: Path, count: int) -> None:
    files = {**MODEL, "empty.txt": b"", "sub folder/ü 模型.txt": b"hi"}
    repo, all_nodes = hf_repo(tmp_path / "shared disk", files), nodes(tmp_path, count)
    stage_all(all_nodes, [repo])
    assert [node.done.findings for node in all_nodes] == [()] * count
    assert [content(node.ready()) for node in all_nodes] == [files] * count
    total = sum(map(len, files.values()))
    assert read_in_all(all_nodes) == total == sum(node.done.bytes for node in all_nodes)
    assert sum(node.done.received for node in all_nodes) == total * (count - 1)


def test_reading_is_spread_over_the_nodes(tmp_path: Path) -> None:
    repo, all_nodes = hf_repo(tmp_path, {"model.safetensors": safetensors(64 << 20)}), nodes(tmp_path, 4)
    stage_all(all_nodes, [repo])
    assert all(15 << 20 <= node.source.bytes <= 21 << 20 for node in all_nodes)


@pytest.mark.parametrize("nodes_count", [2, 3, 8, 64])
def test_every_chunk_has_each_node_in_its_order_once(nodes_count: int) -> None:
    """And what one node leaves is spread over all others, so that no node reads much more."""
    orders = [chunks.readers("0123456789abcdef", number, nodes_count) for number in range(64 * nodes_count)]
    assert all(sorted(order) == list(range(nodes_count)) for order in orders)
    heirs = [order[1] for order in orders if order[0] == 0]
    counts = [heirs.count(node) for node in range(1, nodes_count)]
    assert max(counts) - min(counts) <= 2


def test_several_items_and_plain_folders(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    for number in range(300):
        (tmp_path / "a" / f"{number}.txt").write_text(str(number))
    (tmp_path / "b" / "big.bin").write_bytes(os.urandom(6 << 20))
    all_nodes = nodes(tmp_path, 3)
    stage_all(all_nodes, [tmp_path / "a", tmp_path / "b"], layout="plain")
    for node in all_nodes:
        assert content(node.ready(0)) == content(tmp_path / "a")
        assert content(node.ready(1)) == content(tmp_path / "b")
    assert read_in_all(all_nodes) == sum(
        path.stat().st_size for path in [*(tmp_path / "a").iterdir(), *(tmp_path / "b").iterdir()]
    )


def test_second_run_moves_nothing(tmp_path: Path) -> None:
    repo = hf_repo(tmp_path, MODEL)
    stage_all(nodes(tmp_path, 3), [repo])
    again = nodes(tmp_path, 3)
    stage_all(again, [repo])
    assert all(node.done.cached for node in again) and read_in_all(again) == 0


# Late and restarted nodes


def test_late_node_takes_part(tmp_path: Path) -> None:
    """It comes within the others' patience: they wait for its share."""
    repo, all_nodes = hf_repo(tmp_path, MODEL), nodes(tmp_path, 3)
    stage_all(all_nodes, [repo], delay=lambda index: 1.0 if index == 2 else 0.0)
    assert [content(node.ready()) for node in all_nodes] == [MODEL] * 3
    assert read_in_all(all_nodes) == TOTAL


def test_node_that_comes_when_the_others_are_done(tmp_path: Path) -> None:
    """Its share was read by them; it reads that again at most, and gets the rest from them."""
    repo, all_nodes = hf_repo(tmp_path, MODEL), nodes(tmp_path, 3, stall_s=1.0, slow_s=2.0)
    stage_all(all_nodes, [repo], first=2)
    assert [content(node.ready()) for node in all_nodes] == [MODEL] * 3
    assert sum(node.source.bytes for node in all_nodes[:2]) == TOTAL
    assert all_nodes[2].source.bytes < TOTAL // 2


def test_new_node_among_warm_ones_reads_its_share_only(tmp_path: Path) -> None:
    repo = hf_repo(tmp_path, MODEL)
    stage_all(nodes(tmp_path, 2), [repo])
    all_nodes = nodes(tmp_path, 3)
    stage_all(all_nodes, [repo])
    assert [node.source.bytes for node in all_nodes[:2]] == [0, 0]
    assert all_nodes[2].source.bytes < TOTAL // 2 and content(all_nodes[2].ready()) == MODEL


def test_killed_nodes_go_on_with_their_chunks(tmp_path: Path) -> None:
    """All three are killed in the middle; what they had read is not read again by the next three."""
    files = BIG
    repo = hf_repo(tmp_path, files)
    killed = [ProcessNode(i, tmp_path / f"node {i}", repo, at=(10 << 20)) for i in range(3)]
    for node in killed:
        node.begin([Peer(one.name, "127.0.0.1", one.port) for one in killed])
    for node in killed:
        assert node.told() is None and node.process.wait(30) == -signal.SIGKILL
    all_nodes = nodes(tmp_path, 3)
    assert not any(snapshot(node).exists() for node in all_nodes)
    stage_all(all_nodes, [repo])
    assert [content(node.ready()) for node in all_nodes] == [files] * 3
    # Each had read 10 MiB by two threads: at least one chunk was complete.
    assert read_in_all(all_nodes) <= len(files["model.safetensors"]) - 3 * chunks.CHUNK_BYTES


def test_one_node_goes_on_alone(tmp_path: Path) -> None:
    """What several have begun: the part is cut to the chunks before its first gap."""
    files = {"model.safetensors": safetensors(40 << 20)}
    repo = hf_repo(tmp_path, files)
    killed = [ProcessNode(i, tmp_path / f"node {i}", repo, at=(16 << 20)) for i in range(2)]
    for node in killed:
        node.begin([Peer(one.name, "127.0.0.1", one.port) for one in killed])
    for node in killed:
        assert node.told() is None
    source = Source()
    alone = run(repo, tmp_path / "node 0", open_source=source)
    assert alone.findings == () and content(Path(alone.ready["model"])) == files
    assert source.opened == ["model.safetensors"] and source.bytes <= len(files["model.safetensors"])


def test_several_go_on_with_what_one_has_begun(tmp_path: Path) -> None:
    files = {"model.safetensors": safetensors(40 << 20)}
    repo = hf_repo(tmp_path, files)
    with stager(repo, tmp_path / "node 0", 22 << 20) as process:
        process.communicate()
    all_nodes = nodes(tmp_path, 2)
    stage_all(all_nodes, [repo])
    assert [content(node.ready()) for node in all_nodes] == [files] * 2
    total = len(files["model.safetensors"])
    assert read_in_all(all_nodes) <= total - 2 * chunks.CHUNK_BYTES  # of its five, two or three are its share


def test_part_filled_out_of_order_never_counts_from_its_beginning(tmp_path: Path) -> None:
    """Killed between its first write, far from the beginning, and the record of it."""
    data = chunks.ChunkFile(str(tmp_path / "part"), 5 * chunks.CHUNK_BYTES, strong=False)
    data.load()
    (tmp_path / "part").write_bytes(b"\0" * 4 * chunks.CHUNK_BYTES)
    again = chunks.ChunkFile(str(tmp_path / "part"), 5 * chunks.CHUNK_BYTES, strong=False)
    again.load()
    assert sum(again.here) == 0
    chunks.to_prefix(str(tmp_path / "part"))
    assert (tmp_path / "part").stat().st_size == 0


# Faults


def test_killed_node_is_left_out_and_named(tmp_path: Path) -> None:
    repo = hf_repo(tmp_path, BIG)
    victim = ProcessNode(2, tmp_path / "node 2", repo, at=6 << 20)
    all_nodes = nodes(tmp_path, 2, stall_s=4.0)
    peers = [*peers_of(all_nodes), Peer("n2", "127.0.0.1", victim.port)]
    victim.begin(peers)
    stage_all(all_nodes, [repo], peers=peers)
    assert victim.process.wait(30) == -signal.SIGKILL
    assert [content(node.ready()) for node in all_nodes] == [BIG] * 2
    assert [(rules(node.done), node.done.findings[0].node) for node in all_nodes] == [
        (["stage.peer"], "n2")
    ] * 2
    assert all(node.done.ok for node in all_nodes)
    assert read_in_all(all_nodes) <= len(BIG["model.safetensors"])


def test_frozen_node_is_left_out_and_named(tmp_path: Path) -> None:
    """SIGSTOP, as a dead network, leaves its connections open and silent."""
    repo = hf_repo(tmp_path, BIG)
    victim = ProcessNode(2, tmp_path / "node 2", repo, at=6 << 20, number=signal.SIGSTOP)
    all_nodes = nodes(tmp_path, 2, stall_s=4.0)
    peers = [*peers_of(all_nodes), Peer("n2", "127.0.0.1", victim.port)]
    victim.begin(peers)
    stage_all(all_nodes, [repo], peers=peers)
    victim.end()
    assert [content(node.ready()) for node in all_nodes] == [BIG] * 2
    assert [excluded(node) for node in all_nodes] == [["n2"], ["n2"]]
    assert any(data.get("state") == "restarted" for _, data in all_nodes[0].events)


class Slow(Source):
    """A node whose way to shared storage gives 256 KiB each tenth of a second."""

    def after(self, entry: FileEntry, view: memoryview) -> None:
        time.sleep(0.1)


def test_slow_node_does_not_hold_the_others_up(tmp_path: Path) -> None:
    files = {"model.safetensors": safetensors(24 << 20)}
    repo, all_nodes = hf_repo(tmp_path, files), nodes(tmp_path, 3, stall_s=20.0, slow_s=0.5)
    all_nodes[2].source = Slow()
    stage_all(all_nodes, [repo])
    assert [content(node.ready()) for node in all_nodes] == [files] * 3
    assert [excluded(node) for node in all_nodes] == [["n2"], ["n2"], []]
    assert sum(node.source.bytes for node in all_nodes[:2]) <= len(files["model.safetensors"])


@pytest.mark.parametrize(("times", "left_out"), [(1, []), (1000, ["n0"])])
def test_bit_flipped_between_nodes(tmp_path: Path, times: int, left_out: list[str]) -> None:
    """Once: the chunk is asked for again. Always: its chunks come from elsewhere."""
    repo, all_nodes = hf_repo(tmp_path, MODEL), nodes(tmp_path, 3)
    relay = Relay(all_nodes[0].port, 1 << 20, times)
    peers = peers_of(all_nodes)
    stage_all(all_nodes, [repo], peers=[Peer("n0", "127.0.0.1", relay.port), *peers[1:]])
    relay.close()
    assert [content(node.ready()) for node in all_nodes] == [MODEL] * 3
    assert set(excluded(all_nodes[1]) + excluded(all_nodes[2])) <= {"n0"}
    assert any("other content" in data.get("why", "") for node in all_nodes for _, data in node.events)
    if left_out:
        assert excluded(all_nodes[1]) == excluded(all_nodes[2]) == left_out


def test_bit_flipped_at_rest_on_the_node_that_gives(tmp_path: Path) -> None:
    """Its record vouches for the file; the receiver's own hash does not, and the source is right."""
    files = {"model.safetensors": safetensors(20 << 20)}
    repo = hf_repo(tmp_path, files)
    warm = run(repo, tmp_path / "node 0")
    flip(Path(warm.ready["model"], "model.safetensors").resolve(), keep_times=True)
    all_nodes = nodes(tmp_path, 2)
    stage_all(all_nodes, [repo])
    assert all_nodes[1].done.findings == () and content(all_nodes[1].ready()) == files


def test_bit_flipped_in_source_is_every_nodes_finding(tmp_path: Path) -> None:
    repo, all_nodes = hf_repo(tmp_path, MODEL), nodes(tmp_path, 3)
    blob = blob_of(repo, "model-00002-of-00003.safetensors")
    flip(blob)
    stage_all(all_nodes, [repo])
    found = {(finding.rule, finding.file) for node in all_nodes for finding in node.done.findings}
    assert ("stage.corrupt", str(blob)) in found
    assert not any(snapshot(node).exists() for node in all_nodes)


class Truncating(Source):
    def after(self, entry: FileEntry, view: memoryview) -> None:
        os.truncate(entry.path, 10)


def test_source_cut_off_while_read(tmp_path: Path) -> None:
    repo = hf_repo(tmp_path, {"model.safetensors": safetensors(24 << 20)})
    all_nodes = nodes(tmp_path, 2)
    all_nodes[0].source = Truncating()
    stage_all(all_nodes, [repo])
    assert "stage.corrupt" in rules(all_nodes[0].done)
    assert not any(snapshot(node).exists() for node in all_nodes)


@needs_root
def test_disk_full_on_one_node(tmp_path: Path) -> None:
    """It is told there, with the file; the others complete."""
    import subprocess

    repo, all_nodes = hf_repo(tmp_path, MODEL), nodes(tmp_path, 3)
    small = tmp_path / "small"
    small.mkdir()
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=40m", "none", small], check=False)
    if done.returncode:
        pytest.skip("needs the right to mount a tmpfs")
    try:
        all_nodes[1].folder = small / "node"
        hog = os.posix_fallocate

        class Filling(Source):
            def after(self, entry: FileEntry, view: memoryview) -> None:
                if not (small / "hog").exists():
                    with (small / "hog").open("wb") as stream:
                        hog(stream.fileno(), 0, 30 << 20)

        all_nodes[1].source = Filling()
        stage_all(all_nodes, [repo])
        assert rules(all_nodes[1].done)[0] == "stage.disk-full" and not snapshot(all_nodes[1]).exists()
    finally:
        for node in all_nodes:
            node.swarm.close()
        subprocess.run(["umount", "--lazy", small], check=False)  # a descriptor may still be open
    assert [content(all_nodes[index].ready()) for index in (0, 2)] == [MODEL] * 2


@needs_root
def test_quota_of_one_node(tmp_path: Path) -> None:
    repo, all_nodes = hf_repo(tmp_path, MODEL), nodes(tmp_path, 3)
    with quota(tmp_path, 12 << 20) as limited:
        all_nodes[1].folder = limited / "node"
        try:
            stage_all(all_nodes, [repo])
        finally:
            for node in all_nodes:
                node.swarm.close()
        assert rules(all_nodes[1].done)[0] == "stage.disk-full" and not snapshot(all_nodes[1]).exists()
        assert "quota" in all_nodes[1].done.findings[0].what
    assert [content(all_nodes[index].ready()) for index in (0, 2)] == [MODEL] * 2


# Who is served


def listening(tmp_path: Path) -> Node:
    node = Node(0, tmp_path / "node")
    node.swarm.settle()
    return node


def test_stranger_is_served_nothing(tmp_path: Path) -> None:
    node = listening(tmp_path)
    with pytest.raises(ChannelError):
        connect("127.0.0.1", node.port, "00" * 32, Hello(1, "n1"))
    with socket.create_connection(("127.0.0.1", node.port)) as sock:
        sock.recv(4096)
        sock.sendall(b'{"get": ["0123456789abcdef", 0]}\n')
        with contextlib.suppress(ConnectionResetError):  # most of that line is not even read
            assert sock.recv(4096) == b""
    node.swarm.close()


@pytest.mark.parametrize(
    "asked", [["/etc/passwd", 0], ["../../etc/passwd", 0], ["0123456789abcdef0123456789abcdef", 0]]
)
def test_only_files_of_the_job_are_served(tmp_path: Path, asked: list[Any]) -> None:
    node = listening(tmp_path)
    link = connect("127.0.0.1", node.port, TOKEN, Hello(1, "n1"))
    link.send({"get": asked})
    assert "gone" in link.receive()
    link.close()
    node.swarm.close()


def test_nothing_is_served_after_the_end(tmp_path: Path) -> None:
    node = listening(tmp_path)
    link = connect("127.0.0.1", node.port, TOKEN, Hello(1, "n1"))
    before = threading.active_count()
    node.swarm.close()
    with pytest.raises(ChannelError):
        link.receive()
    with pytest.raises((ChannelError, OSError)):
        connect("127.0.0.1", node.port, TOKEN, Hello(1, "n1"))
    assert threading.active_count() <= before
