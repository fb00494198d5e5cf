"""Python that somebody else wrote: read, never run."""

from __future__ import annotations

import ast
import warnings


def parsed(text: str | bytes) -> ast.Module | None:
    """The tree of a script; None where it is no Python of this version.

    What the compiler warns of (Python 3.12 prints it for `"\\d"`) is for the script's author.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return ast.parse(text)
        except (SyntaxError, ValueError, RecursionError, MemoryError):  # the last: many brackets
            return None
