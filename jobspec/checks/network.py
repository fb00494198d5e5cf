"""The length of socket paths. Rules over ports and networks belong to the site profile."""

from __future__ import annotations

from collections.abc import Iterator

from jobspec.finding import Finding, error
from jobspec.plan import Plan
from jobspec.spec.job import JobSpec
from jobspec.spec.site import ClusterProfile

SOCKET_PATH_BYTES = 107  # sun_path of AF_UNIX without its final NUL, unix(7)
# `/r-XXXXXXXX/session_2026-11-28_01-02-03_123456_1234567/sockets/plasma_store`, as Ray 2.60 names it
RAY_SOCKET_BYTES = 76


def socket_paths_fit(plan: Plan, spec: JobSpec, profile: ClusterProfile) -> Iterator[Finding]:
    length, longest = len(plan.node_local.encode()), SOCKET_PATH_BYTES - RAY_SOCKET_BYTES
    if plan.ray is not None and length > longest:
        yield error(
            "paths.node-local-long",
            f"`{plan.node_local}` has {length} bytes, Ray's sockets leave room for {longest}",
            why=f"the path of a Unix socket holds {SOCKET_PATH_BYTES} bytes",
            fix="choose a shorter folder in the site profile, such as `/tmp/${user}`",
        )


RULES = (socket_paths_fit,)
