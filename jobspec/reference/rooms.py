"""The picture of the rooms in docs/architecture.md; `python -m jobspec.reference.rooms` renews it in place.

It is drawn from the import contract, `.importlinter`, which exists in a checkout only.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from configparser import ConfigParser
from itertools import pairwise
from pathlib import Path

from jobspec.reference.marks import renew, with_part

MAKER = "jobspec.reference.rooms"
PAGE = "docs/architecture.md"
CONTRACT = ".importlinter"
# Folders that setuptools maps into the package `jobspec`.
MAPPED = ("launchers", "runtime")


def layers(root: Path, contract: str = "layers") -> list[list[str]]:
    """The rooms of each layer, top first. Raises: KeyError when the contract is not there."""
    parser = ConfigParser()
    parser.read(root / CONTRACT, encoding="utf-8")
    text = parser[f"importlinter:contract:{contract}"]["layers"]
    return [[room.strip() for room in line.split("|")] for line in text.strip().splitlines()]


def picture(root: Path) -> str:
    """Markdown: the layers as a Mermaid diagram, and one row for each room of `jobspec`."""
    rows = ["| room | what lives there |", "| --- | --- |", *_rows(root)]
    return "\n".join(["```mermaid", *_diagram(root), "```", "", *rows]) + "\n"


def _diagram(root: Path) -> Iterator[str]:
    yield "flowchart TD"
    names = []
    for number, rooms in enumerate(layers(root)):
        name = f"layer{number}"
        names.append(name)
        if len(rooms) == 1:
            yield f'  {name}["{rooms[0]}"]'
            continue
        yield f'  subgraph {name}[" "]'
        yield "    direction LR"
        yield from (f'    {room}["{room}"]' for room in rooms)
        yield "  end"
    yield from (f"  {upper} --> {lower}" for upper, lower in pairwise(names))


def _rows(root: Path) -> Iterator[str]:
    for rooms in layers(root):
        for room in rooms:
            path = _path(root, room)
            text = ast.get_docstring(ast.parse(path.read_text("utf-8"))) or ""
            shown = path.parent if path.name == "__init__.py" else path
            place = shown.relative_to(root).as_posix() + ("/" if shown.is_dir() else "")
            yield f"| `{place}` | {' '.join(text.partition(chr(10) * 2)[0].split())} |"


def _path(root: Path, room: str) -> Path:
    folder = root / room if room in MAPPED else root / "jobspec" / room
    return folder / "__init__.py" if folder.is_dir() else folder.with_suffix(".py")


def with_picture(page: str, root: Path) -> str:
    """The page with a fresh picture. Raises: ValueError when its two marks are not there once each."""
    return with_part(page, MAKER, picture(root))


def main(root: Path | None = None) -> None:
    """Renew the page below `root`, the current folder by default."""
    root = root or Path.cwd()
    renew(root / PAGE, MAKER, picture(root))


if __name__ == "__main__":
    main()
