"""Runs RLix's driver and looks after it; its arguments are `OPTION... -- DRIVER...`.

RLix's driver admits its pipelines one after the other. It waits for the first train step of each as long as
a healthy one may take, and never looks whether the pipeline still runs. This module looks: the run ends when
the pipeline that the driver waits for has ended, died, or left its training loop. Elapsed time counts for
nothing. The module also notes the folders that RLix makes for each pipeline, which are removed after the
run, and holds the cache that RLix looks for (`cache`). Standard library, Python 3.9.
Source of the lines: rlops/rlix `nemo` f77d913, `examples/start_nemo_rl_multi_pipeline.py`.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Dict, Iterator, List, Mapping, NoReturn, Optional, Sequence, Set, Tuple

from jobspec.runtime.base import procs, signals
from jobspec.runtime.base.signals import Received
from jobspec.runtime.drivers.rlix import cache
from jobspec.runtime.drivers.rlix.cache import CacheError

POLL_S = 0.5
PLACES_S = 5.0  # how often folders of pipelines are looked for
SETTLE_S = 5.0  # from the evidence to the end: a first step may be reported at the same moment
CLOCK_S = 0.5  # between a line of the driver and our reading of it
DRAIN_S = 2.0
END_S = 5.0
ID = r"(?:ft|lora)_[0-9a-f]+"
ARMED = re.compile(rf"^pair-init barrier armed on (?P<id>{ID}) before run")
WAITING = re.compile(rf"^step-boundary admission: waiting for (?P<id>{ID}) first after_training")
REACHED = re.compile(rf"^step-boundary admission: {ID} reached first after_training")
DIED = re.compile(
    r"^step-boundary admission: wait failed \((?P<text>(?:ActorDied|RayActor)Error\b.*)\); falling"
)
FAILED = re.compile(r"^step-boundary admission: wait failed ")
ENDED = re.compile(rf"^pipeline (?P<id>{ID}) run\(\) (?:returned|raised)")
ACTOR = re.compile(r"^\((?:[^()]* )?pid=(?P<pid>\d+)(?:, ip=[\w.:-]+)?\) ?")
OF_ACTOR = re.compile(rf"^\[RLIX_(?:HOOK|PPL) (?P<id>{ID})\]")
LOOP = re.compile(r"^\W{0,4}Error in async loop: (?P<text>.*)")
COLOUR = re.compile(r"\x1b\[[0-9;]*m")
PLACE = re.compile(rf"={cache.ROOT}/(?P<id>{ID})/".encode())


@dataclass(frozen=True)
class Run:
    """A pipeline's `run()` that has ended, as Ray has recorded it. `error` is empty when it returned."""

    start: float  # seconds since the epoch
    error: str = ""
    traceback: str = ""


@dataclass(frozen=True)
class Broken:
    """Why the pipeline that is waited for will have no first train step."""

    name: str
    cause: str
    traceback: str = ""


class Admission:
    """Which pipeline the driver waits for, and what is known against it. Clocks are arguments."""

    def __init__(self, names: Sequence[str]) -> None:
        self._names = tuple(names)
        self.ids: List[str] = []
        self._began = 0.0  # when the pipeline that is waited for was started
        self.waiting = ""  # its id
        self._actors: Dict[str, str] = {}
        self._found: Optional[Tuple[float, str, str]] = None  # when, cause, traceback
        self._loop = ""

    def line(self, raw: str, now: float) -> None:
        """Take one line that the driver printed."""
        text = COLOUR.sub("", raw).rstrip("\r\n").rpartition("\r")[2]
        actor = ACTOR.match(text)
        if actor is not None:
            self._of_actor(actor["pid"], text[actor.end() :], now)
        elif match := ARMED.match(text) or WAITING.match(text) or ENDED.match(text):
            if match["id"] not in self.ids:
                self.ids.append(match["id"])
            if match.re is ARMED:
                self._began = now
            elif match.re is WAITING:
                self._wait_for(match["id"], now)
        elif died := DIED.match(text):
            self._note(now, died["text"])
        elif REACHED.match(text) or FAILED.match(text):
            self._wait_for("", now)

    def _wait_for(self, which: str, now: float) -> None:
        self._began = (self._began or now) if which else 0.0
        self.waiting, self._found, self._loop = which, None, ""

    def _of_actor(self, pid: str, body: str, now: float) -> None:
        if match := OF_ACTOR.match(body):
            self._actors[pid] = match["id"]
        elif (error := LOOP.match(body)) and self.waiting and self._actors.get(pid) == self.waiting:
            self._loop = error["text"].strip()
            self._note(now, self._loop)

    def ended(self, runs: Sequence[Run], now: float) -> None:
        """Take the runs that Ray says have ended. An earlier pipeline's began before the one waited for."""
        candidates = [run for run in runs if self.waiting and run.start >= self._began - CLOCK_S]
        if candidates:
            returned = self._loop or "its run() returned before its first train step"
            self._note(now, candidates[-1].error or returned, candidates[-1].traceback)

    def _note(self, now: float, cause: str, traceback: str = "") -> None:
        """The first evidence counts, and a traceback that comes later."""
        if self._found is None or (traceback and not self._found[2]):
            self._found = (self._found[0] if self._found else now, cause, traceback)

    def broken(self, now: float) -> Optional[Broken]:
        """What to end the run for, once it is certain."""
        if self._found is None or not self.waiting or now - self._found[0] < SETTLE_S:
            return None
        place = self.ids.index(self.waiting)
        name = self._names[place] if place < len(self._names) else self.waiting
        return Broken(name, self._found[1], self._found[2])


class Driver:
    """The driver's process, its output on its way to ours, and the question that Ray is asked."""

    def __init__(self, command: Sequence[str], names: Sequence[str], note: Path) -> None:
        """Raises: OSError when it cannot start."""
        self.admission = Admission(names)
        self._lock = threading.Lock()
        self._note, self._noted = note, set[str]()
        self._looked = 0.0
        self._probe: Optional[subprocess.Popen[bytes]] = None
        self.child = subprocess.Popen(list(command), stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        if self.child.stdout is None:
            raise ValueError("the driver has no pipe")
        self._copier = threading.Thread(
            target=self._copy, args=(self.child.stdout,), daemon=True, name="copy"
        )
        self._copier.start()

    def _copy(self, source: IO[bytes]) -> None:
        rest = b""
        while True:
            data = os.read(source.fileno(), 65536)
            if not data:
                return
            with contextlib.suppress(OSError):  # nobody reads it: the driver must go on all the same
                sys.stdout.buffer.write(data)
                sys.stdout.buffer.flush()
            *lines, rest = (rest + data).split(b"\n")
            rest = rest[-65536:]
            with self._lock:
                for line in lines:
                    self.admission.line(line.decode("utf-8", "replace"), time.time())

    def follow(self) -> int:
        """A shell's exit code, 1 when the driver was ended for a pipeline that is broken."""
        try:
            return self._follow()
        finally:
            self._stop_asking()

    def _follow(self) -> int:
        while not self._ended(POLL_S):
            self.note_places()
            self._ask_ray()
            with self._lock:
                broken = self.admission.broken(time.time())
            if broken is not None:
                return self._give_up(broken)
        self._copier.join(DRAIN_S)
        self.note_places(again=True)
        return procs.exit_status(self.child.returncode)

    def _give_up(self, broken: Broken) -> int:
        self.note_places(again=True)
        if broken.traceback:
            print(broken.traceback.rstrip("\n"))
        print(
            f"jobspec: pipeline `{broken.name}` broke before its first train step: {broken.cause}", flush=True
        )
        print("jobspec: RLix's driver would have waited for that step: the run is ended", flush=True)
        self.child.terminate()
        if not self._ended(END_S):
            self.child.kill()
        self._copier.join(DRAIN_S)
        return 1

    def _ended(self, timeout_s: float) -> bool:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.child.wait(timeout_s)
        return self.child.returncode is not None

    def note_places(self, again: bool = False) -> None:
        """Write down folders of pipelines that were not known before."""
        now = time.monotonic()
        if not again and now - self._looked < PLACES_S:
            return
        self._looked = now
        with self._lock:
            known = set(self.admission.ids)
        for name in sorted((known | set(places(os.environ))) - self._noted):
            self._noted.add(name)
            with contextlib.suppress(OSError), self._note.open("a") as file:  # then the folder stays
                file.write(name + "\n")

    def _ask_ray(self) -> None:
        """Ray is asked as long as the driver waits, by a process of its own: this one needs no Ray."""
        with self._lock:
            waiting = bool(self.admission.waiting)
        if waiting and self._probe is None:
            argv = [sys.executable, "-m", "jobspec.runtime.drivers.rlix.probe"]
            null = subprocess.DEVNULL
            self._probe = subprocess.Popen(argv, stdin=null, stdout=subprocess.PIPE, stderr=null)
            if self._probe.stdout is not None:
                threading.Thread(
                    target=self._read_probe, args=(self._probe.stdout,), daemon=True, name="probe"
                ).start()
        elif not waiting:
            self._stop_asking()

    def _stop_asking(self) -> None:
        if self._probe is not None:
            self._probe.kill()
            with contextlib.suppress(subprocess.TimeoutExpired):  # the run does not end for a slow death
                self._probe.wait(procs.KILL_S)
            self._probe = None

    def _read_probe(self, source: IO[bytes]) -> None:
        for line in source:
            try:
                runs = [Run(**row) for row in json.loads(line)["ended"]]
            except (KeyError, TypeError, ValueError):
                continue  # what the environment prints at start, or why Ray cannot be asked
            with self._lock:
                self.admission.ended(runs, time.time())


def places(env: Mapping[str, str], proc: Path = Path("/proc")) -> Iterator[str]:
    """Ids in the environments of this attempt's processes: RLix names each pipeline's folder there."""
    marks = [f"{key}={env.get(key)}".encode() for key in ("JOBSPEC_RUN_DIR", "JOBSPEC_ATTEMPT")]
    for path in proc.glob("[0-9]*/environ"):
        try:
            environment = path.read_bytes()
        except OSError:
            continue
        variables: Set[bytes] = set(environment.split(b"\0"))
        if variables.issuperset(marks):
            yield from {match["id"].decode() for match in PLACE.finditer(environment)}


def main(argv: Optional[Sequence[str]] = None, received: Optional[Received] = None) -> int:
    """A shell's exit code of the driver."""
    parser = argparse.ArgumentParser(prog="rlix_driver", allow_abbrev=False)
    parser.add_argument("--pipelines", required=True, help="names, in the order of admission")
    parser.add_argument("--note", required=True, help="file that gets the names of their folders")
    parser.add_argument("command", nargs="+")
    options = parser.parse_args(argv)
    if received is not None and not received.empty():
        return 128 + received.get()
    with contextlib.ExitStack() as stack:
        try:
            stack.enter_context(cache.held(cache.own_cache()))
        except (CacheError, OSError) as problem:
            print(f"jobspec: {problem}", file=sys.stderr, flush=True)
            return 1
        return _drive(options, received)


def _drive(options: argparse.Namespace, received: Optional[Received]) -> int:
    try:
        driver = Driver(options.command, options.pipelines.split(","), Path(options.note))
    except OSError as problem:
        print(f"jobspec: `{options.command[0]}`: {problem.strerror}", file=sys.stderr, flush=True)
        return 127 if isinstance(problem, FileNotFoundError) else 126
    if received is not None:
        threading.Thread(target=_pass_on, args=(received, driver), daemon=True, name="pass-on").start()
    return driver.follow()


def _pass_on(received: Received, driver: Driver) -> NoReturn:
    while True:
        number = received.get()
        driver.note_places(again=True)  # before the processes that name them are gone
        signals.forward(driver.child, number)


if __name__ == "__main__":
    sys.exit(main(received=signals.receive()))
