"""Control characters in logs, records and names: shown in every face, and sent to no terminal and no page."""

from __future__ import annotations

import json
import os
import pty
import re
import subprocess
import sys

import pytest

from jobspec.cli.live import observe
from jobspec.finding import error, one_line, visible
from tests.kits.project_kit import Project

EVIL = "\x1b[2J\x1b]0;title\x07 bell\x07 back\x08\x08 c1 \x9b2J \x85 turn \u202e end"
SENT = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")  # all but tab and line feed
FORGED = "PASS  forged"


def evil_run(project: Project) -> str:
    """A failed run whose reason, node, finding, phase and logs hold control characters; its id."""
    project.write("bad.yaml", project.spec.read_text().replace("echo done", "exit 3; echo done"))
    project.cli("run", "bad.yaml")
    run = project.last()
    text = f"{EVIL}\n{FORGED}"
    run.scheduler.write_text(json.dumps({"state": "FAILED", "reason": text, "nodes": EVIL}))
    results = run.attempt(1) / "results.json"
    data = json.loads(results.read_text())
    data["findings"] = [{"rule": "a.b", "severity": "error", "what": text, "node": EVIL, "fix": EVIL}]
    data["phases"][0]["outcome"] = EVIL
    results.write_text(json.dumps(data))
    log = observe.log_files(run)[-1]
    log.write_text(
        f"{EVIL}\nRuntimeError: {EVIL} \x1b[31mred\x1b[0m\ntorch.OutOfMemoryError: CUDA out of memory.\n"
    )
    log.rename(log.with_name(f"a{EVIL}.log"))
    return run.run_id


def test_text() -> None:
    assert visible("a\tb\nc") == "a\tb\nc"
    assert not SENT.search("".join(visible(chr(code)) for code in range(sys.maxunicode + 1) if code != 10))
    assert visible("\x1b\x7f\x9b\u202e") == r"\x1b\u007f\u009b\u202e"
    assert one_line("a\r\nb\nc\r") == r"a b c\x0d"
    assert json.loads(visible(json.dumps("\x7f\x9b\u2066", ensure_ascii=False))) == "\x7f\x9b\u2066"
    told = error("a.b", "x\n\x1b[2Jy", node="n\nerror[c.d]").text()
    assert told.splitlines() == ["error[a.b] n error[c.d]", "  what: x", "        \\x1b[2Jy"]


def test_every_face_of_a_run(project: Project) -> None:
    name = evil_run(project)
    forms = ("text", "summary", "md", "html", "json", "junit")
    commands = [["report", name, "--format", form] for form in forms]
    commands += [["status"], ["status", name], ["status", name, "--json"], ["triage", "runs", "--all"]]
    commands += [["judge", "runs", "--framework", "command"], ["logs", name, "--list"]]
    for argv in commands:
        done = project.cli(*argv)
        assert done.code in (0, 1, 2, 3, 4), argv
        assert not SENT.findall(done.text), argv
        forged = FORGED in done.out.splitlines()
        assert not forged or argv[-1] in ("html", "junit"), argv  # there tags end a line
    assert r"\x1b[2J" in project.cli("report", name).out
    row = next(line for line in project.cli("status").out.splitlines() if line.startswith(name))
    assert FORGED in row
    files = [path for path in project.last().root.iterdir() if path.name.startswith(("report.", "junit."))]
    assert len(files) == 5
    assert not [path.name for path in files if SENT.findall(path.read_text(encoding="utf-8"))]


def test_log_in_a_pipe_is_as_it_was_written(project: Project) -> None:
    name = evil_run(project)
    done = project.process("logs", name)
    assert f"RuntimeError: {EVIL} \x1b[31mred\x1b[0m\n" in done.out


@pytest.mark.skipif(not hasattr(os, "openpty"), reason="a terminal is needed")
def test_log_on_a_terminal_keeps_its_colours_alone(project: Project) -> None:
    name = evil_run(project)
    screen, terminal = pty.openpty()
    argv = [sys.executable, "-m", "jobspec.cli", "logs", name]
    with subprocess.Popen(argv, stdout=terminal, stderr=subprocess.PIPE, cwd=project.root) as process:
        os.close(terminal)
        data = b""
        try:
            while piece := os.read(screen, 65536):
                data += piece
        except OSError:  # the other end is closed
            pass
        os.close(screen)
        assert process.wait() == 0
    text = data.decode().replace("\r\n", "\n")
    assert "\x1b[31mred\x1b[0m" in text
    assert not SENT.findall(re.sub(r"\x1b\[\d*m", "", text))
