"""What is said about an imported script beside the files: each thing once, and no secret's value."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from jobspec.cli.from_sbatch.bash import CLOSE, OPEN
from jobspec.spec.interpolate import SECRET_NAME
from jobspec.spec.rules import SECRET_SETTING

KINDS = {
    "danger": "dangerous",
    "told": "to check",
    "listed": "no place in spec or profile",
    "replaced": "jobspec does this itself",
}
_TOKEN = re.compile(
    r"\b(?:hf_[A-Za-z0-9]{16,}|(?:sk|gh[a-z]|glpat)[-_][A-Za-z0-9]{16,}|sk-(?:proj|ant|or|svcacct)-[\w-]{16,}"
    r"|github_pat_\w{16,}|xox[a-z]-[\w-]{16,}|AKIA[A-Z0-9]{16}|[0-9a-f]{40})(?![\w-])"
)
# `NAME=value`, `--name value`, `Bearer value`, `://user:value@host`, wherever they stand in the script.
_GIVEN = re.compile(r"""([A-Za-z_][\w.-]*)=["']?([^\s"'`;|&()<>,$]{8,})""")
_OPTION = re.compile(r"""--([A-Za-z][\w.-]*)[= ]\s*["']?([^\s"'`;|&()<>,$-][^\s"'`;|&()<>,$]{7,})""")
_SPOKEN = re.compile(r"""\b(Bearer|wandb login)\s+(?:--relogin\s+)?([^\s"'`$-][^\s"'`$]{7,})""")
_IN_URL = re.compile(r"://([^/@\s:\"'$]*):([^/@\s\"'$]{8,})@|://()([^/@\s:\"'$]{8,})@")
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
        self.items.append(Note(kind, text, line))

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

    def has_secret(self, text: str) -> bool:
        return bool(_TOKEN.search(text)) or any(value in text for value in self.secrets)

    def masked(self, text: str) -> str:
        """Text for people and files: references as written, secrets by name."""
        for value, name in self.secrets.items():
            text = text.replace(value, f"${name}")
        return _TOKEN.sub("…", text).replace(OPEN, "").replace(CLOSE, "")


def plain_secrets(text: str) -> Iterator[tuple[str, str]]:
    """Names and values of the secrets that stand anywhere in a script, in a layer that nobody reads too."""
    for pattern in (_GIVEN, _OPTION):
        for name, value in pattern.findall(text):
            plain = name.replace("-", "_")
            if (
                SECRET_NAME.search(name)
                if name.isupper()
                else (plain == "token" or SECRET_SETTING.search(plain))
            ):
                yield plain.rpartition(".")[2], value
    yield from ((f"{name}_TOKEN", value) for name, value in _SPOKEN.findall(text))
    yield from (("URL_PASSWORD", one or two) for _, one, _, two in _IN_URL.findall(text))


def is_secret(name: str, value: str) -> bool:
    """Whether `name=value`, or an option and its value, gives a secret in plain text."""
    if not value or OPEN in value:
        return False
    looks = bool(_TOKEN.fullmatch(value))
    return looks or (bool(SECRET_NAME.search(name)) and len(value) > 7)


def is_secret_option(option: str, value: str) -> bool:
    name = option.lstrip("-").replace("-", "_")
    given = option.startswith("-") and SECRET_SETTING.search(name) and not value.startswith(("-", OPEN))
    return bool(given or (_SECRET_OPTION.search(name) and _TOKEN.fullmatch(value)))


def _usual(name: str, value: str) -> str:
    upper = name.lstrip("-").upper().replace("-", "_")
    if "WANDB" in upper:
        return "WANDB_API_KEY"
    if value.startswith("hf_"):
        return "HF_TOKEN"
    return upper if SECRET_NAME.search(upper) else f"{upper}_TOKEN"
