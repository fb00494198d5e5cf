"""Services in steps of their own, as for containers that the batch script has started; agents are real."""

from __future__ import annotations

import json
import os
import signal
import socket
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

from jobspec.plan import CommandPlan, ContainerPlan, ReadyPlan, ServicePlan
from jobspec.runtime.base import channel
from jobspec.runtime.base.identity import Identity
from jobspec.runtime.head import services
from jobspec.runtime.node import service_step
from tests.kits.agent_lab import Run, running, shell
from tests.kits.pythons import PYTHON39, needs_python39
from tests.runtime.head.test_services import ASKS, ASKS_FOR_ITS_END, TOUCH, judge, log_of, script, states

if TYPE_CHECKING:
    from jobspec.runtime.head.attempt import Attempt

OWN = ContainerPlan("bubblewrap", "/images/judge", env={"ENGINE": "own"})
HTTP = ReadyPlan("http", "/ready", timeout_s=60.0)


@contextmanager
def served(
    root: Path,
    command: CommandPlan,
    service: ServicePlan,
    of_step: Mapping[str, str] | None = None,
    of_agent: Mapping[str, str] | None = None,
    **fields: Any,
) -> Iterator[Run]:
    """A run whose service has a step of its own, of which nothing may be left."""
    service = replace(service, container=OWN)
    with running(root, command, services=(service,), **fields) as run:
        for node in service.nodes:
            run.agent(node, service=service.name, env=of_step)
        for node in range(run.plan.nodes):
            run.agent(node, env=of_agent)
        yield run
        for agent in run.agents[1:]:
            run.finish(agent)
        assert [step.wait(30) for step in run.steps] == [0] * len(run.steps)
        assert run.leftovers() == []


def no_step(root: Path, command: CommandPlan, service: ServicePlan, said: str = "") -> tuple[int, Run]:
    """A run whose batch script tells that the step has ended, where `said` is its log."""
    with running(root, command, services=(replace(service, container=OWN),)) as run:
        if said:
            folder = run.attempt / "services"
            folder.mkdir(parents=True)
            (folder / "judge.log").write_text(said)
            (folder / "judge.ended").write_text("1\n")
        run.agent()
        code, _ = run.finish()
    return code, run


@pytest.mark.parametrize("nodes", [1, 2])
def test_driver_asks_a_service_in_a_step_of_its_own(tmp_path: Path, nodes: int) -> None:
    service = judge(ready=HTTP, nodes=tuple(range(nodes)))
    with served(tmp_path, ASKS, service, nodes=nodes) as run:
        code, output = run.finish()
    assert code == 0, output
    assert "the judge says 200" in output
    assert [(name, state) for name, _, state in states(run)] == [("judge", "stopped")] * nodes
    assert '"GET /ready HTTP/1.1" 200' in log_of(run)


@needs_python39
def test_both_sides_on_the_oldest_python(tmp_path: Path) -> None:
    with running(tmp_path, ASKS, services=(replace(judge(ready=HTTP), container=OWN),)) as run:
        run.agent(service="judge", python=str(PYTHON39))
        run.agent(python=str(PYTHON39))
        code, output = run.finish()
    assert (code, [state for _, _, state in states(run)]) == (0, ["stopped"]), output


def test_service_has_its_own_image_s_variables(tmp_path: Path) -> None:
    """What the run sets for all programs comes along; what belongs to the training's image does not."""
    text = "env -0 >$JOBSPEC_RUN_DIR/env; echo key $KEY; echo up; exec sleep 300"
    service = script(text, ready=ReadyPlan("log", "^up$", timeout_s=60.0))
    secret = {"KEY": "the-judge-s-key", "PATH": os.environ["PATH"], "OF_IMAGE": "judge"}
    fields = {"env": {"LD_PRELOAD_PATH": "/training"}, "secrets": ("KEY",)}
    with served(tmp_path, shell("exit 0"), service, of_step=secret, **fields) as run:
        code, output = run.finish()
        seen = dict(row.split("=", 1) for row in (run.root / "env").read_text().split("\0") if row)
        (row,) = run.results()["services"]
    assert code == 0, output
    assert (seen["OF_IMAGE"], seen["ENGINE"], seen["PORT"]) == ("judge", "own", str(row["port"]))
    assert seen["JOBSPEC_SERVICE_JUDGE_URL"].endswith(f":{row['port']}")
    assert (seen["KEY"], seen["CUDA_VISIBLE_DEVICES"]) == ("the-judge-s-key", "")
    assert not {"LD_PRELOAD_PATH", "PYTHONPATH", "JOBSPEC_TOKEN", "JOBSPEC_AGENT_PID"} & set(seen)
    assert json.loads((run.root / "plan.json").read_text())["env"] == fields["env"]


def test_secret_in_its_log_is_replaced(tmp_path: Path) -> None:
    service = script("echo key $KEY; exec sleep 300", ready=ReadyPlan("log", "^key ", timeout_s=60.0))
    env = {"KEY": "the-judge-s-key"}
    with served(tmp_path, TOUCH, service, of_step=env, of_agent=env, secrets=("KEY",)) as run:
        code, output = run.finish()
    assert (code, log_of(run)) == (0, "key [redacted KEY]\n"), output


def test_death_is_named_with_its_last_words(tmp_path: Path) -> None:
    with served(tmp_path, ASKS_FOR_ITS_END, judge(ready=HTTP)) as run:
        code, output = run.finish()
        (found,) = run.results()["findings"]
    assert (code, states(run)[0][2]) == (3, "died"), output
    assert (found["rule"], found["what"]) == (
        "service.ended",
        "service `judge` exited with 9 while the run needed it",
    )
    assert found["why"].splitlines()[-1] == "the judge has no more words"


def test_step_that_is_killed_is_a_death_too(tmp_path: Path) -> None:
    """As by `scancel JOB.1`, or the kernel on a node without memory."""
    service = replace(judge(ready=HTTP), container=OWN)
    with running(tmp_path, shell("sleep 300"), services=(service,)) as run:
        step = run.agent(service="judge")
        run.agent()
        run.wait_event("driver", "start")
        for row in run.leftovers():
            if row.split("\0")[2:4] == ["service", "judge"] or "http.server" in row:
                os.kill(int(row.split()[0]), signal.SIGKILL)
        code, output = run.finish()
        step.wait(30)
        assert run.leftovers() == []
        (found,) = run.results()["findings"]
    assert (code, found["rule"]) == (3, "service.ended"), output
    assert "was ended by signal 9 (Killed) while the run needed it" in found["what"]


def test_service_that_ignores_sigterm_is_killed(tmp_path: Path) -> None:
    service = script("trap '' TERM; echo up; while :; do sleep 0.1; done", ready=ReadyPlan("log", "^up$"))
    with served(tmp_path, TOUCH, service) as run:
        code, output = run.finish()
    assert (code, states(run)[0][2]) == (0, "stopped"), output


def test_program_that_the_image_lacks(tmp_path: Path) -> None:
    with served(tmp_path, TOUCH, ServicePlan("judge", ("no-such-judge",))) as run:
        code, output = run.finish()
        (found,) = run.results()["findings"]
    assert (code, found["rule"]) == (3, "service.cannot-start"), output
    assert found["what"] == "service `judge` cannot start: `no-such-judge`: No such file or directory"
    assert not (run.root / "trained").exists()


def test_container_that_does_not_start_blocks_the_run(tmp_path: Path) -> None:
    code, run = no_step(tmp_path, TOUCH, judge(), said="bwrap: Can't find source path /images/judge\n")
    (found,) = run.results()["findings"]
    assert (code, found["rule"], found["severity"]) == (3, "service.container", "error")
    assert found["what"] == "the container of service `judge` did not start: its step ended with 1"
    assert found["why"] == "bwrap: Can't find source path /images/judge"
    assert not (run.root / "trained").exists()


def test_container_that_the_run_can_do_without(tmp_path: Path) -> None:
    service = judge(required=False)
    code, run = no_step(tmp_path, TOUCH, service, said="bwrap: Can't find source path /images/judge\n")
    (found,) = run.results()["findings"]
    assert (code, found["rule"], found["severity"]) == (0, "service.container", "warning")
    assert (run.root / "trained").exists()


def test_container_that_never_starts(tmp_path: Path) -> None:
    code, run = no_step(tmp_path, TOUCH, judge(ready=ReadyPlan("tcp", timeout_s=1.0)))
    (found,) = run.results()["findings"]
    assert (code, found["rule"]) == (3, "service.container")
    assert found["what"] == "the container of service `judge` has not started within 1 s"


def test_step_that_goes_before_it_starts_the_program(tmp_path: Path) -> None:
    """The program is there: what is missing is the step."""
    with running(tmp_path, TOUCH, services=(replace(judge(), container=OWN),)) as run:
        ports, token = service_step._meeting(identity(run), "judge")
        listener = channel.listen(ports)

        def leave() -> None:
            _, link = channel.accept(listener.accept()[0], token)
            link.close()

        threading.Thread(target=leave, daemon=True).start()
        run.agent()
        code, output = run.finish()
        listener.close()
        (found,) = run.results()["findings"]
    assert (code, found["rule"]) == (3, "service.container"), output
    assert "was there, and has not started its program: connection " in found["what"]
    assert "see who ended the step" in found["fix"]


def test_strangers_that_say_nothing_do_not_hold_up_the_search(monkeypatch: pytest.MonkeyPatch) -> None:
    """Their ports are asked at once: by turns each would take the time of a handshake."""
    who, service = Identity(Path("/run"), 1, 0, ("n1",), "0" * 64), replace(judge(), container=OWN)
    ports, token = service_step._meeting(who, "judge")
    listeners = [channel.listen((port,)) for port in ports]
    monkeypatch.setattr(channel, "HANDSHAKE_S", 60.0)

    def answer() -> None:
        channel.accept(listeners[-1].accept()[0], token)

    threading.Thread(target=answer, daemon=True).start()
    found: list[object] = []
    search = threading.Thread(target=lambda: found.append(service_step.find(who, service)), daemon=True)
    search.start()
    search.join(30)
    for listener in listeners:
        listener.close()
    assert found and found[0] is not None


def test_step_that_ends_after_a_short_run_is_no_fault(tmp_path: Path) -> None:
    """Between two looks the services and the driver may have come and gone."""
    (tmp_path / "services").mkdir()
    (tmp_path / "services" / "judge.ended").write_text("0\n")
    node = SimpleNamespace(paths=SimpleNamespace(attempt=tmp_path))
    attempt = SimpleNamespace(cause=None, phase="collect", node=node, stop=pytest.fail)
    services._watch(cast("Attempt", attempt), [replace(judge(), container=OWN)])


def test_service_ends_with_its_agent(tmp_path: Path) -> None:
    with served(tmp_path, shell("sleep 300"), judge(ready=HTTP)) as run:
        run.wait_event("driver", "start")
        os.kill(run.agent_pid(), signal.SIGKILL)
        run.finish()


def test_step_that_nobody_needs_leaves_at_a_signal(tmp_path: Path) -> None:
    with running(tmp_path, TOUCH, services=(replace(judge(), container=OWN),)) as run:
        step = run.agent(service="judge")
        ports, _ = service_step._meeting(identity(run), "judge")
        wait_for_listener(ports[0])
        with pytest.raises(ConnectionRefusedError):  # it waits at 127.0.0.1 alone
            socket.create_connection(("127.0.0.2", ports[0]), 5)
        step.send_signal(signal.SIGTERM)
        assert step.wait(30) == 128 + signal.SIGTERM
        assert run.leftovers() == []


def test_nobody_else_is_let_in(tmp_path: Path) -> None:
    with served(tmp_path, ASKS, judge(ready=HTTP)) as run:
        stranger = replace(identity(run), token="another")
        ports, _ = service_step._meeting(stranger, "judge")
        wait_for_listener(ports[0])
        assert service_step.find(stranger, replace(judge(), container=OWN)) is None
        code, output = run.finish()
    assert code == 0, output


def identity(run: Run) -> Identity:
    name = socket.gethostname().split(".")[0] or "localhost"
    return Identity(run.root, 1, 0, (name,), run.token)


def wait_for_listener(port: int) -> None:
    end = time.monotonic() + 60
    while time.monotonic() < end:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            return
        except OSError:
            time.sleep(0.05)
    raise AssertionError(f"nobody listens on {port}")
