"""The catalogue of NeMo-RL's variants (`variants.yaml`): its schema, and what it refuses."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from importlib.resources import files
from typing import Any

import jsonschema
import pytest
import yaml

from jobspec.frameworks.nemo_rl.catalogue import load_catalogue, schema_text
from jobspec.frameworks.nemo_rl.levels import BY_NAME, LEVELS, VARIANTS
from jobspec.frameworks.nemo_rl.variant import parse_condition

HERE = files("jobspec.frameworks.nemo_rl")
TEXT = HERE.joinpath("variants.yaml").read_text("utf-8")
RENEW = "from jobspec.frameworks.nemo_rl.catalogue import schema_text; print(schema_text(), end='')"
ENTRY = {"name": "x", "level": 0, "proves": "it ran", "script": "a.sh", "config": "a.yaml", "steps": 2}


def catalogue(**changed: Any) -> dict[str, Any]:
    """A catalogue of one variant."""
    level = {"number": 0, "name": "smoke", "proves": "steps ran"}
    return {"levels": [level], "variants": [{**ENTRY, **changed}]}


def errors(document: object) -> list[str]:
    schema = json.loads(schema_text())
    return [error.message for error in jsonschema.Draft202012Validator(schema).iter_errors(document)]


def test_committed_schema_is_fresh() -> None:
    committed = HERE.joinpath("variants.schema.json").read_text("utf-8")
    assert committed == schema_text(), f"run: python -c {RENEW!r} > {HERE}/variants.schema.json"


def test_schema_is_valid_and_explains_every_key() -> None:
    schema = json.loads(schema_text())
    jsonschema.Draft202012Validator.check_schema(schema)
    for struct in (schema, *schema["$defs"].values()):
        assert struct["additionalProperties"] is False
        assert all(node.get("description") for node in struct["properties"].values())


def test_file_is_as_the_schema_says() -> None:
    assert errors(yaml.safe_load(TEXT)) == []


def test_no_key_is_given_twice() -> None:
    def doubles(node: yaml.Node | None) -> Iterator[str]:
        if isinstance(node, yaml.MappingNode):
            keys = [key.value for key, _ in node.value]
            yield from (key for key in set(keys) if keys.count(key) > 1)
        for child in node.value if isinstance(node, yaml.CollectionNode) else ():
            for part in child if isinstance(child, tuple) else (child,):
                yield from doubles(part)

    assert list(doubles(yaml.compose("a: {b: 1, b: 2}", Loader=yaml.SafeLoader))) == ["b"]
    assert list(doubles(yaml.compose(TEXT, Loader=yaml.SafeLoader))) == []


def test_other_frameworks_do_not_read_it() -> None:
    code = (
        "import sys; from jobspec import cli, frameworks; frameworks.get('trl'); frameworks.get('verl'); "
        "print([name for name in sys.modules if name.startswith('jobspec.frameworks.nemo_rl')])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_names_are_unique_and_every_level_has_notes() -> None:
    assert len(BY_NAME) == len(VARIANTS) == sum(len(level.variants) for level in LEVELS)
    for level in LEVELS:
        assert [note.name for note in level.notes] == list(level.variants)
        assert all(note.about and note.needs and note.proof for note in level.notes)


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"steps": "two"}, "Expected `int`, got `str` - at `$.variants[x].steps`"),
        ({"step": 2}, "unknown field `step` - at `$.variants[x]`"),
        ({"gpus": 0}, "Expected `int` >= 1 - at `$.variants[x].gpus`"),
        ({"trainer": "grpo"}, "Invalid enum value 'grpo' - at `$.variants[x].trainer`"),
        ({"checks": ["max(train/loss) < 1"]}, "variant `x`: `max(train/loss) < 1` is no condition"),
        ({"checks": {"b.json": ['"1" in data["a"]']}}, "variant `x`: `b.json` of `checks` is not among"),
        ({"proofs": ["no-such"]}, "variant `x`: `proof_lines.py` has no line `no-such`"),
    ],
)
def test_a_mistake_is_told_with_the_variant_s_name(changed: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=r"variants\.yaml") as caught:
        load_catalogue(yaml.safe_dump(catalogue(**changed)))
    assert words in str(caught.value)


@pytest.mark.parametrize(
    "changed", [{"steps": "two"}, {"step": 2}, {"proofs": ["no"]}, {"checks": ["a < 1"]}]
)
def test_an_editor_with_the_schema_sees_it_too(changed: dict[str, Any]) -> None:
    assert errors(catalogue()) == []
    assert len(errors(catalogue(**changed))) == 1


def test_a_list_in_a_list_stands_for_its_entries() -> None:
    document = catalogue(overrides=["a=1", ["b=2", "c=3"], "d=4"])
    assert errors(document) == []
    assert load_catalogue(yaml.safe_dump(document)).variants[0].overrides == ("a=1", "b=2", "c=3", "d=4")


@pytest.mark.parametrize(
    ("text", "reduce", "argument", "limit", "words"),
    [
        ('data["a/b"]["3"] < 5.9', "at", 3, 5.9, "`a/b` of step 3 < 5.9"),
        ('"3" in data["a/b"]', "has", 3, 0, "`a/b` of step 3 is logged"),
        ('ratio_above(data["a/b"], 1.1) <= 0.5', "ratio_above", 1.1, 0.5, "`ratio_above(a/b, 1.1)` <= 0.5"),
        ('max(data["a/b"]) == -1', "max", 0, -1, "`max(a/b)` == -1"),
    ],
)
def test_condition_is_taken_apart(text: str, reduce: str, argument: float, limit: float, words: str) -> None:
    check = parse_condition(text)
    assert (check.text, check.reduce, check.metric) == (text, reduce, "a/b")
    assert (check.argument, check.limit, check.words) == (argument, limit, words)
