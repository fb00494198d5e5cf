"""A cap on what stays staged on a node: the least recently used goes, and nothing that is in use."""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from jobspec.runtime.staging import items, leases
from tests.runtime.staging.stage_kit import content, hf_repo, item, rules, run, sharded

MIB = 1 << 20


def staged(source: Path, node: Path, cap: int) -> items.StageResult:
    """Staged by a job that has ended, but for its lease where the caller wants one."""
    result = items.run([item(source)], str(node), lambda event, data: None, 60, cap_bytes=cap)
    leases.release(result.hf_home)
    return result


def repos(folder: Path) -> list[Path]:
    return [hf_repo(folder / name, sharded(1, 3 * MIB), org=f"acme--{name}") for name in ("a", "b", "c")]


def here(result: items.StageResult) -> list[str]:
    return sorted(path.name[-1] for path in (Path(result.hf_home) / "hub").iterdir())


def test_least_recently_used_is_removed(tmp_path: Path) -> None:
    a, b, c = repos(tmp_path)
    for source in (a, b):
        staged(source, tmp_path / "node", 7 * MIB)
        time.sleep(0.02)
    staged(a, tmp_path / "node", 7 * MIB)  # used again, nothing to copy
    result = staged(c, tmp_path / "node", 7 * MIB)
    assert result.findings == () and here(result) == ["a", "c"]
    again = staged(b, tmp_path / "node", 0)
    assert again.bytes > 3 * MIB and content(Path(again.ready["model"])) == sharded(1, 3 * MIB)


def test_model_in_use_stays(tmp_path: Path) -> None:
    """Another process has staged it and lives; when it is killed, its lease is gone with it."""
    a, b, _ = repos(tmp_path)
    script = (
        "import sys; sys.path.insert(0, sys.argv[1])\nfrom pathlib import Path\n"
        "from tests.runtime.staging.stage_kit import run\n"
        "print(run(Path(sys.argv[2]), Path(sys.argv[3])).ok, flush=True)\nsys.stdin.read()\n"
    )
    command = [sys.executable, "-c", script, str(Path(__file__).parents[3]), str(a), str(tmp_path / "node")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as user:
        assert user.stdout is not None and user.stdout.readline() == "True\n"
        result = staged(b, tmp_path / "node", 5 * MIB)
        assert rules(result) == ["stage.cap"] and "in use" in result.findings[0].why
        user.kill()
    assert here(staged(b, tmp_path / "node", 5 * MIB)) == ["b"]


def test_model_larger_than_the_cap_removes_nothing_in_vain(tmp_path: Path) -> None:
    a, _, _ = repos(tmp_path)
    before = staged(a, tmp_path / "node", 0)
    large = hf_repo(tmp_path / "d", sharded(2, 6 * MIB), org="acme--d")
    result = staged(large, tmp_path / "node", 8 * MIB)
    assert rules(result) == ["stage.cap"] and content(Path(before.ready["model"])) == sharded(1, 3 * MIB)


def test_folder_cleared_by_hand_meanwhile(tmp_path: Path) -> None:
    a, _, _ = repos(tmp_path)
    run(a, tmp_path / "node")
    shutil.rmtree(tmp_path / "node")
    result = run(a, tmp_path / "node")
    assert result.findings == () and (Path(result.hf_home) / "stage" / f"{a.name}.lease").exists()


def test_kill_while_removing_leaves_no_record(tmp_path: Path) -> None:
    a, _, _ = repos(tmp_path)
    home = staged(a, tmp_path / "node", 0).hf_home
    (Path(home) / "stage" / f"{a.name}.journal").unlink()  # as after the first step of the removal
    result = run(a, tmp_path / "node")
    assert result.findings == () and content(Path(result.ready["model"])) == sharded(1, 3 * MIB)


@pytest.mark.parametrize("text", ["much", "-", "1e999"])
def test_cap_that_is_no_number(text: str) -> None:
    from jobspec.finding import JobspecError
    from jobspec.runtime.staging.disk_space import cap_bytes

    with pytest.raises(JobspecError, match="JOBSPEC_STAGE_MAX_GIB"):
        cap_bytes(text)
