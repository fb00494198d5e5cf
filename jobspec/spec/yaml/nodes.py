"""Text -> YAML node tree, or findings in our words about what the YAML library refused.

The node tree keeps the position of every key and value. Nothing is given a type here: a plain scalar
carries the tag `PLAIN`, so that `construct` can let the schema decide what `NO` or `010` means.
"""

from __future__ import annotations

import re
from typing import Any

import yaml
from yaml.nodes import MappingNode, Node, ScalarNode

from jobspec.finding import Finding, JobspecError, error, fail

PLAIN = "plain"
TEXT = "tag:yaml.org,2002:str"
SEQUENCE = "tag:yaml.org,2002:seq"
MAPPING = "tag:yaml.org,2002:map"

MAX_DEPTH = 60  # ours; libyaml composes recursively in C, so depth must be bounded before it crashes
# YAML 1.2.2 section 5.1, printable characters; anything else cannot be in a document unescaped.
_UNPRINTABLE = re.compile("[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


class _TooDeepError(Exception):
    def __init__(self, parent: Node | None) -> None:
        super().__init__("too deep")
        self.line = parent.start_mark.line + 1 if parent else 0
        self.column = parent.start_mark.column + 1 if parent else 0


class _Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
    """Composes without YAML 1.1 types, and refuses to go deep."""

    depth = 0

    def resolve(self, kind: type[Node], value: str | None, implicit: Any) -> str:
        if kind is ScalarNode:
            return PLAIN if implicit[0] else TEXT
        return MAPPING if kind is MappingNode else SEQUENCE

    def descend_resolver(self, current_node: Node | None, current_index: Any) -> None:
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise _TooDeepError(current_node)

    def ascend_resolver(self) -> None:
        self.depth -= 1


def compose(text: str, name: str) -> Node | None:
    """The root node of the only document in `text`; None when there is none.

    Raises: JobspecError with rule `spec.syntax` or `spec.characters`, positions in file `name`.
    """
    unprintable = [_unprintable(text, match.start(), name) for match in _UNPRINTABLE.finditer(text)]
    if unprintable:
        raise JobspecError(*unprintable[:20])
    loader = _Loader(text)
    try:
        node: Node | None = loader.get_single_node()
    except _TooDeepError as problem:
        what = f"nested deeper than {MAX_DEPTH} levels"
        finding = error("spec.syntax", what, fix="flatten the document")
        raise JobspecError(finding.at(name, problem.line, problem.column)) from None
    except yaml.MarkedYAMLError as problem:
        raise JobspecError(*_syntax_findings(problem, text, name)) from problem
    except yaml.YAMLError as problem:
        raise fail("spec.syntax", f"not YAML: {problem}", file=name) from problem
    finally:
        loader.dispose()
    return node


def _unprintable(text: str, offset: int, name: str) -> Finding:
    line = text.count("\n", 0, offset) + 1
    column = offset - text.rfind("\n", 0, offset)
    return error(
        "spec.characters",
        f"character U+{ord(text[offset]):04X} cannot stand in YAML",
        "control characters and lone surrogates are not text",
        "remove it"
        + ("" if text[offset] == "\0" else ', or write it as an escape in double quotes, e.g. "\\e"'),
        file=name,
        line=line,
        column=column,
    )


def _syntax_findings(problem: yaml.MarkedYAMLError, text: str, name: str) -> list[Finding]:
    mark = problem.problem_mark or problem.context_mark
    if mark is None:
        return [error("spec.syntax", f"not YAML: {problem.problem}", file=name)]
    lines = text.split("\n")
    line = lines[mark.line] if mark.line < len(lines) else ""
    tabs = [number for number, row in enumerate(lines, 1) if "\t" in row[: len(row) - len(row.lstrip())]]
    if tabs and mark.line + 1 >= tabs[0] and ("\t" in line or "tab" in str(problem.problem)):
        return [_tab_finding(lines[number - 1], number, name) for number in tabs[:20]]
    what, why, fix = _explain(problem, line, mark)
    return [error("spec.syntax", what, why, fix, file=name, line=mark.line + 1, column=mark.column + 1)]


def _tab_finding(line: str, number: int, name: str) -> Finding:
    return error(
        "spec.tab",
        "a tab indents this line",
        "YAML allows only spaces for indentation",
        "replace the tab by spaces",
        file=name,
        line=number,
        column=line.index("\t") + 1,
    )


# libyaml's wording -> (why, fix). Source: libyaml 0.2.5, exercised in tests/spec/yaml/test_traps.py.
_HINTS: tuple[tuple[str, str, str], ...] = (
    (
        "but found another document",
        "one file holds one document",
        "remove the `---`, or put the second document into a file of its own",
    ),
    (
        "mapping values are not allowed",
        "a `: ` stands inside a value, or the indentation of this line is off",
        "quote the value, or line the key up with its neighbours",
    ),
    (
        "found undefined alias",
        "a value that starts with `*` refers to an anchor",
        "quote it if it is text, such as a glob",
    ),
    (
        "expected alphabetic or numeric character",
        "a value that starts with `*` or `&` is an alias or an anchor",
        'quote it if it is text, such as a glob: `"*.log"`',
    ),
    ("unexpected end of stream", "a quote is not closed", "close the quote"),
    ("while scanning a quoted scalar", "a quote is not closed", "close the quote"),
    (
        "could not find expected ':'",
        "a key has no `:` behind it",
        "write `key: value`",
    ),
    (
        "expected <document start>",
        "this line is indented less than the first key",
        "line keys of one mapping up in the same column",
    ),
    ("maximum nesting depth", "brackets open and do not close", "close them, or flatten the document"),
    (
        "did not find expected key",
        "this line is indented differently from its neighbours",
        "line keys and items of one level up in the same column",
    ),
    (
        "expected <block end>",
        "this line is indented differently from its neighbours",
        "line keys of one mapping up in the same column",
    ),
    ("expected ',' or '}'", "a `{` is not closed, or text in it needs quotes", "close it, or quote the text"),
    ("expected ',' or ']'", "a `[` is not closed, or text in it needs quotes", "close it, or quote the text"),
)


def _explain(problem: yaml.MarkedYAMLError, line: str, mark: Any) -> tuple[str, str, str]:
    message = " ".join(str(part) for part in (problem.context, problem.problem) if part)
    what = f"not YAML: {str(problem.problem).removeprefix('but ')}"
    character = line[mark.column : mark.column + 1]
    if "cannot start any token" in message and character:
        shown = "a backtick" if character == "`" else f"`{character}`"
        return (
            f"not YAML: a value cannot start with {shown}",
            "YAML reserves the character",
            "quote the value",
        )
    if "${" in line and ("'}'" in message or "']'" in message):
        return what, "`${` opens a mapping inside `{...}` or `[...]`", 'quote the text: `"${...}"`'
    for words, why, fix in _HINTS:
        if words in message:
            return what, why, fix
    return what, str(problem.context or ""), "see https://yaml.org/spec/1.2.2/ or quote the value"
