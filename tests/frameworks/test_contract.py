"""What every registered framework must do, whichever it is; and the registry itself."""

from __future__ import annotations

import dataclasses
import json

import msgspec
import pytest

from jobspec import frameworks
from jobspec.evidence.evidence import Attempt, Evidence
from jobspec.finding import Finding, JobspecError
from jobspec.frameworks import Source, load, merge
from jobspec.metrics import Table
from jobspec.plan import CommandPlan, from_json, to_json
from jobspec.spec.job import Check
from jobspec.verdict import Deliverable, Status
from tests.kits.framework_kit import MINIMAL, context, evidence, plan_of

NAMES = frameworks.names()
LEVELS = [(name, level.name) for name in NAMES for level in frameworks.get(name).levels]


# -- contract ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_levels_are_distinct_and_say_what_they_prove(name: str) -> None:
    levels = frameworks.get(name).levels
    assert [level.number for level in levels] == list(range(len(levels)))
    assert len({level.name for level in levels}) == len(levels)
    assert all(level.proves and level.not_proved for level in levels)
    assert frameworks.get(name).summary


@pytest.mark.parametrize("name", NAMES)
def test_every_framework_has_a_minimal_spec_here(name: str) -> None:
    assert name in MINIMAL, "add what a minimal spec needs to framework_kit.MINIMAL"


@pytest.mark.parametrize(("name", "level"), LEVELS)
def test_minimal_spec_validates_and_plans(name: str, level: str) -> None:
    asked = context(name, level)
    found = list(frameworks.get(name).validate(asked))
    assert all(isinstance(finding, Finding) for finding in found)
    assert not [finding for finding in found if finding.is_error]
    chosen = frameworks.get(name).plan(asked)
    assert chosen.commands
    assert all(
        command.argv and all(isinstance(word, str) for word in command.argv) for command in chosen.commands
    )
    assert len({command.name for command in chosen.commands}) == len(chosen.commands)
    assert chosen.expect.level == level


@pytest.mark.parametrize(("name", "level"), LEVELS)
def test_plans_are_pure_and_travel_as_json(name: str, level: str) -> None:
    plan = plan_of(context(name, level))
    assert plan == plan_of(context(name, level))
    assert from_json(to_json(plan)) == plan


@pytest.mark.parametrize("name", frameworks.BUILT_IN)
def test_every_asked_check_is_planned(name: str) -> None:
    """`coverage.checks` that no command runs would be tests that nobody misses."""
    asked = context(name, frameworks.get(name).levels[0].name)
    repo = next((repo.name for repo in asked.spec.repos), "tested")
    checks = tuple(Check(repo=repo, tests=(f"tests/unit/test_{each}.py",)) for each in "ab")
    for key in ("checks", "checks_only"):
        coverage = msgspec.structs.replace(asked.spec.coverage, **{key: checks})
        spec = msgspec.structs.replace(asked.spec, coverage=coverage)
        planned = frameworks.get(name).plan(dataclasses.replace(asked, spec=spec)).checks
        assert [(command.name, command.argv[-1]) for command in planned] == [
            (f"checks-{repo}", "tests/unit/test_a.py"),
            (f"checks-{repo}+2", "tests/unit/test_b.py"),
        ]


@pytest.mark.parametrize(("name", "level"), LEVELS)
def test_run_without_any_metric_proves_nothing_of_its_own(name: str, level: str) -> None:
    plan = plan_of(context(name, level))
    found = list(frameworks.get(name).judge(evidence(plan, Table())))
    assert all(isinstance(item, Deliverable) for item in found)
    assert not [item for item in found if item.status is Status.PASS]
    assert all(item.reason for item in found)


@pytest.mark.parametrize(("name", "level"), LEVELS)
def test_judging_survives_a_run_without_attempts(name: str, level: str) -> None:
    plan = plan_of(context(name, level))
    root = evidence(plan, Table()).root
    for attempts in ((), (Attempt(1, "attempts/1"),)):
        found = frameworks.get(name).judge(Evidence(root, plan, attempts=attempts))
        assert Status.PASS not in {item.status for item in found}


# -- registry ----------------------------------------------------------------------------------------


def test_unknown_name_gets_the_nearest() -> None:
    with pytest.raises(JobspecError, match="no framework `tlr`") as problem:
        frameworks.get("tlr")
    assert "`trl`" in problem.value.findings[0].fix


def test_same_adapter_each_time() -> None:
    assert frameworks.get("trl") is frameworks.get("trl")


@pytest.mark.parametrize("wanted", ["learning", 2, "2"])
def test_level_by_name_or_number(wanted: str | int) -> None:
    assert frameworks.find_level(frameworks.get("trl"), wanted).name == "learning"


def test_unknown_level_lists_the_known() -> None:
    with pytest.raises(JobspecError, match="no level `lerning`") as problem:
        frameworks.find_level(frameworks.get("trl"), "lerning")
    assert "`learning`" in problem.value.findings[0].fix
    assert "`smoke` (0)" in problem.value.findings[0].why


def test_two_plug_ins_of_one_name_are_refused() -> None:
    sources = [Source("slime", "a:F", "one"), Source("slime", "b:F", "two")]
    with pytest.raises(JobspecError, match="two frameworks are called `slime`") as problem:
        merge(sources)
    assert "`a:F` of one" in problem.value.findings[0].why


def test_same_plug_in_listed_twice_is_one() -> None:
    assert list(merge([Source("slime", "a:F"), Source("slime", "a:F")])) == ["slime"]


@pytest.mark.parametrize(
    ("target", "why"),
    [
        ("no.such.module:F", "ModuleNotFoundError"),
        ("json:NoSuchThing", "AttributeError"),
        ("json:JSONDecoder", "it lacks `name`"),
        ("jobspec.frameworks.trl:TrlFramework", "it calls itself `trl`"),
    ],
)
def test_broken_plug_in_is_named(target: str, why: str) -> None:
    with pytest.raises(JobspecError, match="mine") as problem:
        load(Source("mine", target, "my-dist"))
    finding = problem.value.findings[0]
    assert why in finding.why
    assert "my-dist" in finding.what + finding.why


# -- command -----------------------------------------------------------------------------------------


def test_command_runs_on_the_head_or_everywhere() -> None:
    head = frameworks.get("command").plan(context("command"))
    everywhere = frameworks.get("command").plan(
        context("command", launch={"mode": "srun", "tasks_per_node": 2})
    )
    assert (head.commands[0].on, head.ray_mode) == ("head", "external")
    assert everywhere.ray_mode == "none"
    assert everywhere.commands == (CommandPlan("command", ("true",), on="all", tasks_per_node=2),)


def test_command_is_missing_or_ambiguous() -> None:
    adapter = frameworks.get("command")
    missing = list(adapter.validate(context("command", train={})))
    both = list(adapter.validate(context("command", train={"command": ["a", "b"], "shell": True})))
    unused = list(adapter.validate(context("command", train={"command": ["a"], "steps": 3})))
    assert [finding.rule for finding in missing] == ["command.missing"]
    assert [finding.rule for finding in both] == ["command.shell"]
    assert [(finding.rule, finding.is_error) for finding in unused] == [("command.unused-key", False)]


def test_driver_config_in_argv_is_plain_json() -> None:
    plan = plan_of(context("trl", "learning"))
    config = json.loads(plan.commands[0].argv[-1])
    assert config["steps"] == plan.expect.steps == 30
    assert dataclasses.asdict(plan)["expect"]["options"]["workers"] == 1
