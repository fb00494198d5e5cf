"""The Ray of a held run, kept for the runs that come to its allocation: the side of the agent that has it.

Ray stays below the held run's agent, which ends it with itself. A guest's agent on the same node, mostly in
another container, asks by a socket in the held run's folder, where no other user comes in: so the token
crosses no network and lies on no disk. What a guest leaves in Ray ends with it, as with a Ray of its own: Ray
is ended unless the guest says at its end that it is clean. A guest that was killed says nothing.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import struct
import threading
import time
from pathlib import Path
from typing import IO, Any, Callable, Dict, List, Mapping, Optional, Set, Tuple

from jobspec.runtime.base import procs

SOCKET = "ray.sock"
IDLE = "ray::IDLE"  # the title of a worker without work. Source: ray 2.60, _private/ray_constants.py
Answer = Dict[str, Any]


def of_same_user(link: socket.socket) -> bool:
    """Source: unix(7), SO_PEERCRED: pid, uid and gid of whoever made the other side."""
    told = link.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    return bool(struct.unpack("3i", told)[1] == os.geteuid())


class Keeper:
    """Offers a Ray to one guest after another."""

    def __init__(
        self, folder: Path, whose: Answer, offer: Callable[[], Answer], end: Callable[[], None]
    ) -> None:
        """`whose` goes with every answer; `offer` says what Ray was started with, `end` ends it."""
        self._path, self._whose = folder / SOCKET, whose
        self._offer, self._end = offer, end
        self._own: Set[Tuple[int, int]] = set()  # Ray's own processes: pid and start
        self._lock = threading.Lock()
        self._guest = ""
        self._gone = ""  # why Ray was ended
        self._listener: Optional[socket.socket] = None
        self._links: List[socket.socket] = []

    def note_own(self) -> None:
        """Ray is up, and no program has used it: what runs here now is Ray's own."""
        self._own = {(pid, procs.started(pid)) for pid in procs.leftovers()}

    def open(self) -> None:
        """From now on guests may come. Raises: OSError where the folder takes no socket."""
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        listener.bind(str(self._path))
        listener.listen(8)
        self._listener = listener
        threading.Thread(target=self._accept, args=(listener,), daemon=True, name="keeper").start()

    def close(self) -> None:
        """The held run ends, and Ray with it: guests hear of it first."""
        for link in (self._listener, *self._links):
            if link is not None:
                with contextlib.suppress(OSError):
                    link.shutdown(socket.SHUT_RDWR)

    def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                link, _ = listener.accept()
            except OSError:
                return
            self._links.append(link)
            threading.Thread(target=self._serve, args=(link,), daemon=True, name="guest").start()

    def _serve(self, link: socket.socket) -> None:
        """Until the guest goes; it has Ray between its `use` and its `clean`."""
        used_by = ""
        with contextlib.suppress(OSError, ValueError, KeyError), link, link.makefile("rw") as lines:
            if not of_same_user(link):
                return
            for line in lines:
                message = json.loads(line)
                if "use" in message:
                    used_by = self._lend(str(message["use"]))
                    answer: Answer = {"used": bool(used_by)}
                elif "clean" in message:
                    self._take_back(used_by)
                    used_by, answer = "", {}
                else:
                    answer = self._answer(message, bool(used_by))
                say(lines, answer)
        if used_by:
            self._spoiled(used_by)

    def _lend(self, guest: str) -> str:
        with self._lock:
            if self._guest or self._gone:
                return ""
            self._guest = guest
            return guest

    def _take_back(self, guest: str) -> None:
        with self._lock:
            if self._guest == guest:
                self._guest = ""

    def _spoiled(self, guest: str) -> None:
        with self._lock:  # the next guest waits: what is on the GPUs ends with Ray
            self._gone = f"run `{guest}` did not leave it clean, so it was ended"
            self._end()

    def _answer(self, asked: Mapping[str, Any], its_own: bool) -> Answer:
        with self._lock:
            gone = self._gone or (f"run `{self._guest}` uses it" if self._guest and not its_own else "")
        if gone:
            return {**self._whose, "gone": gone}
        unseen = [path for path in asked.get("see", ()) if not Path(path).is_dir()]
        return {
            **self._whose,
            **self._offer(),
            "unseen": unseen,
            "left": self._left(float(asked.get("wait_s", 0.0))),
        }

    def _left(self, wait_s: float) -> Dict[str, str]:
        """What runs below this agent beside Ray's own, command lines by pid; once more until it has ended.

        Its own are also the raylet's children without work: it keeps as many as it has CPUs, and gives a job
        none that another has used. Source: ray, src/ray/raylet/worker_pool.cc, `PopWorker`.
        """
        end = time.monotonic() + wait_s
        while True:
            pids = [pid for pid in procs.leftovers() if (pid, procs.started(pid)) not in self._own]
            table = procs.process_table() if pids else {}
            own = {pid for pid, since in self._own if procs.started(pid) == since}
            lines = {pid: _command_line(pid) for pid in pids if pid in table}
            left = {str(p): line for p, line in lines.items() if line != IDLE or table[p].parent not in own}
            if not left or time.monotonic() > end:
                return left
            time.sleep(0.1)


def say(lines: IO[str], message: Mapping[str, Any]) -> None:
    lines.write(json.dumps(message) + "\n")
    lines.flush()


def _command_line(pid: int) -> str:
    with contextlib.suppress(OSError):
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        return " ".join(word.decode(errors="replace") for word in words if word)
    return ""
