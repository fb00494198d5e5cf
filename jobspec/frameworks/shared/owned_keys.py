"""Overrides of keys that jobspec itself sets. Each adapter has its own list of keys and rule id."""

from __future__ import annotations

from jobspec.finding import Finding, error


def owned_key(rule: str, key: str, instead: str = "", path: str = "") -> Finding:
    """The error about an override `key`; `instead` is the spec's key that decides it, where one does.

    `path` is the override's place in the spec, by default `train.overrides`.
    """
    source = f", from `{instead}`" if instead else ""
    fix = f"remove it, and set `{instead}`" if instead else "remove it"
    why = "a second value would contradict it"
    return error(rule, f"`{key}` is set by jobspec{source}", why, fix, path=path or f"train.overrides.{key}")
