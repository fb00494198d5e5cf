"""`coverage.levels`: which trainings a spec with several levels becomes."""

from __future__ import annotations

from typing import Any

import pytest

from jobspec.finding import JobspecError
from jobspec.planning.levels import is_spread, spread
from jobspec.spec.load import LoadedSpec, parse_spec

HEAD = "version: 1\nname: all\nframework: verl\ntrain: {steps: 2}\n"


def spreaded(coverage: str, more: str = "", sets: tuple[str, ...] = ()) -> LoadedSpec:
    return spread(parse_spec(f"{HEAD}coverage: {coverage}\n{more}", "v.yaml", sets))


def points(coverage: str) -> list[dict[str, Any]]:
    sweep = spreaded(coverage).spec.sweep
    assert sweep is not None and sweep.mode == "one_allocation"
    return [dict(item) for item in sweep.points]


def test_each_level_is_a_point_and_each_of_its_variants() -> None:
    level, variants = "coverage.level", "coverage.variants"
    assert points("{levels: [0, checkpoint]}") == [
        {level: "smoke", variants: []},
        {level: "checkpoint", variants: []},
    ]
    assert points("{levels: [0, 1, 2], variants: [moe, full+dummy, save-resume]}") == [
        {level: "smoke", variants: ["full", "dummy"]},
        {level: "checkpoint", variants: ["full", "dummy"]},
        {level: "checkpoint", variants: ["save-resume"]},
        {level: "parallel", variants: ["moe"]},
        {level: "parallel", variants: ["full", "dummy"]},
    ]


def test_a_level_whose_first_variant_is_blocked_is_recorded_and_not_trained() -> None:
    blocked = "not_applicable: [{variant: lora, why: w, evidence: e}]"
    assert points(f"{{levels: [0, 2], {blocked}}}") == [
        {"coverage.level": "parallel", "coverage.variants": []}
    ]
    found = points(f"{{levels: [0, 2], variants: [full], {blocked}}}")
    assert [item["coverage.level"] for item in found] == ["smoke", "parallel"]


def test_each_training_may_be_a_job_of_its_own() -> None:
    loaded = spreaded("{levels: [0, 1], split: jobs}")
    assert loaded.spec.sweep is not None and loaded.spec.sweep.mode == "array"
    assert loaded.spec.coverage.split == "allocation" and "split" not in loaded.data["coverage"]


def test_the_spec_itself_is_that_of_the_first_point() -> None:
    loaded = spreaded("{levels: [1, 0], variants: [save-resume]}")
    assert (loaded.spec.coverage.level, loaded.spec.coverage.variants) == ("checkpoint", ("save-resume",))
    assert loaded.spec.coverage.levels == () and "levels" not in loaded.data["coverage"]
    assert loaded.origins["coverage.level"].where == "coverage.levels [1, 0]"
    assert loaded.origins["train.steps"].where == "v.yaml:4"
    assert spread(loaded) is loaded


def test_a_spec_with_one_level_is_left_alone() -> None:
    loaded = spreaded("{level: 1, variants: [lora]}")
    assert loaded.spec.sweep is None and loaded.spec.coverage.variants == ("lora",)


@pytest.mark.parametrize(
    ("coverage", "more", "rule", "path", "word"),
    [
        ("{levels: [0, 9]}", "", "coverage.level-unknown", "coverage.levels[1]", "no level `9`"),
        ("{levels: [0, smok]}", "", "coverage.level-unknown", "coverage.levels[1]", "did you mean `smoke`"),
        ("{levels: [0, 0]}", "", "coverage.levels", "coverage.levels[1]", "there twice"),
        ("{levels: [0, smoke]}", "", "coverage.levels", "coverage.levels[1]", "it is level 0, `smoke`"),
        (
            "{levels: [0], not_applicable: [{variant: lora, why: w, evidence: e}]}",
            "",
            "coverage.levels",
            "coverage.levels",
            "no level is left to train",
        ),
        ("{levels: [0], level: 1}", "", "coverage.levels", "coverage.level", "exclude each other"),
        (
            "{levels: [0]}",
            "sweep: {grid: {train.seed: [1]}}",
            "coverage.levels",
            "coverage.levels",
            "`sweep`",
        ),
        (
            "{levels: [0], variants: [moe]}",
            "",
            "coverage.variant",
            "coverage.variants[0]",
            "belongs to level `2`",
        ),
        ("{levels: [0], variants: [lora, lor]}", "", "coverage.variant", "coverage.variants[1]", "`lora`"),
        (
            "{levels: [0], variants: [lora, lora]}",
            "",
            "coverage.variant",
            "coverage.variants[1]",
            "there twice",
        ),
        (
            "{levels: [0], variants: [full+dummy, dummy+full]}",
            "",
            "coverage.variant",
            "coverage.variants[1]",
            "there twice",
        ),
    ],
)
def test_what_cannot_be_spread_is_told_at_its_place(
    coverage: str, more: str, rule: str, path: str, word: str
) -> None:
    with pytest.raises(JobspecError) as problem:
        spreaded(coverage, more)
    (finding,) = problem.value.findings
    assert (finding.rule, finding.path, finding.line) == (rule, path, 5)
    assert word in finding.text()


def test_points_that_differ_in_more_than_coverage_are_a_sweep() -> None:
    assert is_spread([{"coverage.level": "smoke"}, {"coverage.level": 1, "coverage.variants": ["a"]}])
    assert not is_spread([{"coverage.level": "smoke", "train.seed": 1}])
    assert not is_spread([{"coverage.variants": ["a"]}])
