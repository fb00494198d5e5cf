"""Dotted paths: text and back, and changes that copy."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobspec.spec.paths import Path, find_path, format_path, leaves, lookup, parse_path, with_value, without
from tests.kits.strategies import texts, values

paths = (
    st.lists(st.one_of(texts, st.integers(0, 20)), min_size=1, max_size=5)
    .filter(lambda p: isinstance(p[0], str))
    .map(tuple)
)


@given(paths)
def test_parse_undoes_format(path: Path) -> None:
    assert parse_path(format_path(path)) == path


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("a", ("a",)),
        ("a.b-c_d", ("a", "b-c_d")),
        ("a[0].b", ("a", 0, "b")),
        ("a.0.b", ("a", 0, "b")),
        ("a[0][1]", ("a", 0, 1)),
        ("a.'b.c'.d", ("a", "b.c", "d")),
        ('a."b=c"', ("a", "b=c")),
        ("a.'it''s'", ("a", "it's")),
        ("a.'0'", ("a", "0")),
    ],
)
def test_parse(text: str, path: Path) -> None:
    assert parse_path(text) == path


@pytest.mark.parametrize(
    ("text", "column"),
    [
        ("", 1),
        ("a.", 3),
        ("a..b", 3),
        (".a", 1),
        ("a[", 2),
        ("a[x]", 2),
        ("a.'b", 3),
        ("a[0]b", 5),
        ("[0]", 1),
    ],
)
def test_bad_path_names_the_column(text: str, column: int) -> None:
    with pytest.raises(ValueError, match=f"column {column}$"):
        parse_path(text)


@given(values)
def test_every_leaf_is_found(data: Any) -> None:
    for path, value in leaves(data):
        assert lookup(data, path) is value
        assert find_path(data, path) == path


@given(st.dictionaries(texts, values, min_size=1), values)
def test_a_change_copies_and_touches_one_place(data: dict[str, Any], value: Any) -> None:
    before = copy.deepcopy(data)
    for path, _ in leaves(data):
        changed = with_value(data, path, value)
        assert lookup(changed, path) == value
        assert with_value(changed, path, lookup(data, path)) == before
        assert lookup(without(changed, path), path[:-1]) != lookup(changed, path[:-1])
    assert data == before


def test_without_what_is_not_there() -> None:
    data = {"a": [{"b": 1}]}
    assert without(data, ("a", 3, "b")) == data
    assert without(data, ("x", "y")) == data
