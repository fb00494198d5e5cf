"""One step from a process that waits to whoever could end that, and the words for it."""

from __future__ import annotations

from typing import NamedTuple

from jobspec.runtime.stalls import waits
from jobspec.runtime.stalls.stacks import Process

AT_PTY = "/dev/ptmx"  # at its other end may be any child
CONNECTED = "it has a connection with"
OF_MANY = ("poll", "ppoll", "select", "pselect", "epoll")


class Hop(NamedTuple):
    """Whom a process waits for. Without `shown` it is the likeliest one alone; `lead` says what it has to do
    with that wait."""

    to: Process
    shown: bool
    lead: str = ""


def lead(call: str, *, many: bool = False, elsewhere: bool = False) -> str:
    """What the kernel's word on who could end that call means."""
    if call.startswith("wait"):
        return "its children are" if many else "that is"
    if call.startswith(("flock", "fcntl")):
        return "the locked file is open in" if many else "the lock is held by"
    if "nanosleep" in call:
        return "a file that it has open is locked by"
    if call.startswith("epoll") or AT_PTY in call:
        return "it has started"
    if call.startswith(OF_MANY):
        return "pipes that it reads are open in" if many else "a pipe that it reads is open in"
    return "the other end is open in" if many or elsewhere else "the other end is"


def call_of(process: Process) -> str:
    """The system call of the thread that tells what the process waits for."""
    thread = waits.of(process).thread
    return str(process.facts.get("calls", {}).get(str(thread.number), "")) if thread else ""
