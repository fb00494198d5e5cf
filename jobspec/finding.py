"""One type for every problem of an input, a plan, a node or a result.

Loader, checks, runtime and report all make `Finding`s; only `jobspec.cli` prints them.
Standard library only: this module travels inside `runtime.pyz` and runs on Python 3.9.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any, Dict, Iterable, List, Mapping, Tuple

ERROR = "error"
WARNING = "warning"

# What a terminal obeys instead of showing it: C0 but tab and line feed, DEL, C1, and turns of the direction
# of writing. C1 is written as JSON escapes it, so that JSON stays the same data.
_CONTROLS = {
    **{code: f"\\x{code:02x}" for code in range(32) if chr(code) not in "\t\n"},
    **{
        code: f"\\u{code:04x}"
        for code in (*range(0x7F, 0xA0), *range(0x202A, 0x202F), *range(0x2066, 0x206A))
    },
}


def visible(text: str) -> str:
    """`text` for a terminal or a page: control characters are shown, never sent.

    >>> visible("a\\x1b[2J")
    'a\\\\x1b[2J'
    """
    return text if text.isprintable() else text.translate(_CONTROLS)


def one_line(text: str) -> str:
    """`visible`, in one line: a value of a run must not look like a line of its report."""
    return text if text.isprintable() else visible(text.replace("\r\n", "\n")).replace("\n", " ")


@dataclass(frozen=True)
class Finding:
    """What is wrong, where, why, and what to do about it.

    `rule` is a stable id such as `spec.unknown-key`; `--allow RULE` names it.
    `path` is a dotted path into the spec; `line` and `column` count from 1, 0 when unknown.
    `node` is the host that the finding was made on, empty on the login node.
    """

    rule: str
    severity: str
    what: str
    why: str = ""
    fix: str = ""
    path: str = ""
    file: str = ""
    line: int = 0
    column: int = 0
    node: str = ""

    @property
    def is_error(self) -> bool:
        return self.severity == ERROR

    def at(self, file: str, line: int = 0, column: int = 0) -> Finding:
        """The same finding with a position."""
        return replace(self, file=file, line=line, column=column)

    def to_json(self) -> Dict[str, Any]:
        return {key: value for key, value in asdict(self).items() if value not in ("", 0)}

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> Finding:
        known = {key: data[key] for key in Finding.__dataclass_fields__ if key in data}
        return Finding(**known)

    def text(self) -> str:
        """The finding as people read it: one head line, then what, why and fix."""
        place = ":".join(str(part) for part in (self.file, self.line, self.column) if part)
        parts = (f"{self.severity}[{self.rule}]", place, self.node, self.path)
        head = one_line(" ".join(str(part) for part in parts if part))
        rows = [("what", self.what), ("why", self.why), ("fix", self.fix)]
        lines = [
            f"  {name + ':':<5} " + "\n        ".join(visible(str(value)).splitlines())
            for name, value in rows
            if value
        ]
        return "\n".join([head, *lines])


def error(rule: str, what: str, why: str = "", fix: str = "", **where: Any) -> Finding:
    """An error: `validate`, `render` and `submit` end with exit code 2."""
    return Finding(rule, ERROR, what, why, fix, **where)


def warning(rule: str, what: str, why: str = "", fix: str = "", **where: Any) -> Finding:
    """A warning: printed, kept in the report, stops nothing."""
    return Finding(rule, WARNING, what, why, fix, **where)


def allow(findings: Iterable[Finding], rules: Iterable[str], usable: bool = True) -> Tuple[Finding, ...]:
    """Errors whose rule, or whose rule's first part, is in `rules` become warnings.

    `usable` is false when the errors leave nothing to go on with, such as a spec that cannot be read. One
    error at least must then remain, or the user would believe that all is well.
    """
    known, allowed = tuple(findings), tuple(rules)
    softened = tuple(
        replace(f, severity=WARNING, why=f"{f.why} (allowed by --allow)".strip())
        if f.is_error and is_allowed(f, allowed)
        else f
        for f in known
    )
    return softened if usable or any(f.is_error for f in softened) else known


def stop_on_errors(findings: Iterable[Finding]) -> None:
    """Raises: JobspecError with all findings, warnings included, when one is an error."""
    known = tuple(findings)
    if any(finding.is_error for finding in known):
        raise JobspecError(*known)


def is_allowed(finding: Finding, rules: Iterable[str]) -> bool:
    """Whether `rules` name the finding's rule or its family."""
    named = set(rules)
    return finding.rule in named or finding.rule.split(".")[0] in named


class JobspecError(Exception):
    """Base of every error that a user can cause; the CLI turns it into text and an exit code.

    Anything else that reaches the CLI is a bug in jobspec and says so.
    """

    def __init__(self, *findings: Finding) -> None:
        super().__init__("\n".join(f.what for f in findings))
        self.findings: List[Finding] = list(findings)


def fail(rule: str, what: str, why: str = "", fix: str = "", **where: Any) -> JobspecError:
    """Shorthand: `raise fail("run.unknown", ...)`."""
    return JobspecError(error(rule, what, why, fix, **where))
