"""A service in a container of its own: its step's side, and what the node's agent sees of it.

The agent cannot start a container from within its own. So the batch script starts a step for the service as
the job begins, in its image, and on each of its nodes `serve` waits there for the node's agent. That sends
variables by a connection within the node, and gets output and end: for everything else the process is one of
the agent's own. When the connection ends, so does the service.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import hmac
import os
import queue
import re
import signal
import subprocess
import threading
from pathlib import Path
from typing import Dict, List, Mapping, Optional, Tuple

from jobspec.finding import Finding, error
from jobspec.plan import CommandPlan, ContainerPlan, Plan, ServicePlan
from jobspec.runtime.base import channel, signals
from jobspec.runtime.base.channel import ChannelError, Link
from jobspec.runtime.base.identity import Identity, stage_variable, without_step
from jobspec.runtime.base.log_tail import tail
from jobspec.runtime.base.procs import Child
from jobspec.runtime.node.command_run import DRAIN_S, command_line, oom_kills

LOOPBACK = "127.0.0.1"
ANSWER_S = 10.0  # for a program to start
KILL_S = 2.0
# What the agent sets for all programs. The rest of its environment belongs to its own image.
HANDED_ON = re.compile(
    r"JOBSPEC_(?!TOKEN|AGENT_PID)\w+|PORT|CUDA_VISIBLE_DEVICES|HF_HOME|HF_HUB_CACHE|HF_HUB_OFFLINE"
    r"|TRANSFORMERS_OFFLINE|HF_DATASETS_OFFLINE|no_proxy|NO_PROXY"
)


def _meeting(who: Identity, name: str) -> Tuple[Tuple[int, ...], str]:
    """The ports of this node where service and agent meet, and the token that both prove."""
    key = f"service|{name}|{who.name}"
    token = hmac.new(who.token.encode(), f"jobspec/1|{key}".encode(), hashlib.sha256).hexdigest()
    return channel.candidate_ports(f"{key}|{who.key}"), token


# The side of the step, in the service's container.


def serve(plan: Plan, who: Identity, env: Mapping[str, str], name: str) -> int:
    """Wait for this node's agent, and run the service for it; the exit status of the step's task.

    Raises: OSError when no port is free to wait at.
    """
    service = next(service for service in plan.services if service.name == name)
    received, met = signals.receive(), threading.Event()

    def leave() -> None:
        while True:  # once the agent is here, it says when to end: it gets the signals of the job, too
            number = received.get()
            if not met.is_set():
                os._exit(128 + number)

    threading.Thread(target=leave, daemon=True, name="signals").start()
    ports, token = _meeting(who, name)
    listener = channel.listen(ports, LOOPBACK)
    while True:
        asker, _ = listener.accept()
        try:
            _, link = channel.accept(asker, token)
            break
        except ChannelError:
            asker.close()
    met.set()
    listener.close()
    with contextlib.suppress(ChannelError):  # the agent is gone: nobody wants to know
        _run(link, service, _own_environment(plan, service, env))
    return 0


def _own_environment(plan: Plan, service: ServicePlan, env: Mapping[str, str]) -> Dict[str, str]:
    hidden = {"JOBSPEC_TOKEN", *plan.stage_secrets} - {*plan.secrets}
    of_image = {key: value for key, value in without_step(env).items() if key not in hidden}
    return {**of_image, **(service.container.env if service.container is not None else {})}


def _run(link: Link, service: ServicePlan, env: Mapping[str, str]) -> None:
    """Raises: ChannelError when the agent is gone; nothing of the service is left then."""
    link.patience(None)  # within one node a connection ends with either side, and only then
    order, kills = link.receive(), oom_kills()
    argv = command_line(CommandPlan(service.name, service.argv, service.shell))
    try:
        child = Child(argv, {**env, **order["env"]}, None, subprocess.PIPE)
    except OSError as problem:
        link.send({"refused": [problem.errno, problem.strerror, problem.filename]})
        return
    try:
        link.send({"started": 1})
        threading.Thread(target=_obey, args=(link, child), daemon=True, name="orders").start()
        copier = threading.Thread(target=_copy, args=(link, child), daemon=True, name="output")
        copier.start()
        code = child.wait()
        copier.join(DRAIN_S)
        child.terminate(0.5)
        copier.join(DRAIN_S)
        link.send({"ended": code, "out_of_memory": oom_kills() > kills})
    finally:
        child.terminate(0.0)
        link.close()


def _copy(link: Link, child: Child) -> None:
    source = child.output.fileno()
    with contextlib.suppress(ChannelError):
        while data := os.read(source, 65536):
            link.send({"out": base64.b64encode(data).decode()})


def _obey(link: Link, child: Child) -> None:
    """End the service as the agent asks, and where it is gone."""
    with contextlib.suppress(ChannelError):
        while True:
            child.terminate(float(link.receive()["end"]))
    child.terminate(KILL_S)


# The side of the agent, in the training's container.


def find(who: Identity, service: ServicePlan) -> Optional[Link]:
    """The connection to the service's step on this node; None while it does not wait there."""
    ports, token = _meeting(who, service.name)
    answers: "queue.SimpleQueue[Optional[Link]]" = queue.SimpleQueue()

    def ask(port: int) -> None:
        link = None
        with contextlib.suppress(OSError, ChannelError):
            link = channel.connect(LOOPBACK, port, token, channel.Hello(who.index, who.name))
        answers.put(link)

    for port in ports:  # at once: a stranger that says nothing takes the time of a whole handshake
        threading.Thread(target=ask, args=(port,), daemon=True, name="ask").start()
    return next((link for link in (answers.get() for _ in ports) if link is not None), None)


def handed_on(plan: Plan, env: Mapping[str, str]) -> Dict[str, str]:
    """What a service in another image gets of the programs' environment. Pure."""
    staged = {stage_variable(item) for item in plan.stage}
    return {key: value for key, value in env.items() if key in staged or HANDED_ON.fullmatch(key)}


class StepProcess:
    """The service as a `Child` is: to read its output, to wait for it, to end it."""

    def __init__(self, link: Link, env: Mapping[str, str]) -> None:
        """Raises: OSError when the program cannot start, ChannelError when its step has gone."""
        self._link = link
        link.patience(ANSWER_S)
        link.send({"env": env})
        answer = link.receive()
        link.patience(None)
        if "refused" in answer:
            raise OSError(*answer["refused"])
        reader, writer = os.pipe()
        self.output = os.fdopen(reader, "rb", buffering=0)
        self._code: Optional[int] = None
        self.out_of_memory = False
        self._over = threading.Event()
        threading.Thread(target=self._read, args=(writer,), daemon=True, name="step").start()

    def _read(self, writer: int) -> None:
        code = -signal.SIGKILL  # the step was ended with all that it ran
        with os.fdopen(writer, "wb") as output, contextlib.suppress(ChannelError):
            while "ended" not in (message := self._link.receive()):
                output.write(base64.b64decode(message["out"]))
                output.flush()
            code, self.out_of_memory = int(message["ended"] or 0), bool(message["out_of_memory"])
        self._code = code
        self._over.set()

    def running(self) -> bool:
        return not self._over.is_set()

    def wait(self, timeout_s: Optional[float] = None) -> Optional[int]:
        """As `Child.wait`."""
        return self._code if self._over.wait(timeout_s) else None

    def members(self) -> List[int]:
        """None of its processes is below the agent."""
        return []

    def terminate(self, grace_s: float) -> None:
        """As `Child.terminate`; the step ends with the connection, whatever it does."""
        with contextlib.suppress(ChannelError):
            if self.running():
                self._link.send({"end": grace_s})
        self._over.wait(grace_s + KILL_S)
        self._link.close()
        self._over.wait(KILL_S)


# What the batch script tells of the step. The head's node runs both, and so sees it at once.


def log(attempt: Path, service: ServicePlan) -> Path:
    return attempt / "services" / f"{service.name}.log"


def ended(attempt: Path, service: ServicePlan) -> Optional[Finding]:
    """That the step has ended before it ran the service: mostly its container did not start."""
    try:
        status = (attempt / "services" / f"{service.name}.ended").read_text(encoding="ascii").strip()
    except OSError:
        return None
    if not status:
        return None
    return _no_container(attempt, service, f"did not start: its step ended with {status}", _image(service))


def late(attempt: Path, service: ServicePlan) -> Finding:
    how = f"has not started within {service.ready.timeout_s:.0f} s"
    fix = f"{_image(service)}; raise `ready.timeout` where it takes longer to fetch"
    return _no_container(attempt, service, how, fix)


def gone(attempt: Path, service: ServicePlan, problem: ChannelError) -> Finding:
    """That the step was there, and has not started the service's program."""
    fix = "see who ended the step, such as `scancel`, or the kernel for want of memory"
    return _no_container(attempt, service, f"was there, and has not started its program: {problem}", fix)


def _image(service: ServicePlan) -> str:
    container = service.container or ContainerPlan()
    return f"see that the image `{container.image}` is there, and has `{container.python}` 3.9 or newer"


def _no_container(attempt: Path, service: ServicePlan, how: str, fix: str) -> Finding:
    said = tail(log(attempt, service)) or "its step has said nothing"
    what, where = f"the container of service `{service.name}` {how}", f"services/{service.name}.log"
    return error("service.container", what, said, fix, file=where)
