"""Paths of specs and site profiles made absolute, and exchanged in texts."""

from __future__ import annotations

import getpass
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from jobspec.spec.site import ClusterProfile


def absolute_profile(profile: ClusterProfile, env: Mapping[str, str]) -> ClusterProfile:
    """The profile with `~` and `${user}` expanded and its folders absolute, `./runs` below the current one.

    So `${cluster:runs}` means the same folder wherever the spec lies.
    """

    def folder(value: str | None) -> str | None:
        return None if value is None else os.path.abspath(home(value, env))  # noqa: PTH100 - text in, text out

    paths = profile.paths
    return msgspec.structs.replace(
        profile,
        paths=msgspec.structs.replace(
            paths,
            runs=folder(paths.runs),
            hf_home=folder(paths.hf_home),
            scratch=folder(paths.scratch),
            node_local=folder(paths.node_local),
        ),
    )


def home(value: str, env: Mapping[str, str]) -> str:
    user = env.get("USER") or getpass.getuser()
    return os.path.expanduser(value.replace("${user}", user))  # noqa: PTH111 - may stay relative


def absolute(value: str, base: Path, env: Mapping[str, str]) -> str:
    """An absolute path; a relative one counts from `base`, the spec's folder."""
    return os.path.normpath(base / home(value, env))


def exchanged(text: str, places: Mapping[str, str]) -> str:
    """The text with each path of `places` under its new name; a longer name that begins so is another."""
    if not places:
        return text
    pattern = "|".join(re.escape(path) for path in sorted(places, key=len, reverse=True))
    return re.sub(rf"(?<![\w./-])(?:{pattern})(?![\w.-])", lambda match: places[match.group()], text)
