"""Stalls of NCCL: what RAS, torch's watchdog with its analyser, Ray Train's detector and jobspec say.

    python benchmarks/nccl_stalls.py [--out FOLDER]        # on a machine with two GPUs or more

One process a GPU; rank 1 skips a collective, calls another one or with another size, is stopped, or is
killed, while the others wait. RAS is asked after 8 s. The group's time limit is 40 s (the last two: 100 s);
then the watchdog writes its dumps, which `torch.distributed.flight_recorder` and jobspec's reader read.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

MODES = ("none", "skip", "order", "size", "stop", "kill")
LIMIT_S, LONG_S, LOOK_S = 40, 100, 8
RAS_PORT, STORE_PORT = 28100, 29500


def rank(mode: str) -> None:
    """One rank: three steps, then the fault."""
    from datetime import timedelta

    import torch
    import torch.distributed as dist

    number, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    torch.cuda.set_device(number)
    dist.init_process_group(
        "nccl", timeout=timedelta(seconds=LONG_S if mode in ("stop", "kill") else LIMIT_S)
    )
    data = torch.ones(4, device="cuda")
    for _ in range(3):
        dist.all_reduce(data)
    torch.cuda.synchronize()
    Path(os.environ["STALL_FOLDER"], f"up{number}").touch()
    if mode == "none":
        time.sleep(900)
    if number == 1:
        _fault(mode, data, world)
    dist.all_reduce(data)
    torch.cuda.synchronize()
    time.sleep(900)


def _fault(mode: str, data: Any, world: int) -> None:
    import torch
    import torch.distributed as dist

    if mode == "order":
        dist.all_gather([torch.ones(4, device="cuda") for _ in range(world)], data)
    elif mode == "size":
        dist.all_reduce(torch.ones(1 << 20, device="cuda"))
    elif mode in ("stop", "kill"):
        os.kill(os.getpid(), signal.SIGSTOP if mode == "stop" else signal.SIGKILL)
    else:
        time.sleep(900)


def play(mode: str, number: int, world: int, out: Path) -> str:
    """What each tool says of one stall."""
    from jobspec.runtime.stalls import ras

    folder = out / mode
    folder.mkdir(parents=True)
    address = f"localhost:{RAS_PORT + number}"
    env = {
        **os.environ, "WORLD_SIZE": str(world), "MASTER_ADDR": "127.0.0.1", "STALL_FOLDER": str(folder),
        "MASTER_PORT": str(STORE_PORT + number), "NCCL_RAS_ADDR": address, "TORCH_NCCL_DUMP_ON_TIMEOUT": "1",
        "TORCH_FR_BUFFER_SIZE": "2000", "TORCH_FR_DUMP_TEMP_FILE": f"{folder}/trace_rank_",
        "TORCH_NCCL_DEBUG_INFO_TEMP_FILE": f"{folder}/trace_rank_",
    }  # fmt: skip
    argv = [sys.executable, __file__, "--rank", mode]
    ranks = []
    for at in range(world):
        with (folder / f"rank{at}.log").open("w") as log:
            ranks.append(subprocess.Popen(argv, env={**env, "RANK": str(at)}, stderr=log))
    try:
        end = time.monotonic() + 150
        while len(list(folder.glob("up*"))) < world and time.monotonic() < end:
            time.sleep(0.3)
        time.sleep(LOOK_S)
        text = ras.ask({"NCCL_RAS_ADDR": address})
        (folder / "ras.txt").write_text(text)
        (folder / "ras.json").write_text(_ras_json(RAS_PORT + number))
        end = time.monotonic() + (LONG_S + 80 if mode != "none" else 0)
        while time.monotonic() < end and any(one.poll() is None for at, one in enumerate(ranks) if at != 1):
            time.sleep(0.5)
    finally:
        for one in ranks:
            one.kill()
    return "\n".join([f"## {mode}", *(f"{name}: {said}" for name, said in _said(folder).items()), ""])


def _ras_json(port: int) -> str:
    """RAS's status as Ray Train asks for it."""
    with suppress(OSError), socket.create_connection(("localhost", port), 3) as link:
        link.settimeout(30)
        for line in (b"CLIENT PROTOCOL 2\n", b"SET FORMAT json\n"):
            link.sendall(line)
            link.recv(128)
        link.sendall(b"VERBOSE STATUS\n")
        return b"".join(iter(lambda: link.recv(65536), b"")).decode()
    return ""


def _said(folder: Path) -> dict[str, str]:
    from jobspec.runtime.stalls import explain, flight, ras

    files = sorted(folder.glob("trace_rank_*"))
    argv = [
        sys.executable,
        "-m",
        "torch.distributed.flight_recorder.fr_trace",
        str(folder),
        "-p",
        "trace_rank_",
    ]
    analysed = subprocess.run(
        [*argv, "--allow-incomplete-ranks"], capture_output=True, text=True, check=False
    )
    fronts = flight.fronts(flight.read(path, int(path.name.rpartition("_")[2])) for path in files)
    watchdog = [line for log in folder.glob("rank*.log") for line in log.read_text().splitlines()]
    last = flight.from_watchdog(watchdog)
    return {
        "RAS": "; ".join(map(str, ras.read((folder / "ras.txt").read_text()))) or "no complaint",
        "jobspec, recorders": "; ".join(explain.of_front(one).what for one in fronts) or "nothing",
        "jobspec, watchdog's lines": "; ".join(explain.of_front(one).what for one in last) or "nothing",
        "torch's analyser": (analysed.stdout + analysed.stderr).strip().replace("\n", " | ")[:900],
        "Ray Train's detector": _ray((folder / "ras.json").read_text()),
    }


def _ray(text: str) -> str:
    if importlib.util.find_spec("ray") is None:
        return "no Ray here: keep ras.json"
    from ray.train.v2._internal.callbacks.nccl_ras import parse_ras_schema

    report = parse_ras_schema(text)
    if report is None:
        return "cannot be read"
    return "healthy" if report.healthy else f"suspect: {report.mismatched_comms}"


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path)
    parser.add_argument("--rank", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.rank:
        rank(args.rank)
        return 0
    import torch

    world = torch.cuda.device_count()
    out = args.out or Path(tempfile.mkdtemp(prefix="nccl-"))
    with ThreadPoolExecutor(len(MODES)) as pool:
        for text in pool.map(lambda row: play(row[1], row[0], world, out), enumerate(MODES)):
            print(text, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
