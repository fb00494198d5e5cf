"""The rules and models in docs/megatron.md; `python -m jobspec.reference.megatron` renews them in place."""

from __future__ import annotations

from pathlib import Path

from jobspec.megatron.architecture import known_architectures
from jobspec.megatron.rules import RULES
from jobspec.megatron.weights import model_weights
from jobspec.reference.marks import renew, with_part

MAKER = "jobspec.reference.megatron"
PAGE = "docs/megatron.md"


def tables() -> str:
    """Markdown: one row per rule, then one row per model that is known by name."""
    rules = [
        f"| `{rule.id}` | {'error' if rule.is_error else 'warning'} | {rule.text} | {rule.source} |"
        for rule in RULES
    ]
    models = [
        f"| `{name}` | {model_weights(arch).total / 1e9:,.1f} | {len(arch.layers)} | {arch.source} |"
        for name, arch in sorted(known_architectures().items())
    ]
    return "\n".join(
        [
            "| Rule | | Condition | Where it is enforced |",
            "| --- | --- | --- | --- |",
            *rules,
            "",
            "### Models known by name",
            "",
            "| Name begins with | Parameters (B) | Layers | Source |",
            "| --- | --- | --- | --- |",
            *models,
            "",
        ]
    )


def with_tables(page: str) -> str:
    """The page with fresh tables. Raises: ValueError when its two marks are not there once each."""
    return with_part(page, MAKER, tables())


def main() -> None:
    renew(Path(PAGE), MAKER, tables())


if __name__ == "__main__":
    main()
