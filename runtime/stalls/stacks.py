"""Stacks of processes as text: what `py-spy dump`, faulthandler, GDB and jobspec's own dumps print.

Pure functions. A line that belongs to no known form is skipped: dumps stand in the middle of logs.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field, replace
from typing import Any, Dict, Iterable, List, Mapping, Optional, Tuple

MAX_THREADS, MAX_FRAMES = 512, 256  # of one process, of one thread: a text may be anybody's
MAX_LINE = 4000  # less than the digits that Python takes for a number
MAIN = "MainThread"
TASK = "task "


@dataclass(frozen=True)
class Frame:
    """One call. Own dumps add its line of the program (`text`) and the locks that are held there."""

    function: str
    file: str
    line: int = 0
    text: str = ""
    held: Tuple[str, ...] = ()

    @property
    def place(self) -> str:
        return f"{self.file}:{self.line}" if self.line else self.file

    def __str__(self) -> str:
        return f"{self.function} ({self.place})"


@dataclass(frozen=True)
class Thread:
    """A thread and its frames, the innermost first. `busy` is None where the dump does not tell."""

    name: str
    frames: Tuple[Frame, ...] = ()
    number: int = 0
    busy: Optional[bool] = None

    @property
    def is_task(self) -> bool:
        """Whether it is a coroutine: such stand beside the threads, before them."""
        return self.name.startswith(TASK)

    @property
    def noun(self) -> str:
        return "coroutine" if self.is_task else "thread"

    @property
    def label(self) -> str:
        if self.is_task:
            return f"coroutine `{self.name[len(TASK) :]}`"
        return f"thread `{self.name}`" if self.name else f"thread {self.number:#x}"


@dataclass(frozen=True)
class Process:
    """A process of a run. Own dumps add `facts`: its state, wchan, sockets and others."""

    pid: int
    command: str = ""
    rank: str = ""
    node: str = ""
    threads: Tuple[Thread, ...] = ()
    facts: Mapping[str, Any] = field(default_factory=dict)
    source: str = ""

    @property
    def main(self) -> Optional[Thread]:
        """The main thread, else the last: dumps without names begin with the newest."""
        named = [thread for thread in self.threads if thread.name == MAIN or thread.number == self.pid]
        return next(iter(named), None) or (self.threads[-1] if self.threads else None)

    @property
    def state(self) -> str:
        return str(self.facts.get("state", ""))

    @property
    def name(self) -> str:
        """Who it is, for people."""
        node = f" on `{self.node}`" if self.node else ""
        if self.rank:
            return f"rank {self.rank}{node}" + (f", pid {self.pid}" if self.pid else "")
        of_rank = f" (started by rank {self.facts['of_rank']})" if self.facts.get("of_rank") else ""
        program = f" (`{self.program}`)" if self.program else ""
        return f"pid {self.pid}{program}{node}{of_rank}" if self.pid else self.source or "the process"

    @property
    def program(self) -> str:
        """What else than Python it is, such as `raylet` or `ray::Engine.generate`."""
        first = self.command.split(" ", 1)[0]
        name = first if first.startswith("ray::") else first.rsplit("/", 1)[-1]
        return "" if name.startswith("python") else name


_LABEL = re.compile(r"^\s*(\d+|[A-Za-z][\w.-]*): (?=Process \d|Python v\d|Thread |    |\s*$)")
_PY_SPY = re.compile(r"^Process (\d+)(?:: (.*))?$")
_PY_SPY_THREAD = re.compile(r"^Thread (0x[0-9a-fA-F]+|\d+) \(([a-z+]+)\)(?:: \"(.*)\")?\s*$")
_PY_SPY_FRAME = re.compile(r"^ {4}(\S.*?) \(([^()]+?)(?::(\d+))?\)(?:  \|(.*))?\s*$")
_FAULT_THREAD = re.compile(
    r"^(Current thread|Thread) 0x([0-9a-fA-F]+)(?: \[(.*?)\])? \(most recent call first\):"
)
_FAULT_FRAME = re.compile(r'^  File "(.*)", line (\d+|\?\?\?) in (.+)$')
_FATAL = re.compile(r"^Fatal Python error: ")
_TIMER = re.compile(r"^Timeout \(\d+:\d\d:\d\d")
_GDB_THREAD = re.compile(r'^Thread \d+ \(.*?(?:LWP (\d+)|process (\d+)).*?(?: "(.*)")?\)?:')
_GDB_FRAME = re.compile(
    r"^#\d+\s+(?:0x[0-9a-f]+ in )?([^\s(]+(?: <[^>]*>)?)\s*\(.*\)(?: at (\S+?)(?::(\d+))?| from (\S+))?\s*$"
)
# Until Python 3.12 a comprehension is a frame of its own, which nobody knows by name.
_COMPREHENSION = re.compile(r"(?<=\w)\.<locals>\.<(?:list|set|dict)comp>$|(?<=\w)\.<locals>\.<genexpr>$")
_UNNAMED = ("<listcomp>", "<setcomp>", "<dictcomp>", "<genexpr>", "<lambda>")
_RANK = re.compile(r"(?i)\brank[ _:=-]*(\d+)\b")
_FACTS = "# jobspec: "


@dataclass
class _Open:
    """A process that is being read."""

    process: Process
    threads: List[Tuple[str, int, Optional[bool], List[Frame]]] = field(default_factory=list)

    def thread(self, name: str, number: int, busy: Optional[bool]) -> None:
        if len(self.threads) < MAX_THREADS:
            self.threads.append((name, number, busy, []))

    def frame(self, frame: Frame) -> None:
        if self.threads and len(self.threads[-1][3]) < MAX_FRAMES:
            self.threads[-1][3].append(frame)

    def close(self) -> Process:
        threads = tuple(Thread(name, _named(frames), at, busy) for name, at, busy, frames in self.threads)
        return replace(self.process, threads=threads)


def _named(frames: List[Frame]) -> Tuple[Frame, ...]:
    """The frames, comprehensions and lambdas with the function of the same file that is around them."""
    found: List[Frame] = []
    for frame in reversed(frames):
        outer = found[-1] if found else None
        if frame.function in _UNNAMED and outer is not None and outer.file == frame.file:
            frame = replace(frame, function=f"{outer.function}.{frame.function}")
        found.append(frame)
    return tuple(reversed(found))


def read(text: str, source: str = "") -> List[Process]:
    """The processes whose stacks the text shows, but for a crash's (`Fatal Python error`)."""
    rank = _RANK.search(source.rsplit("/", 1)[-1])
    base = Process(0, rank=rank[1] if rank else "", source=source)
    opened: Dict[str, _Open] = {}
    done: List[_Open] = []
    crashed, facts = False, {}  # type: Tuple[bool, Dict[str, Any]]
    for raw in text.splitlines():
        label = _LABEL.match(raw)
        who, line = (label[1], raw[label.end() :]) if label else ("", raw)
        if line.startswith(_FACTS):
            facts = _facts(line[len(_FACTS) :])
            continue
        line = line[:MAX_LINE]
        begun = _PY_SPY.match(line)
        if _FATAL.match(line):
            crashed = True
        elif _TIMER.match(line):  # `dump_traceback_later`: each time anew
            crashed, opened = False, {}
        elif begun:
            given = replace(base, rank=who) if who.isdecimal() else replace(base, node=who)
            process = replace(given if who else base, pid=int(begun[1]), command=begun[2] or "")
            opened[who] = _Open(_with_facts(process, facts))
            done.append(opened[who])
            crashed, facts = False, {}
        else:
            _line(line, who, base, opened, done, crashed)
    return [process for process in (item.close() for item in done) if process.threads or process.facts]


def _line(
    line: str, who: str, base: Process, opened: Dict[str, _Open], done: List[_Open], crashed: bool
) -> None:
    """Take a line of a thread or a frame into the process that is open."""
    now = opened.get(who)
    if found := _PY_SPY_THREAD.match(line):
        if now is not None:
            number = int(found[1], 16) if found[1].startswith("0x") else int(found[1])
            now.thread(found[3] or "", number, "active" in found[2].split("+"))
    elif found := _FAULT_THREAD.match(line):
        if crashed:
            opened.pop(who, None)
            return
        if now is None or (now.process.pid == 0 and _ends(now)):
            opened[who] = now = _Open(base)
            done.append(now)
        now.thread(found[3] or (MAIN if found[1] == "Current thread" else ""), int(found[2], 16), None)
    elif found := _GDB_THREAD.match(line):
        if now is None:
            opened[who] = now = _Open(base)
            done.append(now)
        now.thread(found[3] or "", int(found[1] or found[2]), None)
    elif now is not None and now.threads:
        frame = _frame(line)
        if frame is not None:
            now.frame(frame)
        elif line.strip() == "" and now.process.pid == 0 and not now.threads[-1][3]:
            now.threads.pop()


def _ends(now: _Open) -> bool:
    """faulthandler prints the current thread last: a further one after it is another process's."""
    return any(name == MAIN for name, *_ in now.threads)


def _frame(line: str) -> Optional[Frame]:
    if found := _PY_SPY_FRAME.match(line):
        text, _, held = (found[4] or "").partition("  |held ")
        return Frame(
            _COMPREHENSION.sub("", found[1]), found[2], int(found[3] or 0), text.strip(),
            tuple(held.split(", ")) if held else (),
        )  # fmt: skip
    if found := _FAULT_FRAME.match(line):
        return Frame(found[3], found[1], int(found[2]) if found[2].isdecimal() else 0)
    if found := _GDB_FRAME.match(line):
        return Frame(found[1], found[2] or found[4] or "", int(found[3] or 0))
    return None


def _facts(text: str) -> Dict[str, Any]:
    try:
        facts = json.loads(text)
    except ValueError:
        return {}
    return facts if isinstance(facts, dict) else {}


def _with_facts(process: Process, facts: Dict[str, Any]) -> Process:
    if not facts:
        return process
    rank, node = str(facts.pop("rank", "") or process.rank), str(facts.pop("node", "") or process.node)
    return replace(process, rank=rank, node=node, facts=facts)


def write(processes: Iterable[Process]) -> str:
    """The text that `read` takes: py-spy's, with facts above each process, and lines of the program."""
    lines: List[str] = []
    for process in processes:
        facts = {"rank": process.rank, "node": process.node, **process.facts}
        lines.append(_FACTS + json.dumps(facts, sort_keys=True))
        lines.append(f"Process {process.pid}: {' '.join(process.command.split())}")
        for thread in process.threads:
            busy = "active" if thread.busy else "idle"
            lines.append(f'Thread {thread.number} ({busy}): "{thread.name}"')
            for frame in thread.frames:
                held = f"  |held {', '.join(frame.held)}" if frame.held else ""
                shown = f"  | {frame.text}" if frame.text or held else ""
                lines.append(f"    {frame}{shown}{held}")
        lines.append("")
    return "\n".join(lines)
