"""Site profiles: where they are looked for, and how one is read.

Search order, first match wins: `--cluster-file`, `$JOBSPEC_CLUSTERS` (folders and files, separated by `:`),
the user's folder, the system's folder, the profiles shipped with jobspec. A profile is named as its file is.
"""

from __future__ import annotations

import getpass
import importlib.resources
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

from jobspec.disk import exists, is_file
from jobspec.finding import Finding, JobspecError, fail, warning
from jobspec.spec.interpolate import SECRET_NAME, BadReferenceError, map_texts
from jobspec.spec.paths import Path as KeyPath
from jobspec.spec.site import DEFAULT_NODE_LOCAL, ClusterProfile
from jobspec.spec.site_rules import check_profile
from jobspec.spec.validate import convert, explain
from jobspec.spec.yaml.document import Document, in_order, parse_document, read_text
from jobspec.words import did_you_mean, one_of

DEFAULT_CLUSTER = "local"
SYSTEM_FOLDER = Path("/etc/jobspec/clusters")
SUFFIXES = (".yaml", ".yml")

_REFERENCE = re.compile(r"\$\$\{|\$\{([^{}]*)(\}?)")


@dataclass(frozen=True)
class ClusterEntry:
    """The place of a profile. `origin` is a variable, `user`, `system` or `shipped`."""

    name: str
    path: Path
    origin: str


class Elsewhere(Protocol):
    """The login node of a cluster that has file systems of its own, as `planning.elsewhere` asks it."""

    @property
    def where(self) -> str: ...
    def ask(self, request: Mapping[str, Any], timeout_s: float = ...) -> Mapping[str, Any]: ...
    def send(self, local: Path, remote: str) -> None: ...


@dataclass(frozen=True)
class LoadedCluster:
    """A valid profile with its paths expanded; `findings` are warnings.

    `elsewhere` is there for a cluster whose disks are not this machine's. `no_gpus`: the profile itself says
    that a node has none, which is its default as well.
    """

    profile: ClusterProfile
    path: Path
    origin: str
    findings: tuple[Finding, ...] = ()
    elsewhere: Elsewhere | None = None
    no_gpus: bool = False


def load_cluster(
    name: str | None, file: Path | None = None, env: Mapping[str, str] = os.environ
) -> LoadedCluster:
    """The profile called `name`, `local` without a name; `file` (`--cluster-file`) wins over all others.

    Without `file`, each part of JOBSPEC_CLUSTERS that has no profile adds a warning.
    Raises: JobspecError with all findings; for an unknown name it lists the known profiles.
    """
    places = [] if file is not None else place_findings(env)
    try:
        entry = find_cluster(name, file, env)
        loaded = parse_cluster(read_text(entry.path, "cluster"), entry.path, entry.origin, env)
    except JobspecError as problem:
        raise JobspecError(*places, *problem.findings) from problem
    return replace(loaded, findings=(*places, *loaded.findings))


def find_cluster(
    name: str | None, file: Path | None = None, env: Mapping[str, str] = os.environ
) -> ClusterEntry:
    """The place of the profile that `load_cluster` reads. Raises: JobspecError when there is none."""
    entries = list_clusters(env)
    names = [entry.name for entry in entries]
    if file is not None:
        if str(file) in names and not exists(file):
            what, fix = f"there is no file `{file}`, but a profile has that name", f"--cluster {file}"
            raise fail("cluster.unknown", what, fix=f"write `{fix}`", file=f"--cluster-file {file}")
        return ClusterEntry(file.stem, file, "--cluster-file")
    name = name or DEFAULT_CLUSTER
    for entry in entries:
        if entry.name == name:
            return entry
    raise _unknown(name, names)


def _unknown(name: str, names: list[str]) -> JobspecError:
    fix = (
        (f"write `--cluster-file {name}`" if is_file(name) else "")
        or did_you_mean(name, names)
        or "write a profile (see docs/sites.md), or name its file by `--cluster-file`"
    )
    why = f"known profiles: {', '.join(names)}"
    return fail("cluster.unknown", f"there is no site profile `{name}`", why, fix)


def list_clusters(env: Mapping[str, str] = os.environ) -> list[ClusterEntry]:
    """Every profile that a name can reach, in search order; one hidden by an earlier profile is left out."""
    entries: dict[str, ClusterEntry] = {}
    for origin, place in _places(env):
        for path in _profiles(place):
            entries.setdefault(path.stem, ClusterEntry(path.stem, path, origin))
    return list(entries.values())


def _places(env: Mapping[str, str]) -> Iterator[tuple[str, Path]]:
    for place in env.get("JOBSPEC_CLUSTERS", "").split(":"):
        if place:
            yield "$JOBSPEC_CLUSTERS", Path(place).expanduser()
    home = env.get("XDG_CONFIG_HOME") or (f"{env['HOME']}/.config" if env.get("HOME") else "")
    if home:
        yield "user", Path(home) / "jobspec" / "clusters"
    yield "system", SYSTEM_FOLDER
    yield "shipped", Path(str(importlib.resources.files("jobspec.clusters")))


def _profiles(place: Path) -> list[Path]:
    try:
        return _profiles_at(place)
    except OSError:
        return []  # this user has no profiles in an unreadable folder


def _profiles_at(place: Path) -> list[Path]:
    if place.is_dir():
        return [path for path in sorted(place.iterdir()) if path.suffix in SUFFIXES and path.is_file()]
    return [place] if place.suffix in SUFFIXES and place.exists() else []


def place_findings(env: Mapping[str, str] = os.environ) -> list[Finding]:
    """A warning for each part of JOBSPEC_CLUSTERS that has no profile, although its user expects one there.

    It is no error: as with PATH, one shell profile may serve several hosts.
    """
    return [
        warning(
            "cluster.place",
            f"`{place}` {problem}",
            "a profile expected there may come from another place, or be missing",
            "correct JOBSPEC_CLUSTERS: folders and `.yaml` files, separated by `:`",
            file="$JOBSPEC_CLUSTERS",
        )
        for origin, place in _places(env)
        if origin == "$JOBSPEC_CLUSTERS" and (problem := _why_none(place))
    ]


def _why_none(place: Path) -> str:
    """Why a place has no profile; empty for one that has."""
    try:
        if _profiles_at(place):
            return ""
        if not place.exists():
            return "does not exist"
    except OSError as problem:
        return f"cannot be read: {(problem.strerror or str(problem)).lower()}"
    return f"has no {one_of(f'*{suffix}' for suffix in SUFFIXES)}" if place.is_dir() else "is no `.yaml` file"


def parse_cluster(
    text: str, path: Path, origin: str = "file", env: Mapping[str, str] = os.environ
) -> LoadedCluster:
    """The profile in `text`. Raises: JobspecError with every finding, positions in `path`."""
    document = parse_document(text, str(path), "cluster")
    data, findings = _expand(document, env)
    findings = [*document.findings, *findings]
    profile = convert(data, ClusterProfile)
    known = {finding.path for finding in findings if finding.is_error}
    if profile is None:
        more = explain(data, "cluster", document.positions.place)
    else:
        more = [_placed(finding, document) for finding in check_profile(profile)]
    findings += [finding for finding in more if finding.path not in known]
    if profile is not None and profile.name != path.stem and origin != "--cluster-file":
        what = f"the profile is named `{profile.name}`, but `--cluster` takes the name of its file"
        finding = warning(
            "cluster.name", what, fix=f"rename the file or write `name: {path.stem}`", path="name"
        )
        findings.append(_placed(finding, document))
    if profile is None or any(finding.is_error for finding in findings):
        raise JobspecError(*in_order(findings))
    node = data.get("node")
    no_gpus = isinstance(node, dict) and node.get("gpus") == 0
    return LoadedCluster(profile, path, origin, in_order(findings), no_gpus=no_gpus)


def _placed(finding: Finding, document: Document) -> Finding:
    line, column = document.positions.at(finding.path)
    return replace(finding, file=document.positions.file, line=line, column=column)


# -- ${user}, ${home} and ${env:NAME}


def _expand(document: Document, env: Mapping[str, str]) -> tuple[dict[str, Any], list[Finding]]:
    """The data with references expanded everywhere but in `hooks`, which are bash."""
    data = document.data
    paths = data.get("paths", {})
    if isinstance(paths, dict):
        data = {**data, "paths": {"node_local": DEFAULT_NODE_LOCAL, **paths}}
    access = data.get("access") if isinstance(data.get("access"), dict) else {}
    findings: list[Finding] = []

    def fill(text: str, path: KeyPath) -> str:
        if path[0] == "hooks":
            return text
        try:
            return _REFERENCE.sub(lambda match: _value(match, env, access or {}), text)
        except BadReferenceError as problem:
            findings.append(problem.finding(path, document.positions.place))
            return text

    return map_texts(data, fill), findings


def _value(match: re.Match[str], env: Mapping[str, str], access: Mapping[str, Any]) -> str:
    name = match.group(1)
    if name is None:
        return "${"
    forms = one_of(["${user}", "${home}", "${env:NAME}"])
    if not match.group(2):
        raise BadReferenceError(
            "cluster.reference", f"`{match.group(0)}` is not closed", fix="close it with `}`"
        )
    remote = str(access.get("login", "here")) != "here"
    if name == "user":
        return str(access.get("user") or _user(env))
    if name == "home":
        if remote or not env.get("HOME"):
            why = (
                "the cluster is reached by SSH, and its home directory is not known here"
                if remote
                else "HOME is not set"
            )
            raise BadReferenceError("cluster.reference", "`${home}` has no value", why, "write the path")
        return env["HOME"]
    kind, _, variable = name.partition(":")
    if kind != "env" or not variable:
        raise BadReferenceError(
            "cluster.reference",
            f"`{match.group(0)}` is none of {forms}",
            fix="write `$${` for a literal `${`",
        )
    if SECRET_NAME.search(variable):
        what = f"`{match.group(0)}` would write a secret into the run's files"
        raise BadReferenceError("cluster.secret", what, fix="remove it; specs name it in `secrets`")
    if variable not in env:
        what = f"the environment variable `{variable}` is not set"
        raise BadReferenceError("cluster.env", what, fix=f"set it: `export {variable}=...`")
    return env[variable]


def _user(env: Mapping[str, str]) -> str:
    """The login name. The password database has it where USER is missing, as in a container."""
    try:
        return env.get("USER") or env.get("LOGNAME") or getpass.getuser()
    except (KeyError, OSError):
        return str(os.getuid())
