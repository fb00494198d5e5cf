"""What is wrong in the sound sections of a spec that cannot be read as a whole."""

from __future__ import annotations

import re
from collections.abc import Sequence

from jobspec.finding import Finding, JobspecError
from jobspec.planning.levels import spread
from jobspec.planning.lookups import Lookups
from jobspec.planning.resolve import resolve
from jobspec.spec.find_site import LoadedCluster
from jobspec.spec.load import LoadedSpec


def errors_elsewhere(
    rest: LoadedSpec, site: LoadedCluster, told: JobspecError, allow: Sequence[str], lookups: Lookups
) -> tuple[Finding, ...]:
    """The errors of `rest`, a spec without its wrong values, in sections that have none of those.

    A value that is left out has consequences in its own section and for the spec as a whole, and a section of
    a mistyped name is missing. Nobody asks a cluster behind SSH for them.
    Raises: JobspecError when git cannot be asked.
    """
    broken = {_section(item.path) for item in told.findings if item.is_error}
    if "framework" in broken or rest.spec.pipelines or site.profile.access.login != "here":
        return ()
    sound = rest.data.keys() - broken
    try:
        found = resolve(spread(rest), site, allow=allow, lookups=lookups).findings
    except JobspecError:
        raise
    except Exception:  # noqa: BLE001 - of any kind: planning counts on rules that this spec breaks
        return ()
    return tuple(item for item in found if item.is_error and _section(item.path) in sound)


def _section(path: str) -> str:
    return re.split(r"[.\[]", path, maxsplit=1)[0]
