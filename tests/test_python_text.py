"""Scripts of others, read."""

from __future__ import annotations

import ast
import warnings

import pytest

from jobspec.python_text import parsed


@pytest.mark.parametrize("text", ['x = "\\d"\n', "x = 1if y else 2\n"])
def test_what_the_compiler_warns_of_is_neither_printed_nor_an_error(text: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(SyntaxError):
            ast.parse(text)
        tree = parsed(text)
    assert tree is not None and isinstance(tree.body[0], ast.Assign)


def test_what_is_no_python_has_no_tree() -> None:
    assert [parsed(text) for text in ("def (", b"\xff = 1", "x = " + "(" * 100_000)] == [None] * 3
