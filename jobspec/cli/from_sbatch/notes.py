"""What is said about an imported script beside the files: each thing once, and no secret's value."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from jobspec.cli.from_sbatch.bash import CLOSE, OPEN
from jobspec.spec.interpolate import SECRET_NAME

KINDS = {
    "danger": "dangerous",
    "told": "to check",
    "listed": "no place in spec or profile",
    "replaced": "jobspec does this itself",
}
_TOKEN = re.compile(r"\b(?:hf_[A-Za-z0-9]{16,}|(?:sk|ghp|glpat)[-_][A-Za-z0-9]{16,}|[0-9a-f]{40})\b")
_SECRET_OPTION = re.compile(r"(^|[-_])(wandb|token|api[-_]?key|password|secret)", re.I)


@dataclass(frozen=True)
class Note:
    """One thing to say: its kind, what, and the line of the script."""

    kind: str
    text: str
    line: int = 0


@dataclass
class Notes:
    """Collects notes, and the secrets that no text may hold."""

    items: list[Note] = field(default_factory=list)
    secrets: dict[str, str] = field(default_factory=dict)  # value -> name of a variable
    script: str = ""

    def add(self, kind: str, text: str, line: int = 0) -> None:
        note = Note(kind, text, line)
        if note not in self.items:
            self.items.append(note)

    def secret(self, name: str, value: str, line: int) -> str:
        """Remember a secret in plain text; the variable that it belongs into."""
        known = self.secrets.get(value) or _usual(name, value)
        if value not in self.secrets:
            self.secrets[value] = known
            lines = self.script.splitlines()
            line = next((number for number, row in enumerate(lines, 1) if value in row), line)
            what = f"a secret stands in plain text, for `{known}`: revoke it, and export the new one"
            self.add("danger", what, line)
        return known

    def masked(self, text: str) -> str:
        """Text for people and files: references as written, secrets by name."""
        for value, name in self.secrets.items():
            text = text.replace(value, f"${name}")
        return _TOKEN.sub("…", text).replace(OPEN, "").replace(CLOSE, "")


def is_secret(name: str, value: str) -> bool:
    """Whether `name=value`, or an option and its value, gives a secret in plain text."""
    if not value or OPEN in value:
        return False
    looks = bool(_TOKEN.fullmatch(value))
    return looks or (bool(SECRET_NAME.search(name)) and len(value) > 7)


def is_secret_option(option: str, value: str) -> bool:
    return bool(_SECRET_OPTION.search(option.lstrip("-")) and _TOKEN.fullmatch(value))


def _usual(name: str, value: str) -> str:
    upper = name.lstrip("-").upper().replace("-", "_")
    if "WANDB" in upper:
        return "WANDB_API_KEY"
    if value.startswith("hf_"):
        return "HF_TOKEN"
    return upper if SECRET_NAME.search(upper) else f"{upper}_TOKEN"
