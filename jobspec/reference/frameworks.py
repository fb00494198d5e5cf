"""The levels in docs/frameworks.md; `python -m jobspec.reference.frameworks` renews them in place."""

from __future__ import annotations

from pathlib import Path

from jobspec import frameworks
from jobspec.frameworks.base import Framework
from jobspec.reference.marks import renew, with_part

MAKER = "jobspec.reference.frameworks"
PAGE = "docs/frameworks.md"


def levels() -> str:
    """Markdown: one section per built-in framework, one row per level; plug-ins document themselves."""
    return "\n\n".join(_section(frameworks.get(name)) for name in sorted(frameworks.BUILT_IN)) + "\n"


def with_levels(page: str) -> str:
    """The page with fresh sections. Raises: ValueError when its two marks are not there once each."""
    return with_part(page, MAKER, levels())


def _section(framework: Framework) -> str:
    rows = [
        f"| {level.number} | `{level.name}` | {level.proves} | {'; '.join(level.not_proved)} |"
        for level in framework.levels
    ]
    return "\n".join(
        [
            f"### `{framework.name}`",
            "",
            f"{framework.summary[0].upper()}{framework.summary[1:]}.",
            "",
            "| Number | Level | A pass proves | It does not prove |",
            "| --- | --- | --- | --- |",
            *rows,
            *_variants(framework),
        ]
    )


def _variants(framework: Framework) -> list[str]:
    """The variants that have a note, one row each."""
    rows = [
        f"| {level.number} | `{note.name}` | {note.about} | {note.needs} |"
        for level in framework.levels
        for note in level.notes
    ]
    return (
        ["", "| Level | Variant | What it runs and shows | Needs |", "| --- | --- | --- | --- |", *rows]
        if rows
        else []
    )


def main(root: Path | None = None) -> None:
    """Renew the page below `root`, the current folder by default."""
    renew((root or Path.cwd()) / PAGE, MAKER, levels())


if __name__ == "__main__":
    main()
