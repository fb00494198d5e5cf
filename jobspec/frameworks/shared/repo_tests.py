"""`coverage.checks` as commands, alike for every framework. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from jobspec.frameworks.base import Context
from jobspec.plan import CommandPlan


def check_commands(
    context: Context,
    python: str,
    defaults: Mapping[str, Sequence[str]] | None = None,
) -> tuple[CommandPlan, ...]:
    """One command per entry, named `checks-<repo>`, run in the repo's folder.

    An entry without `command` runs `python -m pytest -q`. An entry without `tests` runs the `defaults` of its
    repo, and without those every test that pytest finds.
    """
    return tuple(_commands(context, python, defaults or {}))


def _commands(context: Context, python: str, defaults: Mapping[str, Sequence[str]]) -> Iterator[CommandPlan]:
    for check in context.spec.coverage.checks:
        argv = check.command or (python, "-m", "pytest", "-q")
        tests = check.tests or tuple(defaults.get(check.repo, ()))
        yield CommandPlan(f"checks-{check.repo}", (*argv, *tests), cwd=context.repo_paths.get(check.repo, ""))
