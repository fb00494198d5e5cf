"""RLix: its fixed cache folder on a node that several runs and users share."""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from rlix_kit import make_checkouts, resolved

from jobspec.plan import Plan
from jobspec.triage import scan_lines


@pytest.fixture(scope="module")
def checkouts(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return make_checkouts(tmp_path_factory.mktemp("rlix"))


@pytest.mark.parametrize(
    ("before", "works"),
    [("nothing", True), ("this run's link", True), ("dangling link", True), ("empty folder", True),
     ("another cache", False), ("folder with files", False), ("the cache itself", True)],
)  # fmt: skip
def test_cache_stands_where_rlix_looks(
    checkouts: dict[str, Path], tmp_path: Path, before: str, works: bool
) -> None:
    """RLix's actors look in one fixed folder, which an earlier or another run may have left."""
    plan = resolved(checkouts).plan
    assert plan is not None
    place, cache = tmp_path / "rlix/shared/hf", tmp_path / "cache"
    place.parent.mkdir(parents=True)
    targets = {
        "this run's link": cache,
        "dangling link": tmp_path / "gone",
        "another cache": tmp_path / "other",
    }
    (tmp_path / "other").mkdir()
    if before in targets:
        place.symlink_to(targets[before])
    elif before != "nothing":
        place.mkdir()
    if before == "folder with files":
        (place / "model").touch()
    if before == "the cache itself":
        cache = place
    text = plan.commands[0].argv[0].replace("/tmp/rlix", str(tmp_path / "rlix"))
    done = subprocess.run(
        ["bash", "-eo", "pipefail", "-c", text], env={**os.environ, "HF_HOME": str(cache)},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.returncode == 0) is works, done.stderr
    assert (place.resolve() == cache.resolve()) is works
    assert place.exists()
    assert works or "is not this run's cache" in done.stderr


@pytest.mark.parametrize("gone", [False, True])
@pytest.mark.parametrize("code", [0, 3])
def test_end_of_the_link_is_not_the_end_of_the_run(
    checkouts: dict[str, Path], tmp_path: Path, code: int, gone: bool
) -> None:
    """The driver's exit code stays, whoever has taken the folder away in the meantime."""
    plan = resolved(checkouts).plan
    assert plan is not None
    folder = tmp_path / "rlix"
    driver = f"test -d {folder}/shared/hf/; " + (f"rm -r {folder}; " if gone else "") + f"exit {code}"
    with node_run(plan, tmp_path, driver) as run:
        assert run.wait(60) == code
    assert not folder.exists()


@contextmanager
def node_run(plan: Plan, node: Path, driver: str) -> Iterator[subprocess.Popen[str]]:
    """The driver's script on a node whose `/tmp/rlix` is below `node`, with other words for the driver."""
    text = plan.commands[1].argv[0].replace("/tmp/rlix", str(node / "rlix"))
    head, _, _ = text.partition("\npython3 ")
    env = {**os.environ, "HF_HOME": str(node / "cache")}
    env |= {f"JOBSPEC_{name}_DIR": str(node / name) for name in ("ATTEMPT", "METRICS")}
    words = ["bash", "-eo", "pipefail", "-c", f"{head}\n{driver}"]
    with subprocess.Popen(words, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as run:
        yield run


def test_run_that_ends_leaves_the_link_to_the_one_that_goes_on(
    checkouts: dict[str, Path], tmp_path: Path
) -> None:
    """Two runs of one user on one node: the first one's end must not take the second one's cache."""
    plan = resolved(checkouts).plan
    assert plan is not None
    place = tmp_path / "rlix/shared/hf"
    with node_run(plan, tmp_path, "echo ready; read -r _ || true") as other:
        assert other.stdout is not None
        assert other.stdin is not None
        assert other.stdout.readline() == "ready\n"
        with node_run(plan, tmp_path, "true") as run:
            assert run.wait(60) == 0
        assert place.resolve() == (tmp_path / "cache").resolve()
        other.stdin.close()
        assert other.wait(60) == 0
    assert not place.parent.exists()


def test_runs_that_start_and_end_at_the_same_time_each_have_the_cache(
    checkouts: dict[str, Path], tmp_path: Path
) -> None:
    plan = resolved(checkouts).plan
    assert plan is not None
    with ExitStack() as stack:
        cache = f"test -d {tmp_path}/rlix/shared/hf/"
        driver = f"{cache}; sleep 0.0$((RANDOM % 9)); {cache}"
        runs = [stack.enter_context(node_run(plan, tmp_path, driver)) for _ in range(12)]
        assert [run.wait(60) for run in runs] == [0] * 12
    assert not (tmp_path / "rlix").exists()
    assert not (tmp_path / "cache/hf").exists(), "no link was made inside the cache"


@pytest.mark.skipif(os.geteuid() != 0, reason="acts as two users")
def test_folder_of_another_user_is_named(checkouts: dict[str, Path]) -> None:
    """RLix writes below `/tmp/rlix`, whose name is fixed: the user who came first owns it."""
    plan = resolved(checkouts).plan
    assert plan is not None
    with tempfile.TemporaryDirectory() as name:
        node = Path(name)
        node.chmod(0o777)
        (node / "rlix/shared").mkdir(parents=True)
        text = plan.commands[0].argv[0].replace("/tmp/rlix", f"{node}/rlix")
        done = subprocess.run(
            ["bash", "-eo", "pipefail", "-c", text], env={**os.environ, "HF_HOME": str(node / "cache")},
            capture_output=True, text=True, check=False, user=65534, group=65534, extra_groups=(),
        )  # fmt: skip
        told = done.stderr.replace(str(node), "/tmp")
        assert (node / "rlix/shared").is_dir()
    assert done.returncode == 1
    assert "jobspec: /tmp/rlix, which RLix writes to, is of root" in told
    assert [found.signature for found in scan_lines(told.splitlines())] == ["rlix.cache"]
