"""`coverage.checks` and `coverage.checks_only` as commands, alike for every framework. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from jobspec.evidence.repo_tests import command_name
from jobspec.frameworks.base import Context
from jobspec.plan import CommandPlan
from jobspec.spec.job import Check, Coverage

# `-rfEp` names each test that failed or passed: the report says of what kind they were.
PYTEST = ("-m", "pytest", "-q", "-rfEp")


@dataclass(frozen=True)
class Asked:
    """One entry of `coverage.checks` or `checks_only`: its command's name and its place in the spec.

    `with_guide`: the tests that the framework's guide names for the repo run too, once for all its entries.
    """

    check: Check
    name: str
    path: str
    with_guide: bool


def asked_tests(coverage: Coverage) -> Iterator[Asked]:
    """Every entry, in order."""
    count: dict[str, int] = {}
    for key, checks in (("checks", coverage.checks), ("checks_only", coverage.checks_only)):
        for index, check in enumerate(checks):
            number = count[check.repo] = count.get(check.repo, 0) + 1
            name = command_name(check.repo, number)
            yield Asked(check, name, f"coverage.{key}[{index}]", key == "checks" and number == 1)


def tests_of(asked: Asked, guide: Sequence[str]) -> tuple[str, ...]:
    """The tests of an entry's command, each once: the `guide`'s first where they belong to it."""
    return tuple(dict.fromkeys((*(guide if asked.with_guide else ()), *asked.check.tests)))


def check_commands(
    context: Context,
    python: str,
    defaults: Mapping[str, Sequence[str]] | None = None,
) -> tuple[CommandPlan, ...]:
    """One command per entry, named `checks-<repo>`, run in the repo's folder.

    An entry without `command` runs `python -m pytest -q -rfEp`. `defaults` are the guide's tests of each
    repo; without those and without `tests` of its own an entry runs every test that pytest finds.
    """
    return tuple(_commands(context, python, defaults or {}))


def _commands(context: Context, python: str, defaults: Mapping[str, Sequence[str]]) -> Iterator[CommandPlan]:
    for asked in asked_tests(context.spec.coverage):
        argv = asked.check.command or (python, *PYTEST)
        tests = tests_of(asked, defaults.get(asked.check.repo, ()))
        cwd = context.repo_paths.get(asked.check.repo, "")
        yield CommandPlan(asked.name, (*argv, *tests), cwd=cwd)
