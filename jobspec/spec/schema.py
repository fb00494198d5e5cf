"""The JSON Schemas (draft 2020-12) that are generated from the typed models, and their compiled form.

Editors, other tools and jobspec itself read the committed files `job.schema.json` and `cluster.schema.json`:
generating a schema takes 15 ms, a tenth of a short command. A test compares the files with the model.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any, Literal

import msgspec

from jobspec.spec.job import JobSpec
from jobspec.spec.site import ClusterProfile

Kind = Literal["job", "cluster"]

DIALECT = "https://json-schema.org/draft/2020-12/schema"
MODELS: dict[Kind, type[msgspec.Struct]] = {"job": JobSpec, "cluster": ClusterProfile}
TITLES: dict[Kind, str] = {"job": "jobspec job spec", "cluster": "jobspec site profile"}


@cache
def committed_schema(kind: Kind) -> dict[str, Any]:
    """The committed schema. Raises: OSError when the installation is not complete."""
    text = Path(__file__).with_name(f"{kind}.schema.json").read_text("utf-8")
    schema: dict[str, Any] = json.loads(text)
    return schema


def generate(kind: Kind) -> dict[str, Any]:
    """The schema of the typed model as it is now."""
    generated = msgspec.json.schema(MODELS[kind])
    for struct in generated["$defs"].values():
        for node in struct["properties"].values():
            if "enum" in node:  # without a type, JSON Schema's `1` also allows 1.0
                node["type"] = _json_type(node["enum"][0])
    root = generated["$defs"].pop(MODELS[kind].__name__)
    if kind == "job":
        _thin(root, generated["$defs"])
    head = {"$schema": DIALECT, "$id": f"urn:jobspec:{kind}:1", **root, "title": TITLES[kind]}
    return {**head, "$defs": dict(sorted(generated["$defs"].items()))}


def _thin(root: dict[str, Any], defs: dict[str, Any]) -> None:
    """What only JSON Schema can say: a variant is a part of a spec, and a base may give what is required."""
    fixed = ("version", "base", "variants", "lock")
    defs["Variant"] = {
        "title": "Variant",
        "description": "A part of a spec, laid over the rest.",
        "type": "object",
        "properties": {key: node for key, node in root["properties"].items() if key not in fixed},
        "required": [],
        "additionalProperties": False,
    }
    root["properties"]["variants"]["additionalProperties"] = {"$ref": "#/$defs/Variant"}
    root["if"] = {"not": {"required": ["base"]}}
    root["then"] = {"required": root.pop("required")}


def schema_text(kind: Kind) -> str:
    """The text of `<kind>.schema.json` for the model as it is now."""
    return json.dumps(generate(kind), indent=2, ensure_ascii=False) + "\n"


@dataclass(frozen=True)
class Shape:
    """What the schema allows at one place, with `$ref` and `anyOf` already followed.

    `types` holds JSON type names; empty means anything. `properties` is None where keys are free.
    """

    types: frozenset[str] = frozenset()
    properties: Mapping[str, Shape] | None = None
    values: Shape | None = None
    items: Shape | None = None
    required: tuple[str, ...] = ()
    default: Any = None
    description: str = ""
    node: Mapping[str, Any] = field(default_factory=dict)

    @property
    def is_text(self) -> bool:
        """Whether text alone (or nothing) fits here."""
        return "string" in self.types and self.types <= {"string", "null"}

    def child(self, part: str | int) -> Shape | None:
        """The shape one step below; None when the schema has no such key."""
        if isinstance(part, int):
            return self.items or (ANY if not self.types or "array" in self.types else None)
        if self.properties is not None:
            return self.properties.get(part)
        return self.values or (ANY if not self.types or "object" in self.types else None)

    def at(self, path: tuple[str | int, ...]) -> Shape:
        """The shape at `path`; anything goes where the schema has no such key."""
        shape: Shape | None = self
        for part in path:
            shape = shape.child(part) if shape else None
        return shape or ANY

    def at_dotted(self, text: str) -> Shape:
        """The shape at dotted text whose tail may be one free key."""
        shape: Shape = self
        for part in text.replace("[", ".").replace("]", "").split("."):
            child = shape.child(int(part) if part.isdecimal() and shape.properties is None else part)
            if child is None:
                return ANY
            if shape.properties is None and not part.isdecimal():
                return child
            shape = child
        return shape


ANY = Shape()


@dataclass(frozen=True)
class DottedKeys(Shape):
    """A mapping whose keys are dotted paths into the document itself, as in `sweep.grid`."""

    root: Shape = ANY
    listed: bool = False  # each value is a list of alternatives

    def child(self, part: str | int) -> Shape | None:
        target = self.root.at_dotted(str(part))
        return Shape(types=frozenset({"array"}), items=target) if self.listed else target


@cache
def root_shape(kind: Kind) -> Shape:
    """The compiled schema."""
    schema = committed_schema(kind)
    root = _shape(schema, schema["$defs"])
    sweep = (root.properties or {}).get("sweep")
    if sweep is None or sweep.properties is None:
        return root
    point = DottedKeys(types=frozenset({"object"}), root=root)
    grid = sweep.properties["grid"]
    dotted = {
        "grid": DottedKeys(
            types=grid.types, description=grid.description, node=grid.node, root=root, listed=True
        ),
        "list": replace(sweep.properties["list"], items=point),
        "exclude": replace(sweep.properties["exclude"], items=point),
    }
    return replace(
        root,
        properties={
            **(root.properties or {}),
            "sweep": replace(sweep, properties={**sweep.properties, **dotted}),
        },
    )


def first_unknown(shape: Shape, path: tuple[str | int, ...]) -> int | None:
    """Index of the first part of `path` without a key in the schema; None when all parts are known."""
    for index, part in enumerate(path):
        child = shape.child(part)
        if child is None:
            return index
        if shape.properties is None and not isinstance(part, int):
            return None  # the rest is one free key
        shape = child
    return None


def _shape(node: Mapping[str, Any], defs: Mapping[str, Any]) -> Shape:
    if "$ref" in node:
        node = {**defs[node["$ref"].rsplit("/", 1)[1]], **{k: v for k, v in node.items() if k != "$ref"}}
    branches = [_shape(branch, defs) for branch in node.get("anyOf", ())]
    structured = next((b for b in branches if b.types & {"object", "array"}), Shape())
    types = {node["type"]} if "type" in node else {_json_type(value) for value in node.get("enum", ())}
    properties = node.get("properties")
    extra = node.get("additionalProperties")
    default = node.get("default")
    return Shape(
        types=frozenset(types).union(*(b.types for b in branches)),
        properties={k: _shape(v, defs) for k, v in properties.items()}
        if properties
        else structured.properties,
        values=_shape(extra, defs) if isinstance(extra, dict) else structured.values,
        items=_shape(node["items"], defs) if isinstance(node.get("items"), dict) else structured.items,
        required=tuple(node.get("required") or node.get("then", node).get("required", ()))
        or structured.required,
        default=list(default) if isinstance(default, tuple) else default,
        description=node.get("description", ""),
        node=node,
    )


def _json_type(value: object) -> str:
    return {str: "string", int: "integer", bool: "boolean", type(None): "null", float: "number"}[type(value)]


def walk(shape: Shape, path: tuple[str | int, ...] = ()) -> Iterator[tuple[tuple[str | int, ...], Shape]]:
    """Every declared key with its shape, depth first in the model's order; list items as index 0."""
    if shape.properties:
        for key, child in shape.properties.items():
            yield (*path, key), child
            yield from walk(child, (*path, key))
    if shape.items:
        yield from walk(shape.items, (*path, 0))
