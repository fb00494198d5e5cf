"""Findings as a user reads them: each once, without consequences of another, with the place of its key."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from jobspec.finding import Finding
from jobspec.finding import allow as allow_rules

if TYPE_CHECKING:
    from jobspec.spec.load import LoadedSpec


def causes(findings: Sequence[Finding], allow: Sequence[str]) -> list[Finding]:
    """Each finding once. A finding that is the consequence of another one is left out.

    A missing checkout holds no framework, and a missing model has no known sizes.
    """
    distinct = dict.fromkeys(findings)
    absent = any(item.rule == "repo.not-fetched" for item in distinct) or any(
        item.rule in ("repo.missing", "repo.unreadable") and item.is_error
        for item in allow_rules(distinct, allow)
    )
    model = next((item for item in distinct if (item.rule, item.path) == ("stage.missing", "model")), None)
    consequences = [
        item
        for item in distinct
        if (absent and item.path == "repos" and item.rule.endswith(".checkout"))
        or (absent and item.rule == "command.file")  # it may lie in the checkout
        or (model is not None and (item.rule, item.path) == ("megatron.model-unknown", "model"))
    ]
    if model is not None and any(item.rule == "megatron.model-unknown" for item in consequences):
        unchecked = replace(model, why=f"{model.why}; its layers, heads, experts and memory are not checked")
        return [unchecked if item is model else item for item in distinct if item not in consequences]
    return [item for item in distinct if item not in consequences]


def placed(finding: Finding, loaded: LoadedSpec) -> Finding:
    """The finding with the place of the key that it names: an option, or file, line and column."""
    if finding.file or not finding.path:
        return finding
    if setting := loaded.setting_of(finding.path):
        return finding.at(setting)
    return finding.at(**loaded.positions.place(finding.path))
