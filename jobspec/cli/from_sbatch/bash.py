"""A batch script read as text: its commands, and the values of its variables. Nothing of it is run.

What only a running job knows (`$SLURM_JOB_ID`, `$(hostname)`) stays a reference: it stands between `OPEN` and
`CLOSE` in the texts here, and is never empty and never this machine's.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass, field

OPEN, CLOSE = "\x01", "\x02"
_ENDS = ("&&", "||", ";;", "&>>", "&>", "|&", ";", "|", "&", "\n", "(", ")")
_REDIRECT = re.compile(r"(?:\d*(?:>>|>|<<<|<)|&>>|&>)&?")
_HEREDOC = re.compile(r"<<-?\s*(['\"\\]?)(\w+)['\"]?")
_ASSIGN = re.compile(r"([A-Za-z_]\w*)(\+?)=(.*)\Z", re.S)
_KEYWORDS = frozenset(
    [
        "if",
        "then",
        "elif",
        "else",
        "fi",
        "while",
        "until",
        "do",
        "done",
        "time",
        "!",
        "{",
        "}",
        "local",
        "readonly",
        "declare",
    ]
)
_MATH = re.compile(r"[\d\s()+*/%-]+\Z")
_MAX_WORD = 128 * 1024  # Linux hands no longer word to a program; `A=$A$A` in a row would fill the memory


@dataclass(frozen=True)
class Command:
    """One simple command: its raw words with their quotes, its line, and what ends it."""

    words: tuple[str, ...]
    line: int
    end: str
    heredoc: str = ""


def commands(text: str) -> Iterator[Command]:
    """The simple commands of a script in order, those of loops, branches and functions included."""
    text = text.replace("\\\n", " \r")  # a joined line still counts
    words: list[str] = []
    at, line, start, later, body = 0, 1, 0, 0, ""
    while at < len(text):
        here = text[at]
        if here in " \t\r":
            line += here == "\r"
            at += 1
            continue
        if here == "#":
            at = _until(text, at, "\n")
            continue
        if (found := _HEREDOC.match(text, at)) and not text.startswith("<<<", at):
            text, body, taken = _heredoc(text, found)
            later += taken
            at = found.end()
            continue
        if text.startswith("((", at) and not (words and words[-1].endswith("=")):
            stop = _closing(text, at, "(", ")")
            words, start = [*words, "(("], start if words else line
            at = stop
            continue
        if not (array := bool(words and here == "(" and words[-1].endswith("="))):
            end = next((mark for mark in _ENDS if text.startswith(mark, at)), "")
            if end in ("&>", "&>>") or (end == "&" and text[at - 1 : at] in "<>"):
                end = ""
            if end:
                at += len(end)
                if words:
                    yield Command(tuple(words), start, end, body)
                if end == "\n":
                    line, later = line + 1 + later, 0
                words, body = [], ""
                continue
        stop = _word(text, at)
        if not words:
            start = line
        word = text[at:stop]
        if array:
            words[-1] += word
        else:
            words.append(word.replace("\r", ""))
        line += word.count("\n") + word.count("\r")
        at = max(stop, at + 1)
    if words:
        yield Command(tuple(words), start, "\n", body)


def _heredoc(text: str, found: re.Match[str]) -> tuple[str, str, int]:
    """The text without the body of a heredoc, the body, and how many lines it took."""
    begin = _until(text, found.end(), "\n") + 1
    stop = re.compile(rf"^\t*{found[2]}$", re.M).search(text, begin)
    end = stop.start() if stop else len(text)
    body = text[begin:end]
    rest = text[stop.end() + 1 if stop else end :]
    return text[:begin] + rest, body.replace("\r", ""), body.count("\n") + body.count("\r") + 1


def _until(text: str, at: int, mark: str) -> int:
    found = text.find(mark, at)
    return len(text) if found < 0 else found


def _word(text: str, at: int) -> int:
    """Where the word that begins at `at` ends: at a blank or an operator outside quotes and brackets."""
    if text[at] == "(":
        return _closing(text, at, "(", ")")
    while at < len(text):
        here = text[at]
        if here in " \t\r\n;|)(" or (
            here == "&" and text[at + 1 : at + 2] != ">" and text[at - 1] not in "<>"
        ):
            break
        at = _skip(text, at)
    return at


def _skip(text: str, at: int) -> int:
    """The place behind a character, a quoted text or an expansion."""
    here = text[at]
    if here == OPEN:
        return _until(text, at, CLOSE) + 1
    if here == "\\":
        return at + 2
    if here == "'":
        return _until(text, at + 1, "'") + 1
    if here == '"':
        at += 1
        while at < len(text) and text[at] != '"':
            at = _skip(text, at) if text[at] in "\\$`" else at + 1
        return at + 1
    if here == "`":
        return _until(text, at + 1, "`") + 1
    if text.startswith(("$(", "<(", ">("), at):
        return _closing(text, at + 1, "(", ")")
    if text.startswith("${", at):
        return _closing(text, at + 1, "{", "}")
    return at + 1


def _closing(text: str, at: int, opening: str, closing: str) -> int:
    deep = 0
    while at < len(text):
        if text[at] in (opening, closing):
            deep += 1 if text[at] == opening else -1
            at += 1
            if not deep:
                return at
        else:
            at = _skip(text, at)
    return at


@dataclass
class Values:
    """Variables as far as the text tells them, and the words of commands with these filled in."""

    known: dict[str, str] = field(default_factory=dict)
    arrays: dict[str, list[str]] = field(default_factory=dict)

    def assign(self, word: str) -> str | None:
        """Take over `NAME=value`; the name, or None for any other word."""
        found = _ASSIGN.match(word)
        if found is None:
            return None
        name, more, value = found.groups()
        if value.startswith("(") and value.endswith(")"):
            self.arrays[name] = [
                item for one in commands(value[1:-1]) for raw in one.words for item in self.split(raw)
            ]
            # An item that a command prints may be many.
            items = self.arrays[name]
            if not 0 < sum(len(item) + 1 for item in items) <= _MAX_WORD or any(
                re.match(rf"{OPEN}\$[({{]", item) for item in items
            ):
                self.arrays.pop(name)
        else:
            self.known[name] = (self.known.get(name, "") if more else "") + self.text(value)
            if len(self.known[name]) > _MAX_WORD:
                self.known.pop(name)
        return name

    def text(self, raw: str) -> str:
        """A word as one text, quotes taken off and variables filled in."""
        return "".join(text for text, _ in self._pieces(raw))

    def here_text(self, body: str) -> str:
        """The text of a heredoc: variables are filled in, quotes are its own."""
        return "".join(text for text, _ in self._pieces(body, True))

    def split(self, raw: str) -> list[str]:
        """The words that one raw word becomes: the value of an unquoted variable is split at blanks."""
        whole = re.fullmatch(r'"?\$\{(\w+)\[@\]\}"?', raw)
        if whole and whole[1] in self.arrays:
            return list(self.arrays[whole[1]])
        words, last, open_word = [], "", False
        for text, splits in self._pieces(raw):
            if not splits:
                last, open_word = last + text, True
                continue
            parts = re.split(r"\s+(?![^\x01]*\x02)", text)
            for number, part in enumerate(parts):
                if number and open_word:
                    words.append(last)
                    last, open_word = "", False
                last, open_word = last + part, open_word or bool(part)
        return [*words, last] if open_word else words

    def _pieces(self, raw: str, quoted: bool = False) -> Iterator[tuple[str, bool]]:
        at = 0
        while at < len(raw):
            here = raw[at]
            stop = _skip(raw, at)
            if here == OPEN:
                yield raw[at:stop], False
            elif here == "\\":
                keep = quoted and raw[at + 1 : at + 2] not in '"\\$`'
                yield raw[at : at + 2] if keep else raw[at + 1 : at + 2], False
            elif here == "'" and not quoted:
                yield raw[at + 1 : stop - 1], False
            elif here == '"' and not quoted:
                inner = "".join(text for text, _ in self._pieces(raw[at + 1 : stop - 1], True))
                yield inner, False
            elif here == "$" and (found := re.match(r"\$(\w+|[*@#?!$-])", raw[at:])):
                stop = at + found.end()
                yield self._variable(found[1]), not quoted
            elif here in "$`" and stop > at + 1:
                yield self._expansion(raw[at:stop]), not quoted
            else:
                stop = at + 1
                yield here, False
            at = stop

    def _variable(self, name: str) -> str:
        return self.known.get(name, f"{OPEN}${name}{CLOSE}")

    def _expansion(self, raw: str) -> str:
        if raw.startswith("$((") and raw.endswith("))"):
            inner = self.text(re.sub(r"(?<![\w$])([A-Za-z_]\w*)", r"$\1", raw[3:-2]))
            number = _computed(inner) if _MATH.match(inner) else None
            return _later(raw) if number is None else str(number)
        if found := re.match(r"\$\{(\w+)(?:\[[*@]\])?(?::?-(.*))?\}\Z", raw, re.S):
            name, other = found[1], found[2]
            if "[" in raw.partition(":")[0] and name in self.arrays:
                return " ".join(self.arrays[name])
            if name in self.known:
                return self.known[name]
            if other is not None and not name.startswith("SLURM_"):
                return self.text(other)
            return _later(raw)
        if (found := re.fullmatch(r"\$\{(\w+)\[(-?\d+)\]\}", raw)) and found[1] in self.arrays:
            items, at = self.arrays[found[1]], int(found[2])
            return items[at] if -len(items) <= at < len(items) else ""
        if found := re.match(r"\$\(\s*IFS=(['\"]?)(.)\1\s*;\s*echo\s+\"?\$\{(\w+)\[\*\]\}\"?\s*\)\Z", raw):
            return found[2].join(self.arrays[found[3]]) if found[3] in self.arrays else _later(raw)
        return _later(raw)


def _later(raw: str) -> str:
    return f"{OPEN}{raw}{CLOSE}"


def _computed(text: str) -> int | None:
    """The whole number of an arithmetic text; None for anything else."""

    def value(node: ast.AST) -> int:
        match node:
            case ast.Constant(value=int(number)):
                return number
            case ast.UnaryOp(op=ast.USub(), operand=inner):
                return -value(inner)
            case ast.BinOp(left=left, op=op, right=right):
                one, two = value(left), value(right)
                kinds = {ast.Add: one + two, ast.Sub: one - two, ast.Mult: one * two}
                if isinstance(op, ast.Div | ast.FloorDiv | ast.Mod) and two:
                    return one % two if isinstance(op, ast.Mod) else int(one / two)
                return kinds[type(op)]
        raise ValueError

    try:
        number = value(ast.parse(text.strip().replace("/", "//"), mode="eval").body)
    except (ValueError, KeyError, SyntaxError, RecursionError, MemoryError, OverflowError):
        return None
    return number if abs(number) < 2**63 else None  # bash goes round there


def comma_split(text: str) -> list[str]:
    """Parts between commas, references left whole."""
    return [part for part in re.split(f",(?![^{OPEN}]*{CLOSE})", text) if part]


def is_keyword(word: str) -> bool:
    return word in _KEYWORDS


def without_redirects(words: list[str]) -> list[str]:
    """Raw words without `> file`, `2>&1` and the like."""
    rest, skip = [], False
    for word in words:
        if skip:
            skip = False
        elif found := _REDIRECT.match(word):
            skip = found.end() == len(word) and not word.endswith("&")
            if word.startswith("<("):
                skip = False
        else:
            rest.append(word)
    return rest
