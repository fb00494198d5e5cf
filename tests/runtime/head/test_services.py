"""Phase `services` in real agents: ready by each way, supervised, told of, and gone at the end."""

from __future__ import annotations

import os
import shlex
import signal
import socket
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from jobspec.plan import CommandPlan, GroupPlan, Plan, ReadyPlan, ServicePlan, StallPlan
from jobspec.runtime.base.identity import Identity
from jobspec.runtime.base.service_places import Place, past_proxies, share_gpus, variables, visible_gpus
from jobspec.runtime.node.services import Services
from tests.kits.agent_lab import RAY, Run, running, shell
from tests.kits.pythons import PYTHON39, needs_python39
from tests.slurm.lab import await_true

# A web server of this node: GET /ready answers 503 for `slow` seconds, any other path 200.
SERVER = """
import http.server, os, signal, sys, time
begin, slow = time.monotonic(), float(sys.argv[1])
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        late = self.path == '/ready' and time.monotonic() - begin < slow
        self.send_response(503 if late else 200)
        self.end_headers()
        self.wfile.write(str(os.getpid()).encode())
        if self.path == '/die':
            print('the judge has no more words', flush=True)
            os._exit(9)
server = http.server.HTTPServer((os.environ['JOBSPEC_SERVICE_JUDGE_HOST'], int(os.environ['PORT'])), Handler)
print('listens on', os.environ['PORT'], flush=True)
server.serve_forever()
"""
# A server of the loopback address that accepts and never answers.
HANGS = """
import os, socket, time
server = socket.create_server(("127.0.0.1", int(os.environ["PORT"])))
time.sleep(300)
"""
# One that answers for ever, a byte now and then, as none does that has its words together.
DRIPS = """
import os, socket, time
server = socket.create_server((os.environ["JOBSPEC_SERVICE_JUDGE_HOST"], int(os.environ["PORT"])))
while True:
    asker, _ = server.accept()
    try:
        for _ in range(60):
            asker.sendall(b"H")
            time.sleep(1)
    except OSError:
        pass
"""
ASK = """
import os, sys, urllib.request
print("the judge says", urllib.request.urlopen(os.environ["JOBSPEC_SERVICE_JUDGE_URL"] + sys.argv[1]).status)
"""


def ask(path: str) -> str:
    return shlex.join([sys.executable, "-c", ASK, path])


ASKS = shell(ask("/"))
ASKS_FOR_ITS_END = shell(ask("/die") + "; sleep 300")
TOUCH = shell("touch $JOBSPEC_RUN_DIR/trained")
LISTENS = ReadyPlan("log", r"^listens on \d+$", timeout_s=60.0)


def judge(slow: float = 0.0, **options: Any) -> ServicePlan:
    return ServicePlan("judge", (sys.executable, "-c", SERVER, str(slow)), **options)


def script(text: str, name: str = "judge", ready: ReadyPlan = LISTENS, **options: Any) -> ServicePlan:
    return ServicePlan(name, (text,), True, ready=ready, **options)


@contextmanager
def finished(
    root: Path, command: CommandPlan, *services: ServicePlan, **fields: Any
) -> Iterator[tuple[int, str, Run]]:
    """(exit code, output, run) of a run that has ended; nothing of it may be left."""
    with running(root, command, services=services, **fields) as run:
        for index in range(run.plan.nodes):
            run.agent(index)
        code, output = run.finish()
        for agent in run.agents[1:]:
            run.finish(agent)
        assert run.leftovers() == []
        yield code, output, run


def states(run: Run) -> list[tuple[str, str, str]]:
    return [(row["name"], row["node"], row["state"]) for row in run.results()["services"]]


def log_of(run: Run, name: str = "judge") -> str:
    return next(run.attempt.glob(f"logs/*/service-{name}.log")).read_text()


def test_pattern_that_the_run_s_python_cannot_read(tmp_path: Path) -> None:
    """As `a++`, which Python 3.11 on the login node takes and 3.9 does not."""
    with finished(tmp_path, TOUCH, judge(ready=ReadyPlan("log", "("))) as (code, output, run):
        (found,) = run.results()["findings"]
    assert (code, found["rule"]) == (3, "service.not-ready"), output
    assert "cannot read `ready.log` of service `judge`: missing )" in found["what"]


@pytest.mark.parametrize(
    "ready",
    [ReadyPlan("tcp"), ReadyPlan("http", "/ready"), ReadyPlan("log", r"^listens on \d+$")],
    ids=lambda ready: ready.kind,
)
def test_ready_service_is_there_for_the_driver(tmp_path: Path, ready: ReadyPlan) -> None:
    with finished(tmp_path, ASKS, judge(slow=0.5, ready=ready)) as (code, output, run):
        order = [(row["phase"], row["event"]) for row in run.events() if not row["node"]]
        (row,) = run.results()["services"]
        log = log_of(run)
    assert code == 0, output
    assert "the judge says 200" in output
    assert order.index(("services", "end")) < order.index(("driver", "start"))
    assert (row["state"], row["log"]) == ("stopped", f"logs/{row['node']}/service-judge.log")
    assert log.startswith(f"listens on {row['port']}\n")
    assert "listens on" not in output  # the job's log is the commands'


def test_a_start_that_hangs_blocks_the_run_with_its_node(tmp_path: Path) -> None:
    """The file system of its log does not answer; a pipe that nobody reads is opened for as long."""
    host = socket.gethostname()
    with running(tmp_path, TOUCH, services=(script("true", ready=ReadyPlan("tcp", timeout_s=1.0)),)) as run:
        log = run.attempt / "logs" / host / "service-judge.log"
        log.parent.mkdir(parents=True)
        os.mkfifo(log)
        run.agent()
        code, output = run.finish()
        (found,) = run.results()["findings"]
    assert code == 3, output
    assert (found["rule"], found["node"]) == ("services.deadline", host)


@needs_python39
def test_service_on_the_oldest_python(tmp_path: Path) -> None:
    with running(tmp_path, ASKS, services=(judge(ready=ReadyPlan("http", "/ready")),)) as run:
        run.agent(python=str(PYTHON39))
        code, output = run.finish()
        assert (code, [state for _, _, state in states(run)]) == (0, ["stopped"]), output
        assert run.leftovers() == []


def test_run_without_services_has_no_such_phase(tmp_path: Path) -> None:
    with finished(tmp_path, TOUCH) as (_, _, run):
        assert "services" not in {row["phase"] for row in run.events()}


def test_status_that_is_asked_for_is_waited_for(tmp_path: Path) -> None:
    ready = ReadyPlan("http", "/ready", timeout_s=60.0)
    with finished(tmp_path, ASKS, judge(slow=1.0, ready=ready)) as (code, _, run):
        asked = log_of(run)
    assert code == 0
    assert '"GET /ready HTTP/1.1" 503' in asked
    assert asked.index('/ready HTTP/1.1" 503') < asked.index('/ready HTTP/1.1" 200')


@pytest.mark.parametrize(
    ("ready", "missing"),
    [
        (ReadyPlan("tcp", timeout_s=1.0), "does not accept connections"),
        (ReadyPlan("http", "/health", timeout_s=1.0), "does not accept connections"),
        (ReadyPlan("log", "^ready$", timeout_s=1.0), "no line of its log matches `^ready$`"),
    ],
    ids=["tcp", "http", "log"],
)
def test_service_that_is_never_ready_blocks_the_run(tmp_path: Path, ready: ReadyPlan, missing: str) -> None:
    lazy = script("echo loading the weights; sleep 300", ready=ready)
    with finished(tmp_path, TOUCH, lazy) as (code, output, run):
        finding = run.results()["findings"][0]
        assert not (run.root / "trained").exists()
        assert states(run) == [("judge", finding["node"], "failed")]
    assert code == 3, output
    assert finding["rule"] == "service.not-ready"
    assert finding["what"].startswith("service `judge` is not ready after 1 s: ")
    assert missing in finding["what"]
    assert finding["why"] == "loading the weights"
    assert finding["file"] == f"logs/{finding['node']}/service-judge.log"


def test_another_status_is_named(tmp_path: Path) -> None:
    ready = ReadyPlan("http", "/", status=204, timeout_s=1.0)
    with finished(tmp_path, TOUCH, judge(ready=ready)) as (code, _, run):
        what = run.results()["findings"][0]["what"]
    assert code == 3
    assert what.endswith("/ answers with status 200, not 204")


def test_server_that_hangs_is_not_ready(tmp_path: Path) -> None:
    """It accepts and says nothing, as one that loads a model."""
    hangs = ServicePlan(
        "judge", (sys.executable, "-c", HANGS), ready=ReadyPlan("http", "/health", timeout_s=1.0)
    )
    with finished(tmp_path, TOUCH, hangs) as (code, _, run):
        what = run.results()["findings"][0]["what"]
    assert code == 3
    assert what.endswith("/health does not answer (timed out)")


def test_server_whose_answer_has_no_end_is_not_ready(tmp_path: Path) -> None:
    drips = ServicePlan("judge", (sys.executable, "-c", DRIPS), ready=ReadyPlan("http", "/", timeout_s=1.0))
    with finished(tmp_path, TOUCH, drips) as (code, output, run):
        assert code == 3, output
        assert "/ does not answer (HHHH" in run.results()["findings"][0]["what"]


def test_server_that_no_other_node_reaches_is_told_so(tmp_path: Path) -> None:
    hidden = ServicePlan("judge", (sys.executable, "-c", HANGS), ready=ReadyPlan("tcp", timeout_s=1.0))
    with finished(tmp_path, TOUCH, hidden, nodes=2) as (code, _, run):  # the head's address is 127.0.0.2
        what = run.results()["findings"][0]["what"]
    assert code == 3
    assert what.endswith("127.0.0.1 does: other nodes do not reach that address")


def test_service_that_ends_before_it_is_ready_blocks_the_run(tmp_path: Path) -> None:
    with finished(tmp_path, TOUCH, script("echo no such model >&2; exit 7")) as (code, _, run):
        finding = run.results()["findings"][0]
        assert not (run.root / "trained").exists()
    assert code == 3
    assert (finding["rule"], finding["why"]) == ("service.not-ready", "no such model")
    assert finding["what"] == "service `judge` exited with 7 before it was ready"


def test_service_that_leaves_for_the_background_has_ended(tmp_path: Path) -> None:
    """What it left is ended with it: nobody would watch it."""
    with finished(tmp_path, TOUCH, script("sleep 300 & exit 0")) as (code, _, run):
        what = run.results()["findings"][0]["what"]
    assert code == 3
    assert what == "service `judge` exited with 0 before it was ready"


def test_program_that_is_missing_is_named(tmp_path: Path) -> None:
    with finished(tmp_path, TOUCH, ServicePlan("judge", ("no-such-judge",))) as (code, _, run):
        finding = run.results()["findings"][0]
    assert code == 3
    assert finding["rule"] == "service.cannot-start"
    assert finding["what"] == "service `judge` cannot start: `no-such-judge`: No such file or directory"


def test_required_service_that_dies_ends_the_run(tmp_path: Path) -> None:
    with finished(tmp_path, ASKS_FOR_ITS_END, judge()) as (code, _, run):
        results = run.results()
        finding = results["findings"][0]
        (row,) = results["services"]
    assert (code, results["outcome"]) == (3, "blocked")
    assert finding["rule"] == "service.ended"
    assert finding["what"] == "service `judge` exited with 9 while the run needed it"
    assert finding["node"] == row["node"]
    assert finding["why"].splitlines()[-1] == "the judge has no more words"
    assert (row["state"], row["exit_code"]) == ("died", 9)


def test_service_that_is_gone_when_the_driver_ends_well_is_no_pass(tmp_path: Path) -> None:
    """However late its end is noticed: a program of it holds its output open."""
    gone = shell(ask("/die") + "; sleep 0.5")
    slow = script(f"sleep 300 & exec {shlex.join([sys.executable, '-c', SERVER, '0'])}")
    with finished(tmp_path, gone, slow) as (code, output, run):
        assert [state for _, _, state in states(run)] == ["died"]
        assert run.rules() == ["service.ended"]
    assert code == 3, output


def test_run_goes_on_without_a_service_that_is_not_required(tmp_path: Path) -> None:
    told = "grep -q service.ended $JOBSPEC_ATTEMPT_DIR/events.jsonl"
    command = shell(f"{ask('/die')}; until {told}; do sleep 0.1; done")
    with finished(tmp_path, command, judge(required=False)) as (code, output, run):
        results = run.results()
        assert [state for _, _, state in states(run)] == ["died"]
    assert (code, results["outcome"]) == (0, "ok"), output
    assert [(row["rule"], row["severity"]) for row in results["findings"]] == [("service.ended", "warning")]


def test_run_goes_on_where_one_that_is_not_required_is_never_ready(tmp_path: Path) -> None:
    ready = ReadyPlan("log", "never", timeout_s=0.5)
    lazy = script("sleep 300", "lazy", ready, required=False)
    with finished(tmp_path, ASKS, lazy, judge()) as (code, output, run):
        found = [(row["rule"], row["severity"]) for row in run.results()["findings"]]
        assert [(name, state) for name, _, state in states(run)] == [("lazy", "failed"), ("judge", "stopped")]
    assert code == 0, output
    assert found == [("service.not-ready", "warning")]


def test_service_that_dies_while_the_next_one_starts_is_the_cause(tmp_path: Path) -> None:
    waits = "until test -e $JOBSPEC_RUN_DIR/next; do sleep 0.1; done"
    short = script(f"echo listens on 1; {waits}; exit 5", "short")
    slow = script("touch $JOBSPEC_RUN_DIR/next; sleep 300", "slow")
    with finished(tmp_path, TOUCH, short, slow) as (code, _, run):
        results = run.results()
        assert not (run.root / "trained").exists()
    assert (code, results["first_phase_failed"]) == (3, "services")
    assert results["findings"][0]["what"] == "service `short` exited with 5 while the run needed it"


def test_later_service_asks_an_earlier_one(tmp_path: Path) -> None:
    gym = script(f"{ask('/')} && echo listens on $PORT && sleep 300", "gym")
    with finished(tmp_path, ASKS, judge(), gym) as (code, output, run):
        assert log_of(run, "gym").startswith("the judge says 200\nlistens on ")
    assert code == 0, output


def test_each_node_has_its_own_and_knows_all(tmp_path: Path) -> None:
    command = shell("echo $RANK $JOBSPEC_SERVICE_JUDGE_URL $JOBSPEC_SERVICE_JUDGE_URLS", on="all")
    with finished(tmp_path, command, judge(nodes=(0, 1)), nodes=2) as (code, output, run):
        rows = {row["node"]: row for row in run.results()["services"]}
        ips = {row["name"]: row["ip"] for row in run.results()["nodes"]}
        said = [path.read_text().split() for path in sorted(run.attempt.glob("logs/*/train-*.log"))]
    assert code == 0, output
    first, second = (f"http://{ips[node]}:{rows[node]['port']}" for node in ("127.0.0.2", "127.0.0.3"))
    assert said == [["0", first, f"{first},{second}"], ["1", second, f"{first},{second}"]]
    assert {row["state"] for row in rows.values()} == {"stopped"}


def test_service_of_another_node_is_asked_there(tmp_path: Path) -> None:
    with finished(tmp_path, ASKS, judge(nodes=(1,)), nodes=2) as (code, output, run):
        assert states(run) == [("judge", "127.0.0.3", "stopped")]
    assert code == 0, output
    assert "the judge says 200" in output


def test_service_is_asked_past_the_site_s_proxy(tmp_path: Path) -> None:
    """The proxy of this test does not exist: what asked it would fail."""
    with running(tmp_path, ASKS, services=(judge(nodes=(1,)),), nodes=2) as run:
        for index in (0, 1):
            run.agent(index, env={"http_proxy": "http://127.0.0.1:9", "no_proxy": "hub.example.org"})
        code, output = run.finish()
        run.finish(run.agents[1])
    assert code == 0, output
    assert "the judge says 200" in output


def test_node_of_a_service_that_died_is_named(tmp_path: Path) -> None:
    with finished(tmp_path, ASKS_FOR_ITS_END, judge(nodes=(1,)), nodes=2) as (code, _, run):
        finding = run.results()["findings"][0]
    assert (code, finding["rule"], finding["node"]) == (3, "service.ended", "127.0.0.3")


@pytest.mark.parametrize("required", [True, False])
def test_port_that_is_in_use_is_told_before_anything_starts(tmp_path: Path, required: bool) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        with finished(tmp_path, TOUCH, judge(port=port, required=required)) as (code, _, run):
            results = run.results()
            assert (run.root / "trained").exists() is not required
    assert code == (3 if required else 0)
    assert results["services"] == []
    (finding,) = results["findings"]
    assert finding["rule"] == "service.port-taken"
    assert finding["what"] == f"port {port} of service `judge` is in use on this node"
    assert [row["outcome"] for row in results["phases"] if row["phase"] == "preflight"] == [
        "blocked" if required else "ok"
    ]


def test_port_that_is_given_is_used(tmp_path: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with finished(tmp_path, ASKS, judge(port=port)) as (code, output, run):
        assert run.results()["services"][0]["port"] == port
    assert code == 0, output


def test_service_that_ignores_sigterm_is_gone_with_all_that_it_started(tmp_path: Path) -> None:
    deaf = script("trap '' TERM; setsid sleep 300 & sleep 300 & echo listens on 1; while :; do sleep 1; done")
    with finished(tmp_path, TOUCH, deaf) as (code, output, run):  # `finished` looks at what is left
        (row,) = run.results()["services"]
    assert code == 0, output
    assert (row["state"], row["signal"]) == ("stopped", signal.SIGKILL)


def test_flood_of_output_stops_nothing(tmp_path: Path) -> None:
    flood = f"{sys.executable} -c 'print(\"x\" * 20_000_000)'"
    noisy = script(f"{flood}; echo listens on 1; {flood}; touch $JOBSPEC_RUN_DIR/said; sleep 300")
    waits = shell("until test -e $JOBSPEC_RUN_DIR/said; do sleep 0.1; done")
    with finished(tmp_path, waits, noisy) as (code, output, run):
        log = next(run.attempt.glob("logs/*/service-judge.log"))
        assert log.stat().st_size == 40_000_000 + 2 + len("listens on 1\n")
    assert code == 0, output


def test_secrets_are_replaced_in_log_and_finding(tmp_path: Path) -> None:
    says = script("echo my key is $JUDGE_KEY; exit 1")
    with running(tmp_path, TOUCH, services=(says,), secrets=("JUDGE_KEY",)) as run:
        run.agent(env={"JUDGE_KEY": "sk-abcdef123456"})
        assert run.finish()[0] == 3
        assert log_of(run) == "my key is [redacted JUDGE_KEY]\n"
        assert run.results()["findings"][0]["why"] == "my key is [redacted JUDGE_KEY]"
        assert "sk-abcdef123456" not in (run.attempt / "events.jsonl").read_text()


def test_signal_ends_the_wait_for_a_service(tmp_path: Path) -> None:
    with running(tmp_path, TOUCH, services=(script("touch $JOBSPEC_RUN_DIR/begun; sleep 300"),)) as run:
        agent = run.agent()
        await_true(
            (run.root / "begun").exists, "the start of the service", 60
        )  # the event is from before that
        agent.send_signal(signal.SIGTERM)
        assert run.finish()[0] == 128 + signal.SIGTERM
        results = run.results()
        assert run.leftovers() == []
    assert results["outcome"] == "cancelled"
    assert [row["state"] for row in results["services"]] == ["starting"]
    assert not [row for row in results["findings"] if row["rule"].startswith("service.")]


def test_failed_command_is_the_cause_and_not_the_end_of_its_services(tmp_path: Path) -> None:
    with finished(tmp_path, shell("exit 4"), judge()) as (code, _, run):
        assert run.rules() == ["driver.exit-code"]
        assert [state for _, _, state in states(run)] == ["stopped"]
    assert code == 4


def test_nothing_is_left_where_the_head_was_killed(tmp_path: Path) -> None:
    with running(tmp_path, shell("sleep 300"), services=(judge(nodes=(0, 1)),), nodes=2) as run:
        for index in (0, 1):
            run.agent(index)
        run.wait_event("driver", "progress")
        os.kill(run.agent_pid(), signal.SIGKILL)
        assert [run.finish(agent)[0] for agent in run.agents] == [137, 1]
        assert run.leftovers() == []


def test_held_run_ends_with_its_service(tmp_path: Path) -> None:
    with running(tmp_path, TOUCH, services=(judge(),), hold=True) as run:
        run.agent()
        run.wait_event("driver", "progress", data={"what": "hold"})
        (row,) = [row["data"]["service"] for row in run.events() if row.get("data", {}).get("service")]
        urllib.request.urlopen(f"http://127.0.0.1:{row['port']}/die").close()
        assert run.finish()[0] == 3
        assert run.rules()[0] == "service.ended"


def test_stall_is_explained_as_if_no_service_stood_idle(tmp_path: Path) -> None:
    """An idle server is no second process that stands still: the driver's lock is the cause."""
    lines = ("import threading", "print('step 1', flush=True)", "lock = threading.Lock()", "lock.acquire()")
    (tmp_path / "train.py").write_text("\n".join([*lines, "lock.acquire()"]))
    command = CommandPlan("train", (sys.executable, str(tmp_path / "train.py")))
    with finished(tmp_path, command, judge(), stall=StallPlan(4, "end")) as (code, _, run):
        finding = run.results()["findings"][0]
    assert (code, finding["rule"]) == (1, "driver.stall")
    assert "waits for a lock" in finding["what"]


def test_workers_of_ray_know_the_addresses(tmp_path: Path) -> None:
    """Ray starts before the services: its environment names them already."""
    text = """
        import os, ray, urllib.request
        ray.init()
        @ray.remote
        def reward():
            return urllib.request.urlopen(os.environ["JOBSPEC_SERVICE_JUDGE_URL"]).status
        print("a worker of Ray got", ray.get(reward.remote()))
    """
    (tmp_path / "train.py").write_text("\n".join(line[8:] for line in text.splitlines()))
    command = CommandPlan("train", (sys.executable, str(tmp_path / "train.py")))
    with finished(tmp_path, command, judge(), ray=RAY, mode="ray") as (code, output, _):
        assert code == 0, output
        assert "a worker of Ray got 200" in output


# -- GPUs and addresses, pure --------------------------------------------------------------------------


def gpu_plan(*services: ServicePlan, gpus: int = 8, nodes: int = 2) -> Plan:
    return Plan("t", "command", "c", "slurm", "ray", nodes=nodes, gpus_per_node=gpus, services=services)


def test_gpus_are_split_between_driver_and_services() -> None:
    """Two GPUs on the first node, three on the second: the driver has five on each."""
    gym = ServicePlan("gym", ("g",), nodes=(1,), gpus=1)
    plan = gpu_plan(ServicePlan("judge", ("j",), nodes=(0, 1), gpus=2), gym)
    visible = visible_gpus(plan, 0, {"CUDA_VISIBLE_DEVICES": "0,1,2,3,4,5,6,7"}, 8)
    assert (plan.driver_gpus, plan.service_gpus(0), plan.service_gpus(1)) == (5, 2, 3)
    assert share_gpus(plan, 0, visible) == {"judge": ["5", "6"]}
    assert share_gpus(plan, 1, visible) == {"judge": ["5", "6"], "gym": ["7"]}


@pytest.mark.parametrize(
    ("env", "visible"),
    [({}, ["0", "1"]), ({"CUDA_VISIBLE_DEVICES": "GPU-a, GPU-b,GPU-c"}, ["GPU-a", "GPU-b"])],
)
def test_gpus_are_those_that_the_run_asked_for(env: dict[str, str], visible: list[str]) -> None:
    assert visible_gpus(gpu_plan(gpus=2), 0, env, 4) == visible


def test_driver_sees_what_services_leave(tmp_path: Path) -> None:
    plan = gpu_plan(ServicePlan("judge", ("j",), gpus=2))

    def kept(plan: Plan, node: int = 0) -> dict[str, str]:
        who = Identity(tmp_path, 1, node, ("n1", "n2"), "t")
        return Services(plan, who, tmp_path, None, print).keep_gpus({}, 8)  # type: ignore[arg-type]

    assert kept(plan) == {"CUDA_VISIBLE_DEVICES": "0,1,2,3,4,5"}
    groups = (GroupPlan("trainer", 0, 1, 8), GroupPlan("judges", 1, 1, 4))
    apart = replace(
        plan, nodes=2, groups=groups, services=(ServicePlan("judge", ("j",), nodes=(1,), gpus=4),)
    )
    assert kept(apart) == {}
    assert kept(apart, 1) == {"CUDA_VISIBLE_DEVICES": ""}
    assert kept(gpu_plan(ServicePlan("judge", ("j",)))) == {}  # nobody takes one: what Slurm set stays


def test_addresses_are_those_of_the_nearest_process() -> None:
    places = {"code-runner": [Place(1, "10.0.0.2", 9000), Place(2, "10.0.0.3", 9001)]}
    begin = "JOBSPEC_SERVICE_CODE_RUNNER"
    assert variables(places, 2) == {
        f"{begin}_HOST": "10.0.0.3",
        f"{begin}_PORT": "9001",
        f"{begin}_URL": "http://10.0.0.3:9001",
        f"{begin}_URLS": "http://10.0.0.2:9000,http://10.0.0.3:9001",
    }
    assert variables(places, 0)[f"{begin}_URL"] == "http://10.0.0.2:9000"


@pytest.mark.parametrize(
    ("env", "no_proxy"),
    [
        ({}, None),
        ({"https_proxy": "http://p:1"}, None),
        ({"http_proxy": "http://p:1"}, "10.0.0.2,10.0.0.3"),
        ({"ALL_PROXY": "socks5://p:1", "NO_PROXY": "a.example"}, "a.example,10.0.0.2,10.0.0.3"),
        ({"HTTP_PROXY": "http://p:1", "no_proxy": "*"}, "*"),
    ],
)
def test_proxies_do_not_get_what_is_asked_of_services(env: dict[str, str], no_proxy: str | None) -> None:
    places = {
        "a": [Place(0, "10.0.0.2", 9000), Place(1, "10.0.0.3", 9000)],
        "b": [Place(0, "10.0.0.2", 9001)],
    }
    named = {} if no_proxy is None else {"no_proxy": no_proxy, "NO_PROXY": no_proxy}
    assert past_proxies(places, env) == named
