"""Staging on several nodes: what leaves shared storage, what they give each other, who is left out."""

from __future__ import annotations

from pathlib import Path

import pytest
from stage_kit import content, hf_repo, sharded
from swarm_kit import nodes, read_in_all, stage_all


@pytest.mark.parametrize("count", [1, 2, 3, 5])
def test_each_byte_leaves_shared_storage_once(tmp_path: Path, count: int) -> None:
    files = {**sharded(3, 9 << 20), "empty.txt": b"", "sub folder/ü 模型.txt": b"hi"}
    repo, all_nodes = hf_repo(tmp_path / "shared disk", files), nodes(tmp_path, count)
    stage_all(all_nodes, [repo])
    assert [node.done.findings for node in all_nodes] == [()] * count
    assert [content(node.ready()) for node in all_nodes] == [files] * count
    total = sum(map(len, files.values()))
    assert read_in_all(all_nodes) == total == sum(node.done.bytes for node in all_nodes)
    assert sum(node.done.received for node in all_nodes) == total * (count - 1)
