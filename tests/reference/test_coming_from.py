"""The page for users of other launchers names only keys and commands of jobspec that exist."""

from __future__ import annotations

import re
from pathlib import Path

from jobspec.cli.commands import command_names
from jobspec.spec.schema import first_unknown, root_shape

PAGE = Path(__file__).parents[2] / "docs/coming_from.md"
KEY = re.compile(r"[a-z_]+(?:\.[a-z_]+)+")


def cells() -> list[str]:
    """The right column of every table."""
    rows = [line.split(" | ", 1)[1] for line in PAGE.read_text("utf-8").splitlines() if line.startswith("| ")]
    return [row.removesuffix(" |") for row in rows if row != "jobspec |"]


def test_keys_exist_in_spec_or_profile() -> None:
    named = {key for cell in cells() for code in re.findall(r"`([^`]+)`", cell) for key in KEY.findall(code)}
    named -= {"train.py", "a.yaml", "b.yaml"}
    assert len(named) > 25
    shapes = [root_shape("job"), root_shape("cluster")]
    unknown = {
        key for key in named if all(first_unknown(s, tuple(key.split("."))) is not None for s in shapes)
    }
    assert unknown == set()


def test_commands_exist() -> None:
    text = " ".join(cells())
    assert set(re.findall(r"`jobspec ([a-z]+)", text)) - set(command_names()) == set()
