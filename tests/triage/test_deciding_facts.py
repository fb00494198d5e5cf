"""Facts that decide: out of the line, as recorded, and looked up on this machine."""

from __future__ import annotations

import gzip
import os
import time
from dataclasses import replace
from pathlib import Path

import pytest

from jobspec.cli import machine_facts
from jobspec.cli.machine_facts import look_up
from jobspec.triage import Match, scan_lines
from jobspec.triage.deciding_facts import facts_of_line, port_of, recorded, registry_host, with_recorded_facts


def ours(match: Match) -> bool:
    return True


def match(line: str) -> Match:
    return scan_lines([line])[0]


@pytest.mark.parametrize(
    ("line", "port"),
    [
        ("[Errno 98] address already in use: 8265", 8265),
        ("listen ... port: 29500 ... name: EADDRINUSE", 29500),
        ("bind 10.0.0.1:41000 failed: Address already in use", 41000),
        (
            "[Errno 98] error while attempting to bind on address ('0.0.0.0', 8000): address already in use",
            8000,
        ),
        ("bind to [::]:29500 (errno: 98 - Address already in use)", 29500),
        ("zmq.error.ZMQError: Address already in use (addr='tcp://*:5557')", 5557),
        ("E0604 02:31:29.618 18871 chttp2_server.cc:1063] No address for '0.0.0.0:8076'", 8076),
        ("2025-06-04 02:31:29 ERROR server.py:2034 EADDRINUSE", None),
        ("[Errno 98] Address already in use", None),
    ],
)
def test_port_is_read_from_the_line(line: str, port: int | None) -> None:
    assert port_of(line) == port


@pytest.mark.parametrize(
    ("line", "host"),
    [
        ("[ERROR] URL https://reg.example.org/proxy_auth returned error code: 401", "reg.example.org"),
        ("URL https://hub.example.org/v2/other.example.org/x/manifests/1 returned error code: 401",
         "hub.example.org, though the image names other.example.org"),
        ("401 Unauthorized. For more information check: https://developer.example.org/Status/401", ""),
        ("no image", ""),
    ],
)  # fmt: skip
def test_registry_is_read_from_the_line(line: str, host: str) -> None:
    assert registry_host(line) == host


def test_memory_asked_and_free() -> None:
    line = "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 of which 1.2 GiB is free"
    assert facts_of_line(match(line)) == ("asked for 2.00 GiB, 1.2 GiB were free",)
    capped = f"{line} 27.96 GiB allowed; Of the allocated memory 21.75 GiB is allocated by PyTorch"
    assert facts_of_line(match(capped))[0].endswith(
        "1.2 GiB were free; the process may take 27.96 GiB in all"
    )


@pytest.mark.parametrize(
    ("line", "facts", "expected"),
    [
        ("[Errno 98] address already in use: 10005", {"ephemeral": [9000, 65000]},
         "the kernel gives out ports 9000 to 65000 on n1: port 10005 is one of them, so any process may"
         " have got it"),
        ("OSError: [Errno 28] No space left on device", {"local_free": 3 * 1024**3},
         "before the run n1 had 3.0 GiB free node-locally"),
        ("OSError: [Errno 24] Too many open files", {"open_files": 1024},
         "n1 allows a process 1024 open files"),
    ],
)  # fmt: skip
def test_recorded_facts_of_the_node(line: str, facts: dict[str, object], expected: str) -> None:
    found = with_recorded_facts([replace(match(line), node="n1")], {"n1": facts, "n2": {}})
    assert found[0].facts == (expected,)


def test_sizes_that_divide_the_number_of_heads_are_told() -> None:
    line = "ValueError: Total number of attention heads (14) must be divisible by tensor parallel size (4)."
    assert facts_of_line(match(line)) == ("sizes that divide 14: 1, 2, 7, 14",)


def test_sizes_above_those_of_a_machine_are_not_said_to_be_all() -> None:
    line = "ValueError: hidden_size 96 must be divisible by tensor parallel size (5)."
    said = "sizes up to 64 that divide 96: 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48"
    assert facts_of_line(match(line)) == (said,)


def test_sizes_are_not_told_of_what_a_chosen_size_left() -> None:
    line = "ValueError: output_partition_size = 576 is not divisible by weight quantization block_n = 128."
    assert facts_of_line(match(line)) == ()


def test_nothing_recorded_is_nothing_told() -> None:
    assert recorded(match("OSError: [Errno 28] No space left on device"), {}) == ()


def test_disk_of_the_named_path_is_looked_at(tmp_path: Path) -> None:
    line = f"OSError: [Errno 28] No space left on device: '{tmp_path}/ckpt/step_3/model.pt'"
    (fact, *_) = look_up(match(line), ours)
    assert fact.startswith(f"here, now: {tmp_path} has ") and fact.endswith("GiB free")


def test_path_of_another_machine_gives_no_fact() -> None:
    assert look_up(match("OSError: [Errno 28] No space left on device: '/nosuch-a/b/c'"), ours) == ()


def test_port_range_of_this_machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "range").write_text("9000\t65000\n")
    monkeypatch.setattr(machine_facts, "PORT_RANGE", tmp_path / "range")
    assert "port 10005 is one of them" in look_up(match("[Errno 98] address already in use: 10005"), ours)[0]
    monkeypatch.setattr(machine_facts, "PORT_RANGE", tmp_path / "none")
    assert look_up(match("[Errno 98] address already in use: 10005"), ours) == ()


def test_only_a_log_that_names_this_machine_is_told_of_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    log = tmp_path / "job.log"
    log.write_text("host=trainer-7.example.org\n[Errno 98] address already in use: 10005\n")
    packed = tmp_path / "job.log.gz"
    packed.write_bytes(gzip.compress(log.read_bytes()))
    for name, own in (("trainer-7", True), ("trainer-70", False), ("example", False), ("a-7", False)):
        monkeypatch.setattr("socket.gethostname", lambda name=name: name)
        for path in (log, packed):
            found = replace(match("[Errno 98] address already in use: 10005"), file=str(path))
            assert machine_facts.is_own(found) is own
            assert own or look_up(found, machine_facts.is_own) == ()


def test_partition_limits_come_from_sinfo(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    sinfo = tmp_path / "sinfo"
    sinfo.write_text("#!/bin/sh\necho 'batch* 4:00:00'\necho 'long 7-00:00:00'\n")
    sinfo.chmod(0o755)
    line = "sbatch: error: Requested time limit is invalid (missing or exceeds some limit)"
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    assert look_up(match(line), ours) == (
        "time limits of the partitions here: batch 4:00:00, long 7-00:00:00",
    )


def test_lock_has_an_age(tmp_path: Path) -> None:
    lock = tmp_path / "a.lock"
    line = f"still waiting to acquire lock on {lock}"
    assert look_up(match(line), ours) == (f"here, now: {lock} is not there",)
    lock.touch()
    os.utime(lock, (time.time() - 3600, time.time() - 3600))
    assert look_up(match(line), ours) == (f"here, now: {lock} is 60 min old",)


def test_credentials_name_hosts_and_nothing_else(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / ".credentials").write_text("machine reg.example.org login $oauthtoken password s3cret\n")
    monkeypatch.setenv("ENROOT_CONFIG_PATH", str(tmp_path))
    (fact,) = look_up(
        match("[ERROR] URL https://reg.example.org/proxy_auth returned error code: 401"), lambda _: True
    )
    assert "reg.example.org" in fact and "s3cret" not in fact


def test_the_version_of_the_file_system_package_decides_where_the_line_names_its_class() -> None:
    error = "NotImplementedError: Loading a dataset cached in a LocalFileSystem is not supported."
    assert scan_lines(["fsspec==2023.10.0", error])[0].facts == ("<lines>:1 shows `fsspec==2023.10.0`",)


@pytest.mark.parametrize(
    ("asked", "free", "holder", "said"),
    [
        (
            "51.00 GiB",
            "39.09 GiB",
            "Process 7 has 29.47",
            "it would be 49.6 GiB, still less than was asked for",
        ),
        (
            "41.00 GiB",
            "39.09 GiB",
            "Process 7 has 29.47",
            "about 10.5 of 79.11 GiB are neither free nor of process 7",
        ),
        (
            "20.00 MiB",
            "16.88 MiB",
            "Including non-PyTorch memory, this process has 48.46",
            "about 30.6 of 79.11 GiB are neither free nor this process's",
        ),
    ],
)
def test_whether_the_memory_of_others_would_be_enough(asked: str, free: str, holder: str, said: str) -> None:
    line = (
        f"torch.OutOfMemoryError: CUDA out of memory. Tried to allocate {asked}. GPU 0 has a total capacity"
        f" of 79.11 GiB of which {free} is free. {holder} GiB memory in use. Of the allocated memory 26 GiB"
    )
    (fact,) = facts_of_line(match(line))
    assert said in fact
    assert ("still less" in fact) == ("still less" in said)
