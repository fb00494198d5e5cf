"""Keys of the spec that a framework cannot honour. Each adapter has its own list of keys and rule id."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from operator import attrgetter

from jobspec.finding import Finding, warning
from jobspec.frameworks.base import Context


def unused_keys(
    context: Context, rule: str, keys: Iterable[str], why: str, fix: str = "remove it"
) -> Iterator[Finding]:
    """A warning for each of `keys` (dotted) that the spec sets."""
    for key in keys:
        if attrgetter(key)(context.spec) not in (None, (), {}):
            what = f"`{key}` does nothing for framework `{context.spec.framework}`"
            yield warning(rule, what, why, fix, path=key)
