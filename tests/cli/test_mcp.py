"""The server for assistants, asked by the real client of the `mcp` package over pipes."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from jobspec.cli.commands import mcp_tools
from tests.kits.programs_kit import IN_CI
from tests.kits.project_kit import HELLO, Project

if not IN_CI:
    pytest.importorskip("mcp", reason="needs the extra `mcp`")
# At the top: `mcp` keeps the standard error that it finds at its import, which is none within a test.
from mcp import Client
from mcp.client.stdio import StdioServerParameters

TOKEN = "hf_" + "aB3dE5fG7h" * 4
TALKS = HELLO.replace(
    'echo "hello from the driver"', f"printf 'token {TOKEN} \\033[2J\\007bell\\n'; seq 1 20000; echo the end"
)
Call = tuple[str, dict[str, Any]]


def ask(project: Project, *calls: Call) -> list[tuple[bool, str]]:
    """Whether each call was refused, and its text."""

    async def talk() -> list[tuple[bool, str]]:
        async with client_of(project) as client:
            said = [await client.call_tool(name, arguments) for name, arguments in calls]
        return [(bool(one.is_error), "".join(part.text for part in one.content)) for one in said]  # type: ignore[union-attr]

    return asyncio.run(talk())


def client_of(project: Project) -> Any:
    program = StdioServerParameters(
        command=sys.executable, args=["-m", "jobspec.cli", "mcp"], cwd=project.root, env=dict(os.environ)
    )
    return Client(program)


def answers(project: Project, *calls: Call) -> list[Any]:
    said = ask(project, *calls)
    assert not any(refused for refused, _ in said), said
    return [json.loads(text) for _, text in said]


def tree(root: Path) -> dict[str, tuple[int, int]]:
    return {str(path): (path.stat().st_mtime_ns, path.stat().st_size) for path in root.rglob("*")}


def test_all_its_tools_only_read(project: Project) -> None:
    async def look() -> tuple[Sequence[Any], str | None]:
        async with client_of(project) as client:
            return (await client.list_tools()).tools, client.instructions

    tools, told = asyncio.run(look())
    assert [tool.name for tool in tools] == ["validate", "explain", "status", "report", "triage", "logs"]
    assert all(tool.annotations.read_only_hint for tool in tools)
    assert all(tool.description for tool in tools)
    assert str(project.root) in (told or "")


def test_it_answers_as_the_commands_do_and_writes_nothing(project: Project) -> None:
    project.write("talks.yaml", TALKS)
    assert project.cli("run", "talks.yaml").code == 0
    wrong = project.write("wrong.yaml", HELLO.replace("metrics:", "metrcs:"))
    run = project.last()
    for name in ("report.txt", "scheduler.json"):  # as of a run whose end nobody has looked at
        (run.root / name).unlink()
    before = tree(project.root)
    good, bad, value, one, newest, found, whole = answers(
        project,
        ("validate", {"spec": "hello.yaml"}),
        ("validate", {"spec": str(wrong)}),
        ("explain", {"spec": "hello.yaml", "key": "train.steps", "sets": ["train.steps=7"]}),
        ("status", {"run": run.run_id}),
        ("status", {}),
        ("triage", {"paths": [str(run.root)]}),
        ("report", {"run": "last", "format": "json"}),
    )
    texts = ask(project, ("report", {}), ("logs", {"lines": 1000}), ("logs", {"name": "agent"}))
    assert tree(project.root) == before
    assert good["ok"] is True
    assert [(item["rule"], item["line"]) for item in bad["findings"]] == [("spec.unknown-key", 15)]
    assert value == {"train.steps": {"value": 7, "origin": "set --set train.steps=7"}}
    assert (one["runs"][0]["state"], one["runs"][0]["run_id"]) == ("COMPLETED", run.run_id)
    assert [row["run_id"] for row in newest["runs"]] == [run.run_id]
    assert found["findings"] == []
    written = json.loads((run.root / "report.json").read_text())
    assert (whole["result"], whole["deliverables"]) == ("Pass", written["deliverables"])
    (_, report), (_, log), _ = texts
    assert "PASS" in report
    assert log.endswith("the end")
    assert len(log.splitlines()) == 1001  # with the name of the file


def test_secrets_and_control_characters_are_shown_as_such_and_answers_are_bounded(project: Project) -> None:
    project.write("talks.yaml", TALKS.replace("seq 1 20000", f"printf '%0{3 * mcp_tools.MAX_CHARS}d\\n' 0"))
    assert project.cli("run", "talks.yaml").code == 0
    (log,) = project.last().attempt(1).glob("logs/*/command*.log")
    log.write_text(f"token {TOKEN} \x07bell\n" + "x" * 900 + "\n" + ("y" * 900 + "\n") * 60)
    ((refused, text),) = ask(project, ("logs", {"lines": 1000}))
    assert not refused
    assert TOKEN not in text and "token [secret] \\x07bell" in text
    assert len(text) < mcp_tools.MAX_CHARS + 100 and "more characters are left out" in text


def test_what_cannot_be_answered_is_said_with_its_fix(project: Project) -> None:
    os.mkfifo(project.root / "pipe")
    said = ask(
        project,
        ("status", {"run": "nobody"}),
        ("report", {"format": "html"}),
        ("triage", {"paths": ["-"]}),
        ("triage", {"paths": ["pipe"]}),
        ("explain", {"spec": "hello.yaml", "key": "train.step"}),
        ("validate", {"spec": "none.yaml", "cluster": "nowhere"}),
        ("submit", {"spec": "hello.yaml"}),
    )
    assert [refused for refused, _ in said] == [True] * 5 + [False, True]
    texts = [text for _, text in said]
    assert "no run" in texts[0]
    assert "use text, summary, md or json" in texts[1]
    assert "there is no log `-`" in texts[2] and "there is no log `pipe`" in texts[3]
    assert "did you mean `train.steps`?" in texts[4]
    assert json.loads(texts[5])["ok"] is False
    assert not (project.root / "runs").exists()


def test_without_the_package_the_line_for_pip_is_told(project: Project, tmp_path: Path) -> None:
    stub = tmp_path / "stub" / "mcp"
    stub.mkdir(parents=True)
    (stub / "__init__.py").write_text("raise ImportError('No module named mcp')\n")
    done = project.process("mcp", env={"PYTHONPATH": str(stub.parent)})
    assert done.code == 2
    assert "[mcp]'" in done.err and "pip install" in done.err


@pytest.mark.parametrize("name", [tool.__name__ for tool in mcp_tools.TOOLS])
def test_each_tool_has_the_name_of_a_command(name: str) -> None:
    from jobspec.cli.commands import command_names

    assert name in command_names()


def test_of_a_run_in_progress_the_report_says_so(project: Project) -> None:
    project.write("long.yaml", HELLO.replace('echo "hello from the driver"', "sleep 300"))
    assert project.cli("submit", "long.yaml").code == 0
    (_, rows), (_, report) = ask(project, ("status", {"run": "last"}), ("report", {}))
    assert json.loads(rows)["runs"][0]["state"] == "RUNNING"
    assert report.startswith(f"run {project.last().run_id} is RUNNING: the verdict covers its files so far")
