"""The reader of `variants.yaml`, and the text of its JSON Schema."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import msgspec
import yaml

from jobspec.frameworks.nemo_rl.proof_lines import PROOFS
from jobspec.frameworks.nemo_rl.variant import Catalogue, Variant

FILE = "variants.yaml"


def load_catalogue(text: str | None = None) -> Catalogue:
    """The levels and variants of the file, or of `text` in its place.

    Raises: ValueError that names the variant, where the schema refuses it. Two faults that the schema cannot
    see raise too: a proof that `proof_lines.py` lacks, and conditions of a file that it does not write.
    """
    if text is None:
        text = Path(__file__).with_name(FILE).read_text("utf-8")
    document = _flat(yaml.load(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader)))
    try:
        catalogue = msgspec.convert(document, Catalogue)
    except msgspec.ValidationError as why:
        raise ValueError(f"{FILE}: {_with_names(str(why), document)}") from None
    for variant in catalogue.variants:
        if problem := _problem(variant):
            raise ValueError(f"{FILE}: variant `{variant.name}`: {problem}")
    return catalogue


def _flat(node: Any) -> Any:
    """`node` with each list inside a list replaced by its entries: an alias of YAML is a whole list."""
    if isinstance(node, dict):
        return {key: _flat(value) for key, value in node.items()}
    if not isinstance(node, list):
        return node
    items = (_flat(item) for item in node)
    return [entry for item in items for entry in (item if isinstance(item, list) else [item])]


def _with_names(message: str, document: Any) -> str:
    """A message of msgspec with the variant's name in place of its number, where the entry has a name."""

    def name(match: re.Match[str]) -> str:
        entry = document["variants"][int(match[1])]
        return f"variants[{entry.get('name', match[1]) if isinstance(entry, dict) else match[1]}]"

    return re.sub(r"variants\[(\d+)\]", name, message)


def _problem(variant: Variant) -> str:
    unknown = [name for name in variant.proofs if name not in PROOFS]
    if unknown:
        return f"`proof_lines.py` has no line `{unknown[0]}`"
    try:
        checks = variant.metric_checks
    except ValueError as why:
        return str(why)
    absent = [check.file for check in checks if check.file and check.file not in variant.metrics]
    return f"`{absent[0]}` of `checks` is not among its `metrics`" if absent else ""


def schema_text() -> str:
    """The text of `variants.schema.json`, from the types and the names of proofs."""
    schema = msgspec.json.schema(Catalogue)
    definitions = schema["$defs"]
    definitions["Variant"]["properties"]["proofs"]["items"] = {"enum": sorted(PROOFS)}
    root = definitions.pop(Catalogue.__name__)
    head = {"$schema": "https://json-schema.org/draft/2020-12/schema", **root, "title": FILE}
    schema = _with_lists({**head, "$defs": definitions})
    return json.dumps(schema, indent=2, ensure_ascii=False) + "\n"


def _with_lists(node: Any) -> Any:
    """`node` of a schema with lists allowed inside lists of texts, since `_flat` flattens them."""
    if isinstance(node, list):
        return [_with_lists(item) for item in node]
    if not isinstance(node, dict):
        return node
    changed = {key: _with_lists(value) for key, value in node.items()}
    items = changed.get("items")
    if isinstance(items, dict) and items.get("type") == "string":
        changed["items"] = {"anyOf": [items, {"type": "array", "items": items}]}
    return changed
