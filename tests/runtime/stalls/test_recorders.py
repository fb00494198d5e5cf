"""A recorder is asked by its pipe. A thread stands for torch here, its answer is a real one of two GPUs."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path

from jobspec.runtime.stalls import flight, recorders

DUMP = Path(__file__).parents[2] / "fixtures" / "stalls" / "nccl" / "trace_rank_1"


def test_only_who_reads_its_pipe_is_asked(tmp_path: Path) -> None:
    for rank in (1, 7):
        os.mkfifo(tmp_path / f"ask_rank_{rank}.pipe")
    (tmp_path / "trace_rank_7").write_bytes(DUMP.read_bytes())  # of an earlier time-out: nobody was asked
    pipe = os.open(tmp_path / "ask_rank_1.pipe", os.O_RDONLY | os.O_NONBLOCK)
    os.set_blocking(pipe, True)

    def monitor() -> None:
        while not os.read(pipe, 10):  # nobody has opened it yet
            time.sleep(0.01)
        (tmp_path / "trace_rank_1").write_bytes(DUMP.read_bytes())

    thread = threading.Thread(target=monitor)
    thread.start()
    (told,) = recorders.ask(tmp_path)
    thread.join()
    os.close(pipe)
    dump = flight.from_compact(told)
    assert dump.rank == 1
    assert (dump.groups["0"].name, dump.groups["0"].enqueued) == ("default_pg", 3)


def test_nobody_has_a_recorder(tmp_path: Path) -> None:
    assert recorders.ask(tmp_path / "none") == []
