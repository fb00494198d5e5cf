"""The manual page: whole, and troff that a formatter takes."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from jobspec.cli.commands import command_names
from jobspec.reference.man import page
from tests.kits.programs_kit import needs

ROOT = Path(__file__).parents[2]
SOURCES = ("jobspec", "launchers", "runtime", "templates", "clusters", "docs", "README.md", "pyproject.toml")


def test_the_page_has_every_command_with_its_options() -> None:
    text = page().replace("\\-", "-")
    assert text.startswith('.TH JOBSPEC "1"')
    assert [name for name in command_names() if f"COMMAND \\fI\\,'jobspec {name}'" not in text] == []
    for option in ("--dry-run", "--cluster-file", "--allow", "--watch"):
        assert option in text


def test_the_page_is_fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert (ROOT / "docs/jobspec.1").read_text() == page(), "run: make man"


@needs("man", "man-db")
def test_man_finds_the_page_in_an_environment_that_has_the_wheel(tmp_path: Path) -> None:
    (tmp_path / "tree").mkdir()
    for name in SOURCES:  # setuptools leaves files beside them
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
        copy(ROOT / name, tmp_path / "tree" / name)
    build = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", "."]
    subprocess.run([*build, "./tree"], cwd=tmp_path, check=True)
    (wheel,) = tmp_path.glob("*.whl")
    (tmp_path / "venv/bin").mkdir(parents=True)  # `man` looks beside the folders of PATH
    with zipfile.ZipFile(wheel) as archive:
        (name,) = [name for name in archive.namelist() if name.endswith(".1")]
        kept = name.partition(".data/data/")[2]
        (tmp_path / "venv" / kept).parent.mkdir(parents=True)
        (tmp_path / "venv" / kept).write_bytes(archive.read(name))
    env = {"PATH": f"{tmp_path}/venv/bin:{os.environ['PATH']}"}
    found = subprocess.run(["man", "-w", "jobspec"], env=env, capture_output=True, text=True, check=True)
    assert found.stdout.strip() == f"{tmp_path}/venv/share/man/man1/jobspec.1"


@needs("groff", "groff-base")
def test_a_formatter_takes_the_page() -> None:
    command = ["groff", "-man", "-Tutf8", "-Kutf8", "-P-c", "-wmac", "-Wbreak"]
    done = subprocess.run(command, input=page(), capture_output=True, text=True, check=True)
    assert done.stderr == ""
    shown = re.sub(r".\x08", "", done.stdout)
    assert "jobspec COMMAND [OPTION…]" in shown
    assert re.search(r"^ +jobspec validate\n +every mistake in a spec", shown, re.MULTILINE)
