"""Several agents on loopback addresses stand for the nodes of a job. Ray across nodes: test_ray.py."""

import contextlib
import hashlib
import os
import shutil
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from jobspec.plan import CollectPlan, CommandPlan, HelpersPlan, ImportProof, RayPlan, RepoPlan, StagePlan
from jobspec.runtime.base import channel
from tests.kits.agent_lab import running, shell
from tests.kits.quota_kit import quota

ROOT = pytest.mark.skipif(
    os.geteuid() != 0 or not shutil.which("unshare"), reason="needs root and unshare(1)"
)


def test_ranks_of_all_nodes(tmp_path: Path) -> None:
    text = """
        test $MASTER_PORT -gt 0
        echo "$RANK/$WORLD_SIZE $LOCAL_RANK/$LOCAL_WORLD_SIZE $NODE_RANK $MASTER_ADDR"
    """
    with running(tmp_path, shell(text, on="all", tasks_per_node=2), nodes=2) as run:
        for index in (0, 1):
            run.agent(index)
        code, output = run.finish()
        assert run.finish(run.agents[1])[0] == 0
        logs = {p.name: p.read_text().strip() for p in run.attempt.glob("logs/*/train-*.log")}
        nodes = run.results()["nodes"]
    assert code == 0, output
    assert logs == {
        "train-0.log": "0/4 0/2 0 127.0.0.2",
        "train-1.log": "1/4 1/2 0 127.0.0.2",
        "train-2.log": "2/4 0/2 1 127.0.0.2",
        "train-3.log": "3/4 1/2 1 127.0.0.2",
    }
    assert [(row["name"], row["index"]) for row in nodes] == [("127.0.0.2", 0), ("127.0.0.3", 1)]


def test_first_failing_rank_is_the_cause(tmp_path: Path) -> None:
    """The others are ended because of it; their 143 is not the job's."""
    with running(tmp_path, shell('[ "$RANK" != 1 ] || exit 7; sleep 300', on="all"), nodes=3) as run:
        for index in range(3):
            run.agent(index)
        assert run.finish()[0] == 7
        assert [run.finish(agent)[0] for agent in run.agents[1:]] == [0, 0]
        command = run.results()["commands"][0]
        assert run.leftovers() == []
    assert (command["exit_code"], command["rank"], command["node"]) == (7, 1, "127.0.0.3")
    assert [task["exit_code"] for task in command["tasks"]].count(7) == 1


def test_files_are_collected_from_every_node(tmp_path: Path) -> None:
    text = "echo $RANK > $JOBSPEC_SCRATCH/out.txt"
    with running(tmp_path, shell(text, on="all"), nodes=2, collect=CollectPlan(patterns=("out.txt",))) as run:
        for index in (0, 1):
            run.agent(index)
        assert run.finish()[0] == 0
        artifacts = run.root / "artifacts"
        assert (artifacts / "out.txt").read_text() == "0\n"
        assert (artifacts / "127.0.0.3" / "out.txt").read_text() == "1\n"


def test_absent_node_is_named(tmp_path: Path) -> None:
    ray = RayPlan(port_min=21000, port_max=21999, join_timeout_s=6.0)
    with running(tmp_path, shell("true"), nodes=3, ray=ray) as run:
        for index in (0, 1):
            run.agent(index)
        assert run.finish()[0] == 3
        findings = run.results()["findings"]
    assert [(one["rule"], one["node"]) for one in findings] == [("node.absent", "127.0.0.4")]


def test_wrong_token_is_refused(tmp_path: Path) -> None:
    """A worker with another run's token does not become a node; nor does a stranger."""
    ray = RayPlan(port_min=21000, port_max=21999, join_timeout_s=8.0)
    with running(tmp_path, shell("true"), nodes=2, ray=ray) as run:
        run.agent(0)
        worker = run.agent(1, env={"JOBSPEC_TOKEN": "0" * 64})
        assert run.finish()[0] == 3
        results = run.results()
        refused = [row["data"]["reason"] for row in run.events() if "refused" in row.get("data", {})]
        assert run.finish(worker)[0] == 1
    assert results["first_phase_failed"] == "preflight"
    assert results["findings"][0]["node"] == "127.0.0.3"
    assert any("token of another run" in reason for reason in refused)


def _slow_plan(tmp_path: Path, phase: str) -> dict[str, object]:
    """Plan fields that keep every node in `phase`, by real work that does not end."""
    slow = tmp_path / "slow"
    slow.mkdir()
    if phase == "imports":
        (slow / "slowmod.py").write_text("import time; time.sleep(300)")
        repo = RepoPlan("r", str(slow), pythonpath=(str(slow),))
        return {"repos": (repo,), "proofs": (ImportProof("slowmod", str(slow)),)}
    if phase == "helpers":  # the compiler waits for a header that never comes
        datasets = slow / "megatron" / "core" / "datasets"
        datasets.mkdir(parents=True)
        os.mkfifo(slow / "never.h")
        (datasets / "helpers.cpp").write_text(f'#include "{slow}/never.h"\n')
        return {"helpers": HelpersPlan(source=str(slow))}
    if phase == "stage":  # sparse: long to read; the copy needs as much room as a small machine has
        with (slow / "weights.bin").open("wb") as stream:
            stream.truncate(4 * 1024**3)
        return {"stage": (StagePlan("model", "model", str(slow), layout="plain"),)}
    return {}


@pytest.mark.parametrize(
    ("phase", "how"),
    [
        *((phase, "kill") for phase in ("preflight", "stage", "helpers", "imports", "driver")),
        ("driver", "freeze"),
    ],
)
def test_death_of_a_worker_ends_the_run(tmp_path: Path, phase: str, how: str) -> None:
    """SIGKILL closes the connection; SIGSTOP, like a dead network, leaves it open and silent."""
    text = "echo $JOBSPEC_NODES > $JOBSPEC_ATTEMPT_DIR/up; echo log > $JOBSPEC_ATTEMPT_DIR/a.log; sleep 300"
    nodes = 3 if phase == "preflight" else 2
    fields = _slow_plan(tmp_path, phase)
    with running(
        tmp_path, shell(text), nodes=nodes, collect=CollectPlan(patterns=("a.log",)), **fields
    ) as run:
        run.agent(0)
        worker = run.agent(1)
        if phase == "preflight":  # the third node never comes: the others wait for it
            joined = run.wait_event("preflight", "progress", node="127.0.0.3")
            assert joined["data"] == {"what": "joined", "address": "127.0.0.1"}
            victim = inner(worker)
        elif phase == "driver":
            run.wait_file(run.attempt / "up")
            victim = run.agent_pid(1)
        else:
            run.wait_event(phase, "start")
            victim = run.agent_pid(1)
        os.kill(victim, signal.SIGKILL if how == "kill" else signal.SIGSTOP)
        run.finish()  # nothing else ends this run within that time
        results = run.results()
        os.kill(worker.pid, signal.SIGKILL)
        if how == "freeze":
            os.kill(victim, signal.SIGKILL)
    first = results["findings"][0]
    assert (first["rule"], first["node"]) == ("node.lost", "127.0.0.3")
    assert results["first_phase_failed"] == phase
    assert results["outcome"] == ("failed" if phase == "driver" else "blocked")
    if phase == "driver":
        assert (run.root / "artifacts" / "a.log").read_text() == "log\n"


@pytest.mark.parametrize("index", [0, 1])
def test_killed_guard_is_told_as_its_node(tmp_path: Path, index: int) -> None:
    """The agent below gets SIGTERM by that, and nobody has cancelled the run."""
    with running(tmp_path, shell("echo up > $JOBSPEC_ATTEMPT_DIR/up; sleep 300"), nodes=2) as run:
        agents = [run.agent(0), run.agent(1)]
        run.wait_file(run.attempt / "up")
        os.kill(agents[index].pid, signal.SIGKILL)
        wait_until(lambda: (run.attempt / "exit").exists())
        results = run.results()
    first = results["findings"][0]
    assert (first["rule"], first["node"]) == ("node.lost", ("127.0.0.2", "127.0.0.3")[index])
    assert results["outcome"] == "failed"


def inner(process: subprocess.Popen[str]) -> int:
    """The agent below the guard; 0 before there is one."""
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    return int(children[0]) if children else 0


def wait_until(ready: Callable[[], bool], timeout: float = 60) -> None:
    end = time.monotonic() + timeout
    while not ready():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.02)


def test_death_of_the_head_ends_the_workers(tmp_path: Path) -> None:
    with running(
        tmp_path, shell("echo up > $JOBSPEC_ATTEMPT_DIR/up-$RANK; sleep 300", on="all"), nodes=2
    ) as run:
        head = run.agent(0)
        worker = run.agent(1)
        run.wait_file(run.attempt / "up-1")
        os.kill(run.agent_pid(0), signal.SIGKILL)
        assert run.finish(worker)[0] == 1
        assert run.finish(head)[0] == 137
        assert run.leftovers() == []


def test_signal_to_a_worker_cancels_the_run(tmp_path: Path) -> None:
    with running(tmp_path, shell("echo up > $JOBSPEC_ATTEMPT_DIR/up; sleep 300"), nodes=2) as run:
        run.agent(0)
        worker = run.agent(1)
        run.wait_file(run.attempt / "up")
        worker.terminate()
        assert run.finish()[0] == 143
        assert run.finish(worker)[0] == 0
        assert run.results()["outcome"] == "cancelled"


def test_worker_that_is_told_to_end_looks_for_the_head_no_longer(tmp_path: Path) -> None:
    """The head's task did not start: nothing else ends this wait before the deadline for joining."""
    with running(tmp_path, shell("true"), nodes=2) as run:
        worker = run.agent(1)
        wait_until(lambda: inner(worker) > 0)
        worker.terminate()
        code, output = run.finish(worker)
    assert code == 1
    assert "the head node `127.0.0.2` was not found" in output


@ROOT
def test_unshared_folder_is_found_with_its_node(tmp_path: Path) -> None:
    """Node 1 has another file system where the head keeps the attempt."""
    with running(tmp_path, shell("true"), nodes=2) as run:
        (run.root / "attempts").mkdir()
        run.agent(0)
        script = f'mount -t tmpfs none "{run.root}/attempts" && exec "$@"'
        run.agent(1, prefix=["unshare", "--mount", "sh", "-c", script, "sh"])
        assert run.finish()[0] == 3
        results = run.results()
    assert results["first_phase_failed"] == "preflight"
    assert {(one["rule"], one["node"]) for one in results["findings"]} == {
        ("preflight.shared-dir", "127.0.0.3")
    }


@ROOT
def test_full_disk_is_found_with_its_node(tmp_path: Path) -> None:
    source = tmp_path / "data"
    source.write_bytes(b"x" * (4 << 20))
    stage = (StagePlan("d", "dataset", str(source), layout="plain"),)
    with running(tmp_path, shell("true"), nodes=2, stage=stage) as run:
        (tmp_path / "l").mkdir()
        run.agent(0)
        script = f'mount -t tmpfs -o size=1m none "{tmp_path}/l" && exec "$@"'
        run.agent(1, prefix=["unshare", "--mount", "sh", "-c", script, "sh"])
        assert run.finish()[0] == 3
        found = run.results()["findings"]
    assert [(one["rule"], one["node"]) for one in found] == [("preflight.disk", "127.0.0.3")]


@ROOT
def test_a_disk_needs_no_room_for_what_an_earlier_run_has_staged(tmp_path: Path) -> None:
    """The disk has 12 MiB beside the GiB that is left free; one copy takes 8."""
    source, local = tmp_path / "data", tmp_path / "local"
    source.write_bytes(b"x" * (8 << 20))
    local.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={(1 << 30) + (12 << 20)}", "none", str(local)]
    stage = (StagePlan("d", "dataset", str(source), layout="plain"),)
    subprocess.run(mount, check=True)
    try:
        for name in ("first", "second"):
            with running(tmp_path / name, shell("true"), stage=stage, node_local=str(local)) as run:
                run.agent(0)
                assert run.finish()[0] == 0, run.results()["findings"]
        assert shutil.disk_usage(local).free < (1 << 30) + (8 << 20)
    finally:
        subprocess.run(["umount", "--lazy", str(local)], check=True)


@ROOT
def test_a_quota_that_is_used_up_is_called_that(tmp_path: Path) -> None:
    with quota(tmp_path, 4 << 20) as local:
        with contextlib.suppress(OSError), (local / "other").open("wb") as file:
            while file.write(os.urandom(1 << 16)):
                file.flush()
        with running(tmp_path / "run", shell("true"), node_local=str(local)) as run:
            run.agent(0)
            assert run.finish()[0] == 3
            (found,) = run.results()["findings"]
    assert found["rule"] == "preflight.node-local"
    assert "the quota of space or of files is used up (Disk quota exceeded)" in found["what"]
    assert "quota -s" in found["fix"]


def test_subnet_that_one_node_lacks(tmp_path: Path) -> None:
    """Both are this machine here, so both are named."""
    with running(tmp_path, shell("true"), nodes=2, subnet="10.254.254.0/24") as run:
        for index in (0, 1):
            run.agent(index)
        assert run.finish()[0] == 3
        found = run.results()["findings"]
    assert [(one["rule"], one["node"]) for one in found] == [
        ("preflight.address", "127.0.0.2"),
        ("preflight.address", "127.0.0.3"),
    ]


def test_foreign_listener_on_the_first_port(tmp_path: Path) -> None:
    """Another job's head on a shared node: ours takes the next candidate, workers pass by."""
    with running(tmp_path, shell("true"), nodes=2) as run, contextlib.ExitStack() as stack:
        from jobspec.runtime.base.identity import Identity

        key = Identity(run.root, 1, 0, tuple(run.hosts), run.token, run.job_id).key
        other = stack.enter_context(channel.listen(channel.candidate_ports(key)[:1]))
        threading.Thread(target=_answer_nobody, args=(other,), daemon=True).start()
        for index in (0, 1):
            run.agent(index)
        assert run.finish()[0] == 0


def _answer_nobody(sock: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while True:
            peer, _ = sock.accept()
            with contextlib.suppress(channel.ChannelError):
                channel.accept(peer, "another token")
            peer.close()


def test_four_nodes_do_not_wait_for_each_other_in_turn(tmp_path: Path) -> None:
    with running(tmp_path, CommandPlan("train", ("true",)), nodes=4) as run:
        for index in range(4):
            run.agent(index)
        assert run.finish()[0] == 0
        assert len(run.results()["nodes"]) == 4


def test_second_run_with_the_same_name_does_not_disturb(tmp_path: Path) -> None:
    with running(tmp_path / "a", shell("sleep 1"), nodes=2) as one:
        with running(tmp_path / "b", shell("exit 3"), nodes=2) as two:
            for index in (0, 1):
                one.agent(index)
                two.agent(index)
            assert two.finish()[0] == 3
        assert one.finish()[0] == 0


def test_first_fault_stops_the_others_work(tmp_path: Path) -> None:
    """Node 1 lacks the source; node 0 would still be busy for long."""
    shared = tmp_path / "shared"
    shared.mkdir()
    module = (
        "import os, time\nif os.environ['SLURM_NODEID'] == '0': time.sleep(300)\nraise ImportError('broken')"
    )
    (shared / "m.py").write_text(module)
    fields = {
        "repos": (RepoPlan("r", str(shared), pythonpath=(str(shared),)),),
        "proofs": (ImportProof("m", str(shared)),),
    }
    with running(tmp_path, shell("true"), nodes=2, **fields) as run:
        for index in (0, 1):
            run.agent(index)
        assert run.finish()[0] == 3
        found = run.results()["findings"]
        run.finish(run.agents[1])
        assert run.leftovers() == []
    assert [(one["rule"], one["node"]) for one in found] == [("imports.failed", "127.0.0.3")]


@ROOT
def test_nodes_stage_from_shared_storage_once(tmp_path: Path) -> None:
    """Real agents; each keeps node-local files in a mount of its own at the same path, as real nodes do."""
    source = tmp_path / "data"
    source.mkdir()
    files = {f"{number}.bin": os.urandom(5 << 20) for number in range(3)}
    for name, data in files.items():
        (source / name).write_bytes(data)
    stage = (StagePlan("d", "dataset", str(source), layout="plain"),)
    text = 'cat "$JOBSPEC_DATA_D"/* | sha256sum > $JOBSPEC_ATTEMPT_DIR/sum-$RANK'
    with running(tmp_path, shell(text, on="all"), nodes=3, stage=stage) as run:
        (tmp_path / "l").mkdir()
        script = f'mount -t tmpfs none "{tmp_path}/l" && exec "$@"'
        for index in range(3):
            run.agent(index, prefix=["unshare", "--mount", "sh", "-c", script, "sh"])
        code, output = run.finish()
        ends = [row for row in run.events() if row["phase"] == "stage" and row["event"] == "end"]
        sums = {path.read_text() for path in run.attempt.glob("sum-*")}
    assert code == 0, output
    expected = hashlib.sha256(b"".join(files[name] for name in sorted(files))).hexdigest()
    assert sums == {f"{expected}  -\n"}
    total = sum(map(len, files.values()))
    moved = [row["data"] for row in ends if row["node"]]
    assert sum(data.get("bytes", 0) for data in moved) == total
    assert sum(data["received"] for data in moved) == 2 * total


def test_agents_with_one_folder_do_not_wait_for_each_other(tmp_path: Path) -> None:
    """`node_local` on shared storage, by mistake: one agent copies, the others tell that they will not."""
    source = tmp_path / "data.bin"
    source.write_bytes(os.urandom(9 << 20))
    stage = (StagePlan("d", "dataset", str(source), layout="plain"),)
    with running(tmp_path, shell('test -s "$JOBSPEC_DATA_D"', on="all"), nodes=3, stage=stage) as run:
        for index in range(3):
            run.agent(index)
        assert run.finish()[0] == 0
        states = [row["data"].get("state") for row in run.events() if row["event"] == "progress"]
    assert "excluded" not in states
