"""The generated schemas: fresh, valid, and documented to the last key."""

from __future__ import annotations

from importlib.resources import files
from typing import Any

import jsonschema
import pytest

from jobspec.spec.schema import Kind, committed_schema, root_shape, schema_text, walk

KINDS: list[Kind] = ["job", "cluster"]


@pytest.mark.parametrize("kind", KINDS)
def test_committed_schema_is_fresh(kind: Kind) -> None:
    name = f"{kind}.schema.json"
    committed = files("jobspec.spec").joinpath(name).read_text(encoding="utf-8")
    assert committed == schema_text(kind), f"run: jobspec schema {kind} > jobspec/spec/{name}"


@pytest.mark.parametrize("schema", [committed_schema(kind) for kind in KINDS], ids=KINDS)
def test_schema_is_valid_draft_2020_12(schema: dict[str, Any]) -> None:
    assert schema["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    jsonschema.Draft202012Validator.check_schema(schema)


@pytest.mark.parametrize("kind", KINDS)
def test_every_key_is_described(kind: Kind) -> None:
    bare = [path for path, shape in walk(root_shape(kind)) if not shape.description]
    assert bare == []


@pytest.mark.parametrize("schema", [committed_schema(kind) for kind in KINDS], ids=KINDS)
def test_unknown_keys_are_refused_everywhere(schema: dict[str, Any]) -> None:
    structs = [schema, *schema["$defs"].values()]
    assert [struct.get("title") for struct in structs if struct["additionalProperties"] is not False] == []


@pytest.mark.parametrize("kind", KINDS)
def test_examples_are_valid(kind: Kind) -> None:
    schema = committed_schema(kind)
    for path, shape in walk(root_shape(kind)):
        node = {key: value for key, value in shape.node.items() if key != "$ref"}
        for example in shape.node.get("examples", ()):
            problems = list(
                jsonschema.Draft202012Validator({**node, "$defs": schema["$defs"]}).iter_errors(example)
            )
            assert problems == [], path
