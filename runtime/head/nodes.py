"""The nodes as the head sees them: calls and replies, arrivals and deaths.

One reader thread per connection; waiting threads share one condition. Once the run has to stop, every
wait ends at once with the cause, but for the waits that cleaning up does itself.
"""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from typing import Any, Callable, Dict, List, Mapping, NoReturn, Optional, Sequence, Tuple

from jobspec.runtime.base.channel import (
    QUIET_S,
    ChannelError,
    EndedError,
    Hello,
    Link,
    accept,
    keep_alive,
    listen,
)
from jobspec.runtime.base.identity import Identity
from jobspec.runtime.node.agent import Node, Reply

GOODBYE_S = 3.0  # for the workers to leave by themselves
ACCEPT_PAUSE_S = 0.1
DOUBT_S = 0.5
MAX_REFUSED = 20  # reported connections with a wrong token; a port scanner must not fill the log


class RunStoppedError(Exception):
    """The run stops; the cause is the coordinator's to know."""


class DeadlineError(Exception):
    """A wait took too long. `indices` are the nodes that are missing."""

    def __init__(self, indices: Sequence[int]) -> None:
        super().__init__(f"nodes {list(indices)}")
        self.indices = tuple(indices)


class Call:
    """One operation on one node. `reply` is None until it is done, or for ever on a dead node."""

    def __init__(self, index: int, operation: str) -> None:
        self.index = index
        self.operation = operation
        self.done = False
        self.reply: Optional[Reply] = None


class Nodes:
    """All nodes of the run; node 0 is this process's own `Node`."""

    def __init__(
        self,
        who: Identity,
        on_message: Callable[[int, Mapping[str, Any]], None],
        on_joined: Callable[[int, str], None],
        on_lost: Callable[[int, str], None],
        on_refused: Callable[[str, str], None],
        on_quiet: Callable[[int, float], None] = lambda index, seconds: None,
    ) -> None:
        self._who = who
        self._on_message, self._on_lost, self._on_quiet = on_message, on_lost, on_quiet
        self._on_joined, self._on_refused = on_joined, on_refused
        self._local: Optional[Node] = None
        self._links: Dict[int, Link] = {}
        self._ips: Dict[int, str] = {}  # kept when a node is lost: somebody may be about to ask
        self._lost: Dict[int, str] = {}
        self._calls: Dict[Tuple[int, int], Call] = {}
        self._next = 0
        self.changed = threading.Condition()
        self.stopped = False
        self._closing = threading.Event()
        self._listener: Optional[socket.socket] = None
        self.refused = 0

    def set_local(self, node: Node) -> None:
        self._local = node

    def listen(self, ports: Sequence[int]) -> int:
        """Begin to accept workers; the port. Raises: OSError when all candidates are taken."""
        self._listener = listen(ports)
        threading.Thread(target=self._accept_loop, args=(self._listener,), daemon=True, name="accept").start()
        return int(self._listener.getsockname()[1])

    def _accept_loop(self, listener: socket.socket) -> None:
        while True:
            try:
                sock, address = listener.accept()
            except OSError:
                if self._closing.wait(ACCEPT_PAUSE_S):
                    return  # closed by `close`
                continue  # out of descriptors for now, or the other side hung up meanwhile
            welcome = threading.Thread(
                target=self._welcome, args=(sock, str(address[0])), daemon=True, name="welcome"
            )
            try:
                welcome.start()
            except RuntimeError:  # this user has too many threads for now: the node tries again
                sock.close()

    def _welcome(self, sock: socket.socket, address: str) -> None:
        try:
            hello, link = accept(sock, self._who.token)
        except EndedError:
            sock.close()  # it only looked whether somebody listens, or has given up
            return
        except ChannelError as error:
            self.refused += 1
            if self.refused <= MAX_REFUSED:
                self._on_refused(address, str(error))
            sock.close()
            return
        with self.changed:
            known = self._register(hello, link)
            if known:  # told before any wait can end because of it
                self._on_joined(hello.index, address)
            self.changed.notify_all()
        if known:
            self._serve(hello.index, link)
        else:
            link.close()

    def _register(self, hello: Hello, link: Link) -> bool:
        expected = 0 < hello.index < len(self._who.hosts)
        if not expected or hello.index in self._links or hello.index in self._lost or self._closing.is_set():
            return False
        self._links[hello.index] = link
        self._ips[hello.index] = link.peer_ip
        return True

    def _serve(self, index: int, link: Link) -> None:
        """Read what a worker says until it is lost. However this ends, nobody waits for it any more."""
        doubt = False
        try:
            threading.Thread(
                target=keep_alive, args=(link, self._closing), daemon=True, name="heartbeat"
            ).start()
            self._read(index, link)
        except ChannelError as error:
            reason, doubt = str(error), isinstance(error, EndedError)
        except Exception as bug:  # noqa: BLE001 - told as the node's loss
            reason = f"the head failed while it read the node's messages: {type(bug).__name__}: {bug}"
        self._lose(index, reason, doubt)

    def _read(self, index: int, link: Link) -> NoReturn:
        """Raises: ChannelError at its end, and whatever taking a message raises."""
        while True:
            message = link.receive()
            if link.quiet_s >= QUIET_S:
                self._on_quiet(index, link.quiet_s)
            if "reply" in message:
                self._finish((index, int(message["id"])), message["reply"])
            elif "heartbeat" not in message:
                self._on_message(index, message)

    def _lose(self, index: int, reason: str, doubt: bool = False) -> None:
        """Note a node's death once, and its cause before any wait can end because of it.

        The first in `doubt` waits: `scancel JOB.0` kills all agents, this one a moment later, and no node
        has left.
        """
        with self.changed:  # also while it waits: srun's signal to the other tasks is no cause
            if index in self._lost:
                return
            if doubt and not self.stopped and not self._lost:
                self._closing.wait(DOUBT_S)
            self._lost[index] = reason
            link = self._links.pop(index, None)
            try:
                if not self._closing.is_set():
                    self._on_lost(index, reason)
            finally:
                for call in self._calls.values():
                    if call.index == index:
                        call.done = True
                self.changed.notify_all()
        if link is not None:
            link.close()

    def _finish(self, key: Tuple[int, int], reply: Reply) -> None:
        with self.changed:
            call = self._calls.pop(key, None)
            if call is not None:
                call.reply = reply
                call.done = True
            self.changed.notify_all()

    def wait_connected(self, deadline_s: float) -> None:
        """Return when every worker is connected. Raises: RunStoppedError, DeadlineError."""
        self.wait(lambda: self.absent() == [], deadline_s, self.absent)

    def absent(self) -> List[int]:
        """The workers that are not connected."""
        return [index for index in range(1, len(self._who.hosts)) if index not in self._links]

    def wait(
        self,
        ready: Callable[[], bool],
        deadline_s: Optional[float],
        missing: Callable[[], Sequence[int]],
        calm: bool = False,
    ) -> None:
        """Wait until `ready()`, with `calm` also while the run stops.

        Raises: RunStoppedError, DeadlineError.
        """
        end = None if deadline_s is None else time.monotonic() + deadline_s
        with self.changed:
            while not ready():
                if self.stopped and not calm:
                    raise RunStoppedError
                left = None if end is None else end - time.monotonic()
                if left is not None and left <= 0:
                    raise DeadlineError(missing())
                self.changed.wait(left)

    def stop(self) -> None:
        """Wake every wait."""
        with self.changed:
            self.stopped = True
            self.changed.notify_all()

    def alive(self) -> List[int]:
        return [0, *sorted(self._links)]

    def local_ip(self) -> str:
        """This node's address as the workers reach it; loopback when there are none."""
        with self.changed:
            ips = [link.local_ip for link in self._links.values()]
        return max(set(ips), key=ips.count) if ips else "127.0.0.1"

    def ip(self, index: int) -> str:
        """The address that a node connects from."""
        return self._ips[index] if index else self.local_ip()

    def call(self, index: int, operation: str, arguments: Optional[Mapping[str, Any]] = None) -> Call:
        """Start an operation on a node; a dead node's call is done at once, without a reply."""
        call = Call(index, operation)
        with self.changed:
            self._next += 1
            number = self._next
            self._calls[(index, number)] = call
            link = self._links.get(index)
        if index == 0:
            target = self._run_local
            threading.Thread(
                target=target, args=(number, operation, arguments or {}), daemon=True, name=operation
            ).start()
            return call
        try:
            if link is None:
                call.done = True
            else:
                link.send({"id": number, "operation": operation, "arguments": dict(arguments or {})})
        except ChannelError as error:
            self._lose(index, str(error))
        return call

    def _run_local(self, number: int, operation: str, arguments: Mapping[str, Any]) -> None:
        if self._local is None:
            raise ValueError("the head's own node is not set")
        self._finish((0, number), self._local.handle(operation, arguments))

    def call_all(self, operation: str, arguments: Optional[Mapping[str, Any]] = None) -> List[Call]:
        return [self.call(index, operation, arguments) for index in self.alive()]

    def gather(
        self,
        calls: Sequence[Call],
        deadline_s: Optional[float] = None,
        *,
        calm: bool = False,
        enough: Callable[[Call], bool] = lambda _call: False,
    ) -> None:
        """Wait until all calls are done, or one is `enough`. Raises: RunStoppedError, DeadlineError."""

        def ready() -> bool:
            return all(call.done for call in calls) or any(call.done and enough(call) for call in calls)

        self.wait(ready, deadline_s, lambda: [call.index for call in calls if not call.done], calm)

    def settle(self, calls: Sequence[Call], deadline_s: float) -> List[int]:
        """`gather` for cleaning up: never raises; the nodes that did not answer."""
        try:
            self.gather(calls, deadline_s, calm=True)
        except DeadlineError as missed:
            return list(missed.indices)
        return []

    def close(self, exit_code: int) -> None:
        """Send every worker home, and see them go: srun ends all tasks when the head's has failed."""
        self._closing.set()
        for link in list(self._links.values()):
            with contextlib.suppress(ChannelError):
                link.send({"bye": exit_code})
        with self.changed:
            self.changed.wait_for(lambda: not self._links, GOODBYE_S)
        if self._listener is not None:
            self._listener.close()
