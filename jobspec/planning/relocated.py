"""A lock as another place needs it: folders that lie elsewhere now, and values that another site gives."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from jobspec.planning.paths import exchanged
from jobspec.spec.interpolate import unescape
from jobspec.spec.load import revised
from jobspec.spec.overrides import Setting
from jobspec.spec.paths import leaves, parse_path

if TYPE_CHECKING:
    from jobspec.spec.load import LoadedSpec

SOURCE = "reproduce"  # who set a value, for `explain`


def of_site(raw: Mapping[str, Any]) -> dict[str, Any]:
    """The values that the lock's site gave, as its spec had them. Anybody may have written the lock."""
    facts = raw.get("lock")
    given = facts.get("of_site") if isinstance(facts, Mapping) else None
    entries = given.items() if isinstance(given, Mapping) else ()
    return {key: value for key, value in entries if isinstance(key, str) and _is_path(key)}


def relocated(loaded: LoadedSpec, moved: Mapping[str, str], reset: Collection[str]) -> LoadedSpec:
    """The lock with folders of `moved` under their new names, and the keys of `reset` as its spec had them.

    Raises: JobspecError when the result is no valid spec.
    """
    before = {key: value for key, value in of_site(loaded.raw).items() if key in reset}
    dropped = [parse_path(key) for key, value in before.items() if value is None]
    given = ((key, value) for key, value in before.items() if value is not None)
    settings = [Setting(parse_path(key), _plain(value), key, SOURCE) for key, value in given]
    settings += _moved_texts(loaded.raw, moved)
    return revised(loaded, settings, dropped) if settings or dropped else loaded


def _moved_texts(raw: Mapping[str, Any], moved: Mapping[str, str]) -> Iterator[Setting]:
    for path, value in leaves(raw):
        if isinstance(value, str) and path[0] != "lock" and (text := exchanged(value, moved)) != value:
            yield Setting(path, text, str(path[-1]), SOURCE)


def _plain(value: Any) -> Any:
    return unescape(value) if isinstance(value, str) else value


def _is_path(key: str) -> bool:
    try:
        return bool(parse_path(key))
    except ValueError:
        return False
