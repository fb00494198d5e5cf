"""Types of fields that both documents have: names, sizes, durations, and the base of their structs."""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import Meta, Struct

# `(?!\n)`: Python's `$` also matches before a final newline, and a name ends up in file names and scripts.
NAME_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$(?!\n)"


# A label of RFC 1123 in lower case.
SERVICE_NAME_PATTERN = r"^[a-z]([a-z0-9-]{0,61}[a-z0-9])?$(?!\n)"


ENV_NAME_PATTERN = r"^[A-Za-z_][A-Za-z0-9_]*$(?!\n)"


SIZE_PATTERN = r"^[0-9]+[KMGT]?$(?!\n)"


DURATION_PATTERN = r"^([0-9]+-)?[0-9]+(:[0-9]{1,2}){0,2}$(?!\n)"


SPAN_PATTERN = r"^[1-9][0-9]*[smh]$(?!\n)"
PATIENCE_PATTERN = r"^(auto|[1-9][0-9]*[smh])$(?!\n)"


WORD_PATTERN = r"^[^\s]*$(?!\n)"


Name = Annotated[str, Meta(pattern=NAME_PATTERN)]


EnvName = Annotated[str, Meta(pattern=ENV_NAME_PATTERN)]


ServiceName = Annotated[str, Meta(pattern=SERVICE_NAME_PATTERN)]


Size = Annotated[str, Meta(pattern=SIZE_PATTERN)]


Duration = Annotated[str, Meta(pattern=DURATION_PATTERN)]


Span = Annotated[str, Meta(pattern=SPAN_PATTERN)]
Patience = Annotated[str, Meta(pattern=PATIENCE_PATTERN)]


Word = Annotated[str, Meta(pattern=WORD_PATTERN)]


PositiveInt = Annotated[int, Meta(ge=1)]


NaturalInt = Annotated[int, Meta(ge=0)]


# Far beyond any machine: more is a slip of the pen, and nothing that counts nodes or GPUs has to bear it.
Nodes = Annotated[int, Meta(ge=1, le=65_536)]


Gpus = Annotated[int, Meta(ge=0, le=1024)]


Cpus = Annotated[int, Meta(ge=1, le=65_536)]


Scalar = str | int | float | bool | None


def doc(text: str, *examples: Any) -> Meta:
    """The description, and examples, of one field."""
    return Meta(description=text, examples=list(examples) or None)


class Base(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Unknown keys are errors."""
