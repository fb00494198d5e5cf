"""The instruction file for coding assistants names only commands and options that exist."""

from __future__ import annotations

import re

from jobspec.cli.commands import command_names
from jobspec.cli.completing import build
from tests.kits.project_kit import Project


def options_of(command: str) -> set[str]:
    parser = build([command])._subparsers._group_actions[0].choices[command]  # type: ignore[union-attr,index]
    return {option for action in parser._actions for option in action.option_strings}


def test_each_command_and_option_of_the_skill_exists(project: Project) -> None:
    text = project.cli("skill").out
    calls = re.findall(r"`jobspec ([a-z]+)([^`]*)`", text)
    assert {command for command, _ in calls} >= {"validate", "explain", "triage", "judge", "report"}
    unknown = [
        f"{command} {option}"
        for command, rest in calls
        for option in [command not in command_names() and "?", *re.findall(r"--[a-z-]+", rest)]
        if option and (option == "?" or option not in options_of(command))
    ]
    assert unknown == []


def test_it_begins_as_assistants_want_it(project: Project) -> None:
    lines = project.cli("skill").out.splitlines()
    assert (lines[0], lines[1], lines[3]) == ("---", "name: jobspec", "---")
    assert lines[2].startswith("description: ")


def test_it_is_written_once(project: Project) -> None:
    file = project.root / ".claude/skills/jobspec/SKILL.md"
    assert project.cli("skill", "--out", file).code == 0
    assert file.read_text() == project.cli("skill").out
    assert project.cli("skill", "--json").json == {"text": file.read_text()}
    again = project.cli("skill", "--out", file)
    assert (again.code, "init.exists" in again.err) == (2, True)
