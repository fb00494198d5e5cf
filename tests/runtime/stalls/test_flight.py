"""The flight recorder's dumps, of real torch with gloo, and what NCCL's watchdog prints."""

from __future__ import annotations

import json
import pickle
from pathlib import Path

import pytest

from jobspec.runtime.stalls import explain, flight
from jobspec.runtime.stalls.cohorts import View

DUMPS = Path(__file__).parents[2] / "fixtures" / "stalls"


def fronts(name: str) -> list[flight.Front]:
    return flight.fronts(
        flight.load((DUMPS / name / f"trace_rank_{rank}").read_bytes(), rank) for rank in (1, 2, 3)
    )


def test_the_absent_rank() -> None:
    (front,) = fronts("absent")
    assert (front.group, front.number, front.op) == ("default_pg", 4, "all_reduce")
    assert (front.absent, front.waiting, front.other, front.unknown) == ((2,), (1, 3), (), (0,))


def test_nccl() -> None:
    """Two GPUs, torch 2.11: rank 1 sleeps before the fourth `all_reduce`; asked for by the pipe."""
    dumps = [flight.load((DUMPS / "nccl" / f"trace_rank_{rank}").read_bytes(), rank) for rank in (0, 1)]
    (front,) = flight.fronts(dumps)
    assert (front.group, front.number, front.op) == ("default_pg", 4, "all_reduce")
    assert (front.absent, front.waiting, front.other, front.unknown) == ((1,), (0,), (), ())
    assert str(front.frames[2]) == "step (/home/u/run/r.py:9)"


def test_another_operation() -> None:
    (front,) = fronts("order")
    assert (front.number, front.absent, front.waiting) == (4, (), (2, 3))
    assert [rank for rank, _ in front.other] == [1]
    assert "all_gather" in front.other[0][1]


def test_another_size_though_the_others_have_gone_on() -> None:
    (front,) = fronts("size")
    assert (front.number, front.absent, front.waiting) == (4, (), (2, 3))
    assert front.other == ((1, "all_reduce [[8]] ['Float']"),)


def of_entries(rank: int, *entries: tuple[str, int, str, str, str], status: int = 0) -> flight.RankDump:
    """A dump as torch writes it: group, number, operation, sizes and state of each entry in turn."""
    groups = dict.fromkeys(group for group, *_ in entries)
    plain = {
        "entries": [
            {"record_id": at, "process_group": [group, group], "collective_seq_id": number, "state": state,
             "profiling_name": f"nccl:{name}", "input_sizes": sizes, "input_dtypes": ["Float"], "frames": []}
            for at, (group, number, name, sizes, state) in enumerate(entries)
        ],
        "pg_config": {group: {"desc": group, "ranks": "[0, 1, 2]"} for group in groups},
        "pg_status": {group: {"last_completed_collective": status, "last_enqueued_collective": status}
                      for group in groups},
    }  # fmt: skip
    return flight.from_compact(flight.compact(flight.load(json.dumps(plain).encode(), rank)))


def test_two_groups_in_opposite_order() -> None:
    """Each rank has asked for both operations; torch 2.11 says `scheduled` of either."""
    actor, critic = ((name, 3, "all_reduce", "[[8]]", "scheduled") for name in ("actor", "critic"))
    (front, _) = flight.fronts(
        of_entries(rank, *((critic, actor) if rank == 2 else (actor, critic)), status=2) for rank in range(3)
    )
    assert (front.group, front.waiting, front.absent) == ("actor", (0, 1), ())
    assert front.other == ((2, "all_reduce of group critic, before it"),)
    same = flight.fronts(of_entries(rank, actor, critic, status=2) for rank in range(3))
    assert not any(front.other for front in same)


def test_gathers_of_one_tensor_have_one_size() -> None:
    """`all_gather_into_tensor` wants it; of a `gather` the side that gives nothing has another by right."""
    for name, others in (("_all_gather_base", [1]), ("gather", [])):
        (front,) = flight.fronts(
            of_entries(rank, ("g", 1, name, f"[[{8 + 8 * (rank == 1)}]]", "scheduled")) for rank in range(3)
        )
        assert [rank for rank, _ in front.other] == others


def test_status_that_lags_behind_the_entries() -> None:
    """As of two H200 whose rank 1 stood in `send`: its status named the third of five that had ended."""
    done = [("g", number, "all_reduce", "[[1]]", "completed") for number in range(1, 6)]
    last = ("g", 6, "all_reduce", "[[1]]", "scheduled")
    (front,) = flight.fronts(
        of_entries(rank, *done, *([] if rank == 1 else [last]), status=3) for rank in range(3)
    )
    assert (front.number, front.absent, front.waiting) == (6, (1,), (0, 2))


class Payload:
    def __reduce__(self) -> tuple[object, tuple[str]]:
        return (Path.touch, ("never",))


HOLDS_ITSELF: list[object] = []
HOLDS_ITSELF.append(HOLDS_ITSELF)


@pytest.mark.parametrize(
    "data",
    [
        pickle.dumps(Payload()),
        b"",
        b"\x80\x04",
        b"{",
        pickle.dumps([1]),
        b"[]",
        b'{"entries": [{"collective_seq_id": Infinity}]}',
        b'{"entries": ' + b"[" * 100_000,
        b"\x80\x05\x96" + (1 << 35).to_bytes(8, "little") + b".",  # a bytearray of 32 GiB
    ],
)
def test_a_pickle_is_never_executed(data: bytes) -> None:
    with pytest.raises(flight.DumpError):
        flight.load(data, 0)


def test_no_memory_is_taken_for_bytes_that_are_not_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ten bytes that name a high place of the memo cost the unpickler in C 2 GiB and more."""
    with pytest.raises(flight.DumpError, match="neither"):
        flight.load(b"\x80\x02}r" + (2**32 - 1).to_bytes(4, "little") + b".", 0)
    with (tmp_path / "trace_rank_0").open("wb") as file:
        file.truncate(1 << 40)
    with pytest.raises(flight.DumpError, match="more than 64 MiB"):
        flight.read(tmp_path / "trace_rank_0", 0)
    monkeypatch.setattr(flight, "MAX_PARTS", 100_000)
    part: list[object] = ["x"]
    for _ in range(40):
        part = [part, part]
    for sizes in (part, HOLDS_ITSELF):
        with pytest.raises(flight.DumpError, match="more than 100000 parts"):
            flight.load(pickle.dumps({"entries": [{"input_sizes": sizes}]}), 0)


def test_all_have_ended_the_last_operation() -> None:
    data = pickle.loads((DUMPS / "absent" / "trace_rank_2").read_bytes())  # this rank has ended all
    dumps = [flight.load(pickle.dumps(data), rank) for rank in range(4)]
    assert flight.fronts(dumps) == []


def _line(rank: int, enqueued: int, completed: int) -> str:
    return (
        f"[rank{rank}]:[E ProcessGroupNCCL.cpp:1895] [PG ID 0 PG GUID 0(default_pg) Rank {rank}]  failure"
        " detected by watchdog at work sequence id: 7221 PG status: last enqueued work:"
        f" {enqueued}, last completed work: {completed}"
    )


def test_the_watchdogs_of_all_ranks() -> None:
    work = (
        "[Rank 0] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=7221, OpType=ALLREDUCE,"
        " NumelIn=1, NumelOut=1, Timeout(ms)=600000)"
    )
    (front,) = flight.from_watchdog([work, _line(0, 7236, 7220), _line(1, 7220, 7220)])
    assert (front.group, front.number, front.op) == ("default_pg", 7221, "ALLREDUCE NumelIn=1")
    assert (front.waiting, front.absent) == ((0,), (1,))
    assert flight.from_watchdog(["last enqueued work: x"]) == []


def test_what_a_node_sends_tells_the_same() -> None:
    dumps = [flight.load((DUMPS / "size" / f"trace_rank_{rank}").read_bytes(), rank) for rank in (1, 2, 3)]
    sent = [flight.from_compact(json.loads(json.dumps(flight.compact(dump)))) for dump in dumps]
    (front,) = flight.fronts(sent)
    assert front.other == ((1, "all_reduce [[8]] ['Float']"),)
    assert [str(frame) for frame in front.others_frames][:1] == ["step (/home/u/run/rank.py:20)"]


def test_a_dump_of_another_world_says_nothing() -> None:
    """An engine's rank 2, say, whose group has other members."""
    dumps = [flight.load((DUMPS / "size" / f"trace_rank_{rank}").read_bytes(), rank) for rank in (1, 3)]
    other = flight.load((DUMPS / "nccl" / "trace_rank_1").read_bytes(), 2)
    (front,) = flight.fronts([*dumps, other])
    assert front.unknown == (0, 2)
    assert front.absent == ()


@pytest.mark.parametrize(
    ("case", "absent", "other"),
    [
        ("skip", (1,), ()),
        ("order", (), ((1, "all_gather  ['Float']"),)),
        ("size", (), ((1, "all_reduce [[1048576]] ['Float']"),)),
    ],
)
def test_four_ranks_with_nccl(case: str, absent: tuple[int, ...], other: tuple[tuple[int, str], ...]) -> None:
    """torch 2.11 on four H200. Where another operation was called, rank 0 holds its own for completed."""
    files = sorted((DUMPS / "nccl4" / case).glob("trace_rank_*"))
    (front,) = flight.fronts(flight.read(path, int(path.name[-1])) for path in files)
    assert (front.number, front.waiting, front.absent, front.other) == (4, (0, 2, 3), absent, other)


WATCHDOG = """
[rank0]:[E1129 23:54:42.487012923 ProcessGroupNCCL.cpp:2303] [PG ID 0 PG GUID 0(default_pg) Rank 0]  \
failure detected by watchdog at work sequence id: 4 PG status: last enqueued work: 4, last completed work: 3
[rank1]:[E1129 23:54:47.867763310 ProcessGroupNCCL.cpp:1914] [PG ID 0 PG GUID 0(default_pg) Rank 1] \
Received a dump signal due to a collective timeout from  rank 2 and we will try our best to dump the debug \
info. Last enqueued NCCL work: 3, last completed NCCL work: 3.This is most likely caused by incorrect usages
"""


def test_the_watchdog_of_a_rank_that_only_gets_the_signal() -> None:
    """torch 2.11: such a rank writes `Last enqueued`, with a capital letter; it is the one that is absent."""
    (front,) = flight.from_watchdog(WATCHDOG.splitlines())
    assert (front.waiting, front.absent) == ((0,), (1,))


def test_a_recorder_of_those_who_wait_alone_blames_nobody() -> None:
    """torch 2.11 on two H200: rank 1 was stopped, so that it wrote none."""
    fronts = flight.fronts([flight.read(DUMPS / "nccl2" / "stop" / "trace_rank_0", 0)])
    assert [(front.waiting, front.absent, front.other, front.unknown) for front in fronts] == [
        ((0,), (), (), (1,))
    ]
    found = explain.explain(View([], fronts=fronts))
    assert (found.kind, found.named, found.inferred) == ("collective-all", (), True)
    assert found.what == (
        "the collective `all_reduce` ([[4]] ['Float']), number 4 of group `default_pg`, which rank 0 has"
        " asked for at rank (/home/u/run/nccl_stalls.py:54), has not ended"
    )
    assert found.why == "nothing is known of rank 1"


def test_who_has_ended_an_operation_does_not_wait_for_it() -> None:
    """Rank 0 called another one in its place, and holds that for ended."""
    (front,) = flight.from_watchdog([_line(0, 4, 4), _line(1, 5, 3)])
    assert (front.number, front.waiting, front.absent) == (4, (1,), ())
