"""`schema job --here`: the names of this installation as choices, without refusing what is right."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from jobspec.frameworks import BUILT_IN
from jobspec.spec.yaml.document import parse_document
from tests.kits.project_kit import HELLO, Project

EXAMPLES = sorted((Path(__file__).parents[2] / "examples").rglob("*.yaml"))


@pytest.fixture
def schema(project: Project) -> dict[str, Any]:
    made: dict[str, Any] = json.loads(project.cli("schema", "job", "--here").out)
    jsonschema.Draft202012Validator.check_schema(made)
    return made


def problems(schema: dict[str, Any], text: str) -> list[str]:
    data = parse_document(text, "job.yaml", "job").data  # PyYAML's own reading of the key `on` is true
    found = jsonschema.Draft202012Validator(schema).iter_errors(data)
    return [".".join(map(str, item.absolute_path)) for item in found]


def test_frameworks_levels_and_clusters_are_choices(schema: dict[str, Any]) -> None:
    assert {*BUILT_IN} <= {*schema["properties"]["framework"]["enum"]}
    head = "version: 1\nname: x\nframework: verl\ncluster: local\n"
    assert problems(schema, head + "coverage: {level: learning}\n") == []
    assert problems(schema, head + "coverage: {level: 0, variants: [lora]}\n") == []
    assert problems(schema, head + "coverage: {level: refit}\n") == ["coverage.level"]  # of nemo_rl
    assert problems(schema, head + "coverage: {levels: [0, 77]}\n") == ["coverage.levels.1"]
    assert problems(schema, head + "coverage: {variants: [lore]}\n") == ["coverage.variants.0"]
    assert problems(schema, head.replace("verl", "verll")) == ["framework"]
    assert problems(schema, head.replace("local", "lokal")) == ["cluster"]


@pytest.mark.parametrize("example", EXAMPLES, ids=[path.stem for path in EXAMPLES])
def test_every_example_follows_it(schema: dict[str, Any], example: Path) -> None:
    if "framework:" in example.read_text():
        assert [item for item in problems(schema, example.read_text()) if item != "cluster"] == []


def test_a_site_profile_is_a_choice(project: Project) -> None:
    site = project.root / ".config" / "jobspec" / "clusters" / "mine.yaml"
    site.parent.mkdir(parents=True)
    site.write_text("version: 1\nname: mine\nscheduler: local\npaths: {node_local: /tmp/n}\n")
    made = json.loads(project.cli("schema", "job", "--here").out)
    assert "mine" in made["properties"]["cluster"]["anyOf"][0]["enum"]


def test_schemas_of_outputs_are_published(project: Project) -> None:
    assert project.cli("run", "hello.yaml").code == 0
    printed = {"report": ("report", "last", "--json"), "status": ("status", "last", "--json")}
    for kind, argv in printed.items():
        jsonschema.validate(project.cli(*argv).json, project.cli("schema", kind).json)
    project.write("grid.yaml", HELLO + "sweep: {grid: {train.seed: [1]}}\n")
    assert project.cli("run", "grid.yaml").code == 0
    jsonschema.validate(project.cli("report", "last", "--json").json, project.cli("schema", "sweep").json)
    row = {**project.cli("status", "last", "--json").json[0], "extra": 1}
    with pytest.raises(jsonschema.ValidationError, match="extra"):
        jsonschema.validate([row], project.cli("schema", "status").json)


def test_a_profiles_schema_has_no_names_to_add(project: Project) -> None:
    done = project.cli("schema", "cluster", "--here")
    assert (done.code, done.out, "leave `--here` out" in done.err) == (2, "", True)
