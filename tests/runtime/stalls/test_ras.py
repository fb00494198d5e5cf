"""NCCL's RAS. The texts are of NCCL 2.28.9 on four H200, one of 2.26.2 is from NVIDIA/nccl#1911."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from jobspec.runtime.stalls import explain, proc_facts, ras
from jobspec.runtime.stalls.cohorts import View
from jobspec.runtime.stalls.ras import Member
from jobspec.runtime.stalls.stacks import Frame, Process, Thread

TEXTS = Path(__file__).parents[2] / "fixtures" / "stalls" / "ras"


def read(name: str) -> list[ras.Trouble]:
    return ras.read((TEXTS / f"{name}.txt").read_text())


def test_a_healthy_run() -> None:
    assert read("none") == []


def test_a_rank_that_lags() -> None:
    (found,) = read("skip")
    assert found.lagging == (Member(1, 950, "192.0.2.2"),)
    assert str(found) == (
        "in NCCL's communicator #0-0 (4 ranks) 3 ranks have launched 4,"
        " rank 1 (process 950 on 192.0.2.2) has launched 3 operations AllReduce"
    )


@pytest.mark.parametrize("name", ["size", "order", "many_ahead_2.26"])
def test_ranks_that_are_ahead_are_not_to_blame(name: str) -> None:
    (found,) = read(name)
    assert found.lagging == ()
    assert ras.first([found]) is None


@pytest.mark.parametrize(("name", "says"), [("stop", "gives no answer"), ("kill_later", "cannot be reached")])
def test_a_rank_that_does_not_answer(name: str, says: str) -> None:
    (found,) = read(name)
    assert found.missing == (Member(1, {"stop": 948, "kill_later": 955}[name], "192.0.2.2"),)
    assert str(found).endswith(f"of NCCL's communicator #0-0 (4 ranks) {says}")


def test_the_last_text_of_a_log_counts() -> None:
    log = (TEXTS / "skip.txt").read_text() + (TEXTS / "none.txt").read_text()
    assert ras.read(log) == []


WAIT = Frame("wait", "/r/train.py", 9, "torch.cuda.synchronize()")


def process(pid: int, *frames: Frame) -> Process:
    return Process(pid, "ray::Worker", "", "n1", (Thread("MainThread", frames, pid, False),))


def test_what_the_rank_that_lags_does() -> None:
    people = [process(946, WAIT), process(950, Frame("evaluate", "/r/eval.py", 4, "time.sleep(9)"))]
    found = explain.explain(View(people, ras=read("skip")))
    assert [one.pid for one in found.named] == [950]
    assert found.what.startswith("in NCCL's communicator #0-0 (4 ranks) 3 ranks have launched 4, rank 1")
    assert ": pid 950 (`ray::Worker`) on `n1` stands at evaluate (/r/eval.py:4)" in found.what


def test_a_rank_without_a_process() -> None:
    people = [process(952, WAIT), process(953, WAIT)]
    found = explain.explain(View(people, ras=read("kill_later"), complete=True))
    assert (found.kind, found.inferred) == ("rank-gone", True)  # jobs that share a node may share the port
    assert found.what.endswith("cannot be reached, and it runs on no node of the run")


def test_ranks_of_another_job_are_not_blamed() -> None:
    found = explain.explain(View([process(1, WAIT), process(2, WAIT)], ras=read("skip")))
    assert (found.named, found.kind) == ((), "collective-all")
    assert "communicator" not in found.why


def test_what_ras_says_beside_stacks_that_do_not_differ() -> None:
    found = explain.explain(View([process(946, WAIT), process(954, WAIT)], ras=read("size")))
    assert found.kind == "collective-all"
    assert "rank 1 (process 954 on 192.0.2.2) has launched 5, 3 ranks have launched 4 operations" in found.why


def test_whether_a_process_of_the_run_listens() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        assert proc_facts.listens([os.getppid(), os.getpid()], port)
        assert not proc_facts.listens([os.getppid()], port)
    assert not proc_facts.listens([os.getpid()], port)


@contextmanager
def server(text: bytes, silent: int = 0) -> Iterator[int]:
    """RAS's side of the protocol; the first `silent` connections are taken and not answered."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        kept = []

        def serve() -> None:
            for number in range(silent + 1):
                link, _ = listener.accept()
                kept.append(link)
                if number < silent:
                    continue
                lines = link.makefile("rb")
                assert lines.readline() == b"CLIENT PROTOCOL 2\n"
                link.sendall(b"SERVER PROTOCOL 2\n")
                assert lines.readline() == b"TIMEOUT 5\n"
                link.sendall(b"OK\n")
                assert lines.readline() == b"VERBOSE STATUS\n"
                link.sendall(text)
                link.shutdown(socket.SHUT_WR)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield listener.getsockname()[1]
        thread.join(10.0)
        for link in kept:
            link.close()


def test_asking_a_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stopped process shares the port, and takes the first connection."""
    monkeypatch.setattr(ras, "HANDSHAKE_S", 0.3)
    text = (TEXTS / "skip.txt").read_bytes()
    with server(text, silent=1) as port:
        assert ras.ask({"NCCL_RAS_ADDR": f"127.0.0.1:{port}"}).encode() == text


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("", ras.ADDRESS),
        ("n1:3", ("n1", 3)),
        (":3", ("localhost", 3)),
        ("[::1]:3", ("::1", 3)),
        ("n1:x", ras.ADDRESS),
        ("n1:²", ras.ADDRESS),
    ],
)
def test_the_address_that_a_run_sets(text: str, address: tuple[str, int]) -> None:
    assert ras.address({"NCCL_RAS_ADDR": text}) == address


def test_where_no_nccl_listens() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    assert ras.ask({"NCCL_RAS_ADDR": f"127.0.0.1:{port}"}) == ""
