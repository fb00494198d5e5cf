"""Whether the weights that a checkout announces come in the order in which it sends them.

Separate engines cut one stream of bytes by a list that another pass over the weights made. Where router
biases keep fp32, a bucket holds two types and is sent grouped by them. Both passes agree for certain only
when one generator makes the order of both. Source: SkyRL pull request 1816 and its review.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

ANNOUNCES, SENDS, EXPORT = "get_weight_metadata", "extract_weights", "export_hf_weights"


def has_one_plan(source: Path) -> bool:
    """Whether the announcing and the sending method of a class in `source` walk one of its generators."""
    try:
        tree = ast.parse(source.read_text(encoding="utf-8"))
    except (OSError, SyntaxError, UnicodeDecodeError, ValueError):
        return False
    classes = (node for node in ast.walk(tree) if isinstance(node, ast.ClassDef))
    return any(_shares_a_generator(node) for node in classes)


def _shares_a_generator(node: ast.ClassDef) -> bool:
    methods = {item.name: item for item in node.body if isinstance(item, ast.FunctionDef)}
    if ANNOUNCES not in methods or SENDS not in methods:
        return False
    announced, sent = (set(_called(methods[name])) for name in (ANNOUNCES, SENDS))
    if EXPORT in announced | sent:
        return False
    return any(name in methods and _is_generator(methods[name]) for name in announced & sent)


def _called(method: ast.FunctionDef) -> Iterator[str]:
    """Names of what a method calls on an object."""
    for node in ast.walk(method):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            yield node.func.attr


def _is_generator(method: ast.FunctionDef) -> bool:
    return any(isinstance(node, ast.Yield | ast.YieldFrom) for node in ast.walk(method))
