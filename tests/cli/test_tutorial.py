"""The tutorial: its files are written, its commands are run in their order, and what it shows is printed."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

from tests.kits.project_kit import Project

PAGE = Path(__file__).parents[2] / "docs/tutorial.md"
FILE = re.compile(r'^```\w+ title="(?P<name>[\w.]+)"\n(?P<text>.*?)^```$', re.MULTILINE | re.DOTALL)
SHOWN = re.compile(r"^```console\n(.*?)^```$", re.MULTILINE | re.DOTALL)
EXIT = re.compile(r"  # exit code (\d+)$")


def test_every_command_does_what_the_page_says(project: Project) -> None:
    page = PAGE.read_text()
    for file in FILE.finditer(page):
        (project.root / file["name"]).write_text(file["text"])
    commands = [part for block in SHOWN.findall(page) for part in block.split("$ jobspec ")[1:]]
    assert len(commands) == page.count("$ jobspec ") > 5
    for command in commands:
        line, *shown = command.splitlines()
        code = EXIT.search(line)
        done = project.process(*shlex.split(EXIT.sub("", line)))
        assert done.code == int(code[1] if code else 0), f"{line}\n{done.text}"
        plain = " ".join(done.text.split())
        assert [text for text in shown if " ".join(text.split()) not in plain] == [], f"{line}\n{done.text}"
