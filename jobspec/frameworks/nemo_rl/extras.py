"""Extras of uv that a project declares to conflict: uv refuses a command that asks for both.

Source: uv's documentation, "Conflicting dependencies"; NeMo-RL at 7ea279ab, `[tool.uv] conflicts`.
"""

from __future__ import annotations

import shlex
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from jobspec.finding import Finding, error
from jobspec.frameworks.base import Context
from jobspec.frameworks.nemo_rl.checkout import read_text
from jobspec.frameworks.nemo_rl.suite import script_lines
from jobspec.frameworks.nemo_rl.variant import Variant
from jobspec.frameworks.shared.repo_tests import asked_tests

PROJECT = "pyproject.toml"


def check_extras(context: Context, root: str, variants: Sequence[Variant]) -> Iterator[Finding]:
    """An error for each command whose extras conflict, as far as the spec, site and scripts show commands."""
    for words, what, folder, path in _commands(context, root, variants):
        project = str(Path(folder, _option(words, "--project") or ""))
        found = conflict(project, words)
        if found:
            pair = " and ".join(f"`{name}`" for name in found)
            yield error(
                "nemo_rl.extras",
                f"{what} asks uv for {pair} at once",
                f"`{Path(project, PROJECT)}` declares that these extras conflict, and uv refuses them",
                "give each its own command, or leave one of them out",
                path=path,
            )


def _commands(
    context: Context, root: str, variants: Sequence[Variant]
) -> Iterator[tuple[Sequence[str], str, str, str]]:
    """Words of a command, its name, the folder where it runs, and the key that brings it."""
    for asked in asked_tests(context.spec.coverage):
        repo = asked.check.repo
        folder = context.repo_paths.get(repo, "")
        yield asked.check.command, f"`{asked.path}` of `{repo}`", folder, f"{asked.path}.command"
    for line in context.cluster.hooks.setup:
        yield _split(line), "a setup hook of the site profile", root, ""
    for variant in variants:
        for line in script_lines(read_text(root, variant.script) or "") if not variant.is_entry else ():
            yield _split(line), f"`{variant.script}`", root, "coverage.variants"


def _split(line: str) -> list[str]:
    try:
        return shlex.split(line)
    except ValueError:  # a line with half of a quoted text
        return line.split()


def _option(words: Sequence[str], name: str) -> str:
    """The last value of an option, given as the next word or behind `=`."""
    pairs = zip(words, [*words[1:], ""], strict=False)
    given = [after if word == name else word.partition("=")[2] for word, after in pairs if _is(word, name)]
    return given[-1] if given else ""


def _is(word: str, name: str) -> bool:
    return word == name or word.startswith(f"{name}=")


def conflict(project: str, words: Sequence[str]) -> tuple[str, ...]:
    """Extras of one command that the project declares to conflict; empty for none or no project."""
    if "uv" not in {Path(word).name for word in words}:
        return ()
    declared = _declared(project)
    asked = {words[index + 1] for index, word in enumerate(words[:-1]) if word == "--extra"}
    asked |= {word.partition("=")[2] for word in words if word.startswith("--extra=")}
    if "--all-extras" in words:
        asked |= set(declared.get("project", {}).get("optional-dependencies", {}))
    own = declared.get("project", {}).get("name")
    for group in declared.get("tool", {}).get("uv", {}).get("conflicts", []):
        names = [item["extra"] for item in group if "extra" in item and item.get("package", own) == own]
        together = tuple(name for name in names if name in asked)
        if len(together) > 1:
            return together
    return ()


def _declared(project: str) -> Mapping[str, Any]:
    """The project's file; empty without one that can be read."""
    try:
        return tomllib.loads(read_text(project, PROJECT) or "")
    except tomllib.TOMLDecodeError:
        return {}
