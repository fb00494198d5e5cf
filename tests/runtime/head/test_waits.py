"""Waits whose counterpart dies, fails, or never comes: none may last for ever."""

from __future__ import annotations

import errno
import os
import secrets
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import pytest

from jobspec.plan import CollectPlan, HelpersPlan, ImportProof
from jobspec.runtime.base import channel, procs
from jobspec.runtime.base.channel import Hello, Link, candidate_ports, connect
from jobspec.runtime.base.identity import Identity, from_environment
from jobspec.runtime.base.redact import Redactor
from jobspec.runtime.checkouts import imports
from jobspec.runtime.drivers.nemo_rl import script_run
from jobspec.runtime.head import phases
from jobspec.runtime.head.attempt import Attempt
from jobspec.runtime.head.nodes import DOUBT_S, Call, Nodes, RunStoppedError
from jobspec.runtime.node import command_run, worker
from jobspec.runtime.node.agent import Node
from tests.kits.agent_lab import make_run, running, shell

TOKEN = "t" * 64
PATIENCE_S = 60.0


class Lab:
    """A head's view of one other node, and that node's end of the connection."""

    def __init__(
        self,
        on_message: Any = lambda index, message: None,
        on_lost: Any = None,
        joins: bool = True,
    ) -> None:
        self.lost: list[str] = []
        who = Identity(Path("/r"), 1, 0, ("a", "b"), TOKEN, "7")
        tell = on_lost or (lambda index, reason: self.lost.append(reason))
        self.nodes = Nodes(who, on_message, lambda index, address: None, tell, lambda address, reason: None)
        self.port = self.nodes.listen(candidate_ports(secrets.token_hex(8)))
        if joins:
            self.link = self.join()

    def join(self) -> Link:
        link = connect("127.0.0.1", self.port, TOKEN, Hello(1, "b"))
        self.nodes.wait_connected(PATIENCE_S)
        return link

    def ended(self, call: Call) -> bool:
        return self.nodes.settle([call], PATIENCE_S) == []


def test_head_that_fails_at_a_message_waits_no_longer_for_its_node() -> None:
    """Nobody would read the reply any more."""
    lab = Lab(on_message=lambda index, message: message["absent"])
    call = lab.nodes.call(1, "stage")
    lab.link.send({"progress": {}})
    assert lab.ended(call)
    assert lab.lost == ["the head failed while it read the node's messages: KeyError: 'absent'"]


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_calls_of_a_lost_node_end_though_telling_of_it_fails() -> None:
    def full(index: int, reason: str) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    lab = Lab(on_lost=full)
    call = lab.nodes.call(1, "stage")
    readers = [thread for thread in threading.enumerate() if thread.name == "welcome"]
    lab.link.close()
    assert lab.ended(call)
    for thread in readers:
        thread.join(PATIENCE_S)  # its error is this test's


def test_nodes_are_accepted_after_the_head_was_out_of_descriptors(monkeypatch: pytest.MonkeyPatch) -> None:
    accept, failed = socket.socket.accept, threading.Event()

    def once(listener: socket.socket) -> Any:
        if not failed.is_set():
            failed.set()
            raise OSError(errno.EMFILE, "Too many open files")
        return accept(listener)

    monkeypatch.setattr(socket.socket, "accept", once)
    Lab()
    assert failed.is_set()


def test_nodes_are_accepted_after_the_head_was_out_of_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    start, failed = threading.Thread.start, threading.Event()

    def once(thread: threading.Thread) -> None:
        if thread.name == "welcome" and not failed.is_set():
            failed.set()
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", once)
    lab = Lab(joins=False)
    with pytest.raises(channel.ChannelError):
        lab.join()
    assert failed.is_set()
    lab.join()


def test_node_that_gave_up_its_handshake_may_come_again() -> None:
    """The head stood still for longer than the node waits: that connection is not the node's death."""
    lab = Lab(joins=False)
    with socket.create_connection(("127.0.0.1", lab.port), timeout=PATIENCE_S) as late:
        end = time.monotonic() + PATIENCE_S
        said = channel._take(late, channel.NONCE_BYTES, end, channel.MAGIC) + bytes(channel.NONCE_BYTES)
        late.sendall(channel.MAGIC + bytes(channel.NONCE_BYTES) + channel._sign(TOKEN, "client", said))
        late.shutdown(socket.SHUT_WR)
        while late.recv(4096):
            pass  # until the head has let go of it
        lab.join()
        assert lab.lost == []


def test_address_of_a_node_is_known_after_its_loss() -> None:
    """A node that dies between two looks of the head is lost: no bug of the head's."""
    hold = threading.Event()
    lab = Lab(on_message=lambda index, message: hold.wait(PATIENCE_S))
    lab.link.send({"progress": {}})  # the reader is busy with it, and has not seen the end
    lab.link._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    lab.link._socket.close()
    assert (lab.nodes.ip(1), lab.nodes.local_ip()) == ("127.0.0.1", "127.0.0.1")
    hold.set()
    lab.nodes.wait(lambda: bool(lab.lost), PATIENCE_S, list)
    assert lab.nodes.ip(1) == "127.0.0.1"
    assert lab.ended(lab.nodes.call(1, "preflight"))


def test_many_losses_at_once_are_doubted_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Half a second for each of 512 nodes would be minutes."""
    lost: list[int] = []
    doubts: list[float] = []
    who = Identity(Path("/r"), 1, 0, ("a", "b", "c"), TOKEN, "7")
    head = Nodes(who, lambda *_: None, lambda *_: None, lambda index, _: lost.append(index), lambda *_: None)
    monkeypatch.setattr(head._closing, "wait", doubts.append)
    for index in (1, 2):
        head._lose(index, "connection closed", doubt=True)
    assert (lost, doubts) == ([1, 2], [DOUBT_S])


def test_worker_notes_when_a_call_arrives(tmp_path: Path) -> None:
    """The clocks are compared by that moment, not by when the call's thread comes to run."""
    run = make_run(tmp_path)
    who = from_environment(run.root, {"JOBSPEC_TOKEN": run.token, "JOBSPEC_ATTEMPT": "1"})
    node = Node(run.plan, who, {}, lambda message: None)
    node._operations["when"] = lambda arguments: {"arrived": arguments["arrived"]}
    lab = Lab()
    threading.Thread(target=worker._serve, args=(lab.link, node), daemon=True).start()
    before = time.time()
    call = lab.nodes.call(1, "when")
    assert lab.ended(call)
    assert before <= (call.reply or {})["arrived"] <= time.time()


def test_reply_that_cannot_be_sent_is_an_answer_all_the_same(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    who = from_environment(run.root, {"JOBSPEC_TOKEN": run.token, "JOBSPEC_ATTEMPT": "1"})
    node = Node(run.plan, who, {}, lambda message: None)
    node._operations["odd"] = lambda arguments: {"path": tmp_path}
    lab = Lab()
    call = lab.nodes.call(1, "odd")
    worker._work(lab.link, node, lab.link.receive())
    assert lab.ended(call) and call.reply is not None
    (finding,) = call.reply["findings"]
    assert finding["rule"] == "runtime.bug"
    assert finding["what"].startswith("the reply to `odd` cannot be sent: ")


@pytest.fixture
def immortal(monkeypatch: pytest.MonkeyPatch) -> Any:
    """SIGKILL does not end a process that waits for a dead disk or GPU."""
    left: list[int] = []
    monkeypatch.setattr(procs, "KILL_S", 0.1)
    monkeypatch.setattr(imports, "KILL_S", 0.1)
    monkeypatch.setattr(os, "killpg", lambda pid, number: left.append(pid))
    monkeypatch.setattr(subprocess.Popen, "kill", lambda child: left.append(child.pid))
    yield left
    for pid in left:
        os.kill(pid, signal.SIGKILL)


def test_command_that_cannot_be_killed_is_left_behind(immortal: list[int]) -> None:
    with pytest.raises(subprocess.TimeoutExpired):
        procs.output(["sleep", "300"], 0.1)
    assert len(immortal) == 1 and procs.alive(immortal[0])


def test_import_that_cannot_be_killed_is_left_behind(tmp_path: Path, immortal: list[int]) -> None:
    (tmp_path / "hangs.py").write_text("import time\ntime.sleep(300)\n")
    env = {**os.environ, "PYTHONPATH": str(tmp_path)}
    proof = ImportProof("hangs", str(tmp_path), "r")
    result = imports.prove([proof], sys.executable, env, timeout_s=5.0)
    assert [finding.what for finding in result.findings] == ["`import hangs` has not ended after 5 s"]
    assert len(immortal) == 1 and procs.alive(immortal[0])


def test_output_of_a_short_command() -> None:
    assert procs.output(["sh", "-c", "echo a; echo b >&2; exit 4"], 60.0) == (4, b"a\n", b"b\n")


def test_command_whose_log_cannot_be_closed_keeps_its_exit_code(tmp_path: Path) -> None:
    """A network file system tells of a used-up quota when a file is closed."""

    class Full:
        def write(self, data: bytes) -> int:
            return len(data)

        def close(self) -> None:
            raise OSError(errno.EDQUOT, "Disk quota exceeded")

    task = command_run.Task(["sh", "-c", "exit 7"], {}, "", tmp_path / "log", Redactor(()), False, 0)
    task._file.close()
    task._file = Full()  # type: ignore[assignment]
    assert task.finish().exit_code == 7
    assert task.problem == "the quota of space or of files is used up (Disk quota exceeded)"


def test_script_is_not_started_after_the_signal_to_end(tmp_path: Path) -> None:
    received: SimpleQueue[int] = SimpleQueue()
    received.put(signal.SIGTERM)
    assert script_run.run(["touch", str(tmp_path / "started")], received) == 143
    assert not (tmp_path / "started").exists()


def test_run_whose_result_cannot_be_written_is_ended_in_order(tmp_path: Path) -> None:
    """As on a full disk: the command gets its time to save, and its files are collected."""
    text = """mkdir "$JOBSPEC_ATTEMPT_DIR/results.json"
trap 'sleep 2; echo saved > "$JOBSPEC_ATTEMPT_DIR/saved"; exit 0' TERM
echo up > "$JOBSPEC_ATTEMPT_DIR/up"; while :; do sleep 0.1; done"""
    with running(tmp_path, shell(text), collect=CollectPlan(("saved",))) as run:
        process = run.agent()
        run.wait_file(run.attempt / "up")
        process.send_signal(signal.SIGTERM)
        code, output = run.finish()
        assert run.leftovers() == []
    assert (code, "run directory cannot be written" in output) == (3, True), output
    assert (run.root / "artifacts/saved").read_text() == "saved\n"


@pytest.mark.parametrize("phase", ["helpers", "imports"])
def test_phase_that_hangs_on_a_node_ends_the_run(
    phase: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on a disk that is gone: the node answers every heartbeat, and its own deadlines do not act."""
    proofs = (ImportProof("json", "/x"),)
    run = make_run(tmp_path, helpers=HelpersPlan(package="megatron.core"), proofs=proofs)
    env = {"JOBSPEC_TOKEN": run.token, "JOBSPEC_ATTEMPT": "1"}
    attempt = Attempt(run.plan, from_environment(run.root, env), env)
    over, operations = threading.Event(), attempt.node._operations
    operations["helpers"] = lambda _: {"findings": []}
    operations[phase] = lambda _: {"late": over.wait(PATIENCE_S)}
    monkeypatch.setattr(phases, f"{phase.upper()}_S", 0.2)
    with pytest.raises(RunStoppedError):
        phases.Phases(attempt)._helpers_and_imports()
    over.set()
    assert attempt.cause is not None
    assert [(row.rule, row.node) for row in attempt.cause.findings] == [
        (f"{phase}.deadline", attempt.who.name)
    ]
    attempt.record.log.close()
