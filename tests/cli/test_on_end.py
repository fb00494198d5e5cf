"""`hooks.on_end`: told once, after the report, and never in the way of the verdict."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import signal
import threading
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from jobspec.cli.live.on_end import tell
from jobspec.cli.live.reports import verdict_of
from jobspec.runs.paths import RunPaths
from tests.kits.project_kit import Project

PROFILE = "version: 1\nname: here\nscheduler: local\nhooks:\n  on_end:\n"


def ran(project: Project, hooks: str, code: int = 0, *options: str) -> RunPaths:
    project.write("here.yaml", PROFILE + hooks)
    done = project.cli("run", "hello.yaml", "--cluster-file", "here.yaml", *options)
    assert done.code == code, done.text
    return RunPaths(next(project.root.glob("runs/hello/*")))


def log(run: RunPaths) -> str:
    return (run.root / "on_end.log").read_text()


def test_a_command_gets_the_report_once(project: Project) -> None:
    run = ran(
        project,
        "    - {command: [bash, -c, 'cat >> told.json; echo $JOBSPEC_VERDICT for $JOBSPEC_RUN_ID']}\n",
    )
    assert json.loads((run.root / "told.json").read_text()) == json.loads(
        (run.root / "report.json").read_text()
    )
    assert log(run) == f"command bash: exit 0: Pass for {run.run_id}\n"
    before = (run.root / "told.json").stat().st_size
    assert project.cli("report", run.root).code == project.cli("status").code == 0
    assert (run.root / "told.json").stat().st_size == before


def test_a_hook_that_fails_or_hangs_changes_nothing(project: Project) -> None:
    hooks = (
        "    - {command: [no-such-program]}\n    - {command: ['false']}\n"
        "    - {command: [bash, -c, 'sleep 600 & wait'], deadline: 1}\n"
        "    - {command: [bash, -c, 'echo last']}\n"
    )
    run = ran(project, hooks)
    first, *rest = log(run).splitlines()
    assert first.startswith("command no-such-program: failed: ")
    assert rest == ["command false: exit 1", "command bash: ended after 1 s", "command bash: exit 0: last"]
    assert json.loads((run.root / "report.json").read_text())["result"] == "Pass"


def test_hooks_that_a_killed_step_left_untold_are_called_by_the_next_that_sees_the_end(
    project: Project,
) -> None:
    """The second hook kills the job's last step once, as Slurm does while it waits."""
    project.write("once.sh", "mkdir killed 2>/dev/null || exit 0; kill -KILL $PPID; sleep 600\n")
    say = "{{command: [bash, -c, 'echo {0} >> told; echo {0}']}}"
    hooks = (
        f"    - {say.format('first')}\n    - {{command: [bash, {project.root}/once.sh]}}\n"
        f"    - {say.format('last')}\n"
    )
    project.write("here.yaml", PROFILE + hooks)
    done = project.process("submit", "hello.yaml", "--cluster-file", "here.yaml", "--json")
    run = RunPaths(Path(done.json["run_dir"]))
    for _ in range(600):
        if (run.root / "killed").is_dir() and not held(run.root / "on_end.log"):
            break
        threading.Event().wait(0.1)
    assert log(run) == "command bash: exit 0: first\n"
    whole = "command bash: exit 0: first\ncommand bash: exit 0\ncommand bash: exit 0: last\n"
    for _ in range(600):  # the job's own end comes after that of its last step
        assert project.cli("status").code == 0
        if log(run) == whole:
            break
        threading.Event().wait(0.1)
    assert log(run) == whole
    assert project.cli("status").code == project.cli("report", run.root).code == 0
    assert log(run) == whole
    assert (run.root / "told").read_text() == "first\nlast\n"


def test_no_hook_is_called_while_another_process_calls_them(project: Project) -> None:
    run = ran(project, "    - {command: ['true']}\n")
    (run.root / "on_end.log").write_text("")
    with (run.root / "on_end.log").open() as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        tell(run, verdict_of(run))
        assert log(run) == ""
    tell(run, verdict_of(run))
    assert log(run) == "command true: exit 0\n"


def test_a_line_that_was_cut_off_is_written_anew(project: Project) -> None:
    run = ran(project, "    - {command: [echo, \u00e9]}\n    - {command: ['true']}\n")
    (run.root / "on_end.log").write_bytes("command echo: exit 0: \u00e9\ncommand tr".encode())
    tell(run, verdict_of(run))
    assert log(run) == "command echo: exit 0: \u00e9\ncommand true: exit 0\n"


def held(path: Path) -> bool:
    with path.open() as stream, suppress(BlockingIOError):
        fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return False
    return True


def test_only_a_run_without_a_pass(project: Project) -> None:
    hook = "    - {command: ['true'], when: not_pass}\n"
    assert log(ran(project, hook)) == ""
    failed = ["--set", "train.command=[bash, -c, 'exit 3']", "--set", "name=bad", "--set", "~metrics"]
    assert project.cli("run", "hello.yaml", "--cluster-file", "here.yaml", *failed).code == 1
    assert log(RunPaths(next(project.root.glob("runs/bad/*")))) == "command true: exit 0\n"


def test_a_webhook_gets_the_verdict_and_its_url_is_not_told(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    got: list[dict[str, Any]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            got.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(204)
            self.end_headers()

        def log_message(self, format: str, *args: Any) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    url = f"http://127.0.0.1:{server.server_port}/secret-path"
    monkeypatch.setenv("HOOK_URL", url)
    run = ran(
        project, f"    - {{webhook: '{url}'}}\n    - {{webhook: $HOOK_URL}}\n    - {{webhook: $GONE_URL}}\n"
    )
    server.shutdown()
    assert log(run).splitlines() == [
        "webhook 127.0.0.1: HTTP 204",
        "webhook $HOOK_URL: HTTP 204",
        "webhook $GONE_URL: failed: $GONE_URL is not set here",
    ]
    assert [(one["name"], one["verdict"], one["run_dir"]) for one in got] == [
        ("hello", "Pass", str(run.root))
    ] * 2
    assert got[0]["text"].startswith(f"hello {run.run_id}: Pass")


def test_a_webhook_has_its_deadline_and_no_answer_tells_its_url(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = threading.Event()

    class Dripping(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.wfile.write(b"HTTP/1.1 200 OK\r\nX: ")
            with suppress(OSError):
                while not left.wait(0.2):  # each byte within the socket's own timeout
                    self.wfile.write(b"x")

        def log_message(self, format: str, *args: Any) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Dripping)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    at = f"http://127.0.0.1:{server.server_port}"
    monkeypatch.setenv("HOOK_URL", "https://127.0.0.1/secret path")
    run = ran(project, f"    - {{webhook: '{at}/x', deadline: 1}}\n    - {{webhook: $HOOK_URL}}\n")
    left.set()
    server.shutdown()
    assert log(run).splitlines() == [
        "webhook 127.0.0.1: ended after 1 s",
        "webhook $HOOK_URL: failed: InvalidURL",
    ]


def test_what_leaves_the_group_of_a_hook_is_not_waited_for(project: Project) -> None:
    project.write("stays.sh", "sleep 20\ntouch left\n")
    words = f"setsid bash {project.root}/stays.sh & echo $! > pid; wait"
    hook = f"    - {{command: [bash, -c, '{words}'], deadline: 1}}\n"
    run = ran(project, hook)
    assert not (run.root / "left").exists()
    os.killpg(int((run.root / "pid").read_text()), signal.SIGKILL)
    assert log(run) == "command bash: ended after 1 s\n"


def test_a_mail_has_the_report(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    program = project.root / "bin" / "sendmail"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\ncat > {project.root}/mail.txt\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:/usr/bin:/bin")
    run = ran(project, "    - {mail: me@example.org}\n")
    assert log(run) == "mail me@example.org: exit 0\n"
    head, _, body = (project.root / "mail.txt").read_text().partition("\n\n")
    assert head.splitlines()[0] == "To: me@example.org"
    assert head.splitlines()[1].startswith(f"Subject: hello {run.run_id}: Pass")
    assert body.strip() == (run.root / "report.txt").read_text().strip()


def test_the_job_itself_tells_when_nobody_watches(project: Project) -> None:
    project.write("here.yaml", PROFILE + "    - {command: [bash, -c, 'cat > told.json']}\n")
    done = project.process("submit", "hello.yaml", "--cluster-file", "here.yaml", "--json")
    run = RunPaths(Path(done.json["run_dir"]))
    for _ in range(600):
        if (run.root / "on_end.log").is_file() and log(run):
            break
        threading.Event().wait(0.1)
    assert log(run) == "command bash: exit 0\n"
    assert json.loads((run.root / "told.json").read_text())["result"] == "Pass"


def test_the_hooks_of_a_copied_folder_are_not_called(project: Project) -> None:
    run = ran(project, "    - {command: [bash, -c, 'echo told >> told.txt']}\n")
    copy = project.root / "elsewhere/hello" / run.run_id
    shutil.copytree(run.root, copy)
    for name in ("on_end.log", "told.txt", "report.json"):
        (copy / name).unlink()
    assert project.cli("status", "--runs", project.root / "elsewhere").code == 0
    assert project.cli("report", "--in-job", copy).code == 0
    assert (copy / "report.json").is_file()
    assert not (copy / "told.txt").exists()


@pytest.mark.parametrize(
    ("hook", "rule", "words"),
    [
        ("{}", "cluster.hook", "it gives none of its keys"),
        ("{command: [a], mail: b}", "cluster.hook", "it gives `command` and `mail`"),
        ("{webhook: ftp://x/y}", "cluster.hook", "neither an http URL nor `$NAME`"),
        ("{webhook: https://u:p@x/y}", "cluster.hook", "neither an http URL nor `$NAME`"),
        ("{webhook: 'https://x/y?key=1'}", "cluster.secret", "the webhook has a query"),
        ("{comand: [a]}", "spec.unknown-key", "did you mean `command`?"),
        ("{command: [a], deadline: 600}", "spec.range", "`600` is more than 60"),
    ],
)
def test_wrong_hooks_are_told(project: Project, hook: str, rule: str, words: str) -> None:
    project.write("here.yaml", f"{PROFILE}    - {hook}\n")
    done = project.cli("validate", "hello.yaml", "--cluster-file", "here.yaml")
    assert done.code == 2
    assert rule in done.err and words in done.err
