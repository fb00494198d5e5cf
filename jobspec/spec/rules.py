"""Rules over several keys of one spec, without a cluster or a framework. One function per rule."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

from jobspec.plan import data_variable
from jobspec.spec.broken import Broken
from jobspec.spec.containers import Mount
from jobspec.spec.coverage_rules import checks, levels, metrics, not_applicable
from jobspec.spec.interpolate import SECRET_NAME
from jobspec.spec.job import JobSpec
from jobspec.spec.paths import Path, format_path, leaves, parse_path
from jobspec.spec.sbatch import bad_options, read_dependency
from jobspec.spec.schema import first_unknown, root_shape
from jobspec.spec.service_rules import groups, services
from jobspec.words import did_you_mean, nearest, one_of

# Hugging Face's own limits on a repository name: `name` or `owner/name` of word characters, `-` and `.`.
# Source: huggingface_hub `utils/_validators.py`, `validate_repo_id`.
_REPO_ID = re.compile(r"[A-Za-z0-9_][\w.-]{0,95}(/[A-Za-z0-9_][\w.-]{0,95})?\Z", re.ASCII)
# Narrower than SECRET_NAME: `pad_token` and `eos_token` are settings of a tokenizer.
SECRET_SETTING = re.compile(
    r"(^|[._])(api_?key|password|passwd|secret(_key)?|access_token|auth_token|hf_token)\Z", re.I
)
# Frameworks whose settings are appended to `train.command`, another way to start their entrypoint.
MOST_POINTS = 1_000_000
LAUNCHED = ("rlix", "skyrl")
_MODULE = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*\Z")
# `fd::17/x` and `ext::sh -c x` of git run what they name; plain http can be changed on the way.
_GIT_URL = re.compile(r"(?:https|ssh|git|file)://|(?:\w[\w.-]*@)?\w[\w.-]*:(?!:|//)")
URL_PASSWORD = re.compile(r"[a-z][a-z0-9+.-]*://[^/@\s]*:[^/@\s]+@|https?://[^/@\s]+@", re.I)


Rule = Callable[[JobSpec], Iterable[Broken]]


def check(spec: JobSpec) -> list[Broken]:
    """Every broken rule."""
    return [broken for rule in RULES for broken in rule(spec)]


def repo_source(spec: JobSpec) -> Iterator[Broken]:
    for index, repo in enumerate(spec.repos):
        at: Path = ("repos", index)
        if (repo.path is None) == (repo.url is None):
            count = "both" if repo.path is not None else "neither"
            what = f"repo `{repo.name}` gives {count} of `path` and `url`"
            fix = "give `path` for a checkout on shared storage, or `url` and `ref` to clone"
            yield Broken("spec.repo-source", at, what, fix=fix)
        if repo.url is not None and repo.ref is None:
            why = "without it, two runs of this spec could use different code"
            yield Broken(
                "spec.repo-ref",
                at,
                f"repo `{repo.name}` has a `url` and no `ref`",
                why,
                "add `ref: <commit>`",
            )
        if repo.url is not None:
            yield from _repo_url(repo.url, (*at, "url"))


def _repo_url(url: str, at: Path) -> Iterator[Broken]:
    try:
        urlsplit(url)
    except ValueError as problem:
        yield Broken("spec.repo-url", at, "the URL cannot be read", str(problem), "correct it")
        return
    if URL_PASSWORD.match(url) or "?" in url or "#" in url:
        what = "the URL holds credentials" if URL_PASSWORD.match(url) else "the URL holds a query or fragment"
        why = "a run's files hold no secrets, and a query often is one"
        fix = "remove it, and let git's credential helper or SSH supply what a login needs"
        yield Broken("spec.secret", at, what, why, fix)
    elif not _GIT_URL.match(url) and "${cluster:" not in url:
        scheme = url.partition(":")[0]
        near = nearest(scheme, ["https", "ssh", "git", "file"])
        fix = f"did you mean `{near}://`?" if near and near != scheme else ""
        yield Broken(
            "spec.repo-url",
            at,
            "the URL is of no kind that jobspec clones",
            "these are `https://`, `ssh://`, `git://`, `file://` and `user@host:path`",
            fix or "use one of them, or give a checkout's `path`",
        )


def repo_folders(spec: JobSpec) -> Iterator[Broken]:
    for index, repo in enumerate(spec.repos):
        for number, folder in enumerate(repo.pythonpath):
            if folder.startswith(("/", "~")) or ".." in folder.split("/"):
                what = f"`{folder}` leaves repo `{repo.name}`"
                fix = "give a folder below the repo, such as `src`"
                yield Broken("spec.repo-folder", ("repos", index, "pythonpath", number), what, fix=fix)
            if ":" in folder:
                what, why = f"`{folder}` holds a `:`", "PYTHONPATH separates folders by it"
                yield Broken(
                    "spec.repo-folder", ("repos", index, "pythonpath", number), what, why, "rename the folder"
                )
        if repo.prove and not _MODULE.match(repo.prove.module):
            what = f"`{repo.prove.module}` is not a module name"
            yield Broken(
                "spec.module",
                ("repos", index, "prove", "import"),
                what,
                fix="write it like `megatron.bridge`",
            )


def model_source(spec: JobSpec) -> Iterator[Broken]:
    model = spec.model
    if model is None:
        return
    if (model.id is None) == (model.path is None):
        count = "both" if model.id is not None else "neither"
        what = f"the model gives {count} of `id` and `path`"
        yield Broken(
            "spec.model-source", ("model",), what, fix="give `id` for Hugging Face, or `path` for a folder"
        )
    if model.id is not None:
        yield from _repo_id(model.id, ("model", "id"))
    if model.path is not None and model.revision is not None:
        why = "a plain folder has no revisions"
        yield Broken(
            "spec.revision", ("model", "revision"), "`revision` goes with `id`", why, "remove one of the two"
        )


def _repo_id(text: str, path: Path) -> Iterator[Broken]:
    if "${cluster:" in text:
        return
    if not _REPO_ID.match(text) or ".." in text or "--" in text or text.endswith((".", "-", ".git")):
        what = f"`{text}` is not a Hugging Face id"
        why = "an id is `owner/name` of letters, digits, `_`, `-` and `.`, without `..` or `--`"
        yield Broken("spec.model-id", path, what, why, "use `path` for a folder")


def command(spec: JobSpec) -> Iterator[Broken]:
    words = spec.train.command
    at: Path = ("train", "command")
    if words is not None and not words:
        yield Broken(
            "spec.command", at, "`train.command` is empty", fix="name a program: `[python3, train.py]`"
        )
    elif words and not words[0].strip():
        yield Broken("spec.command", at, "the command's first item is empty", fix="name a program")
    elif words and spec.train.shell and len(words) != 1:
        what, why = f"`command` has {len(words)} items", "`shell: true` runs one bash text"
        yield Broken("spec.command", at, what, why, "join them into one text, or remove `shell`")
    elif words is None and spec.framework == "command":
        what = "framework `command` has no `train.command`"
        yield Broken("spec.command", at, what, fix="add `command: [python3, train.py]`")


def command_of_another_framework(spec: JobSpec) -> Iterator[Broken]:
    if spec.framework == "command":
        return
    for key in ("command", "shell"):
        if getattr(spec.train, key) and not (key == "command" and spec.framework in LAUNCHED):
            what = f"`train.{key}` is for framework `command` alone"
            why = f"framework `{spec.framework}` makes its own command"
            near = nearest(spec.framework, ["command"])
            fix = "did you mean `framework: command`?" if near else "remove it, or set `framework: command`"
            yield Broken("spec.command", ("train", key), what, why, fix)


def helpers(spec: JobSpec) -> Iterator[Broken]:
    source = spec.mcore_helpers
    if source is None:
        return
    if (source.repo is None) == (source.package is None):
        count = "both" if source.repo is not None else "neither"
        what = f"`mcore_helpers` gives {count} of `repo` and `package`"
        yield Broken(
            "spec.helpers",
            ("mcore_helpers",),
            what,
            fix="name a repo of this spec, or the installed package `megatron.core`",
        )
    names = [repo.name for repo in spec.repos]
    if source.repo is not None and source.repo not in names:
        fix = did_you_mean(source.repo, names) or (
            f"use one of {one_of(names)}" if names else "add the repo to `repos`"
        )
        yield Broken("spec.helpers", ("mcore_helpers", "repo"), f"`repos` has no `{source.repo}`", fix=fix)


def secrets(spec: JobSpec) -> Iterator[Broken]:
    for at, container in spec.containers:
        for name in container.env:
            if name not in spec.secrets and not SECRET_NAME.search(name):
                continue
            yield Broken(
                "spec.secret",
                (*at, "env", name),
                f"`{name}` is a secret, and its value stands in the spec",
                "a secret reaches the job by name only, through the scheduler's environment",
                f"remove it, put `{name}` into `secrets`, and export it before you submit",
            )


def override_secrets(spec: JobSpec) -> Iterator[Broken]:
    yield from _override_secrets(("train", "overrides"), spec.train.overrides)
    for index, pipeline in enumerate(spec.pipelines):
        yield from _override_secrets(("pipelines", index, "train", "overrides"), pipeline.train.overrides)


def _override_secrets(at: Path, overrides: Mapping[str, Any]) -> Iterator[Broken]:
    for path, value in leaves(overrides):
        key = next((part for part in reversed(path) if isinstance(part, str)), "")
        if isinstance(value, str) and value and SECRET_SETTING.search(key):
            yield Broken(
                "spec.secret",
                (*at, *path),
                f"`{key}` is a secret, and its value stands in the spec",
                "the spec is copied into the run's files",
                "remove it, and let the framework read the variable that `secrets` names",
            )


def duplicates(spec: JobSpec) -> Iterator[Broken]:
    lists: list[tuple[str, list[str]]] = [
        ("repos", [repo.name for repo in spec.repos]),
        ("data", [data.name for data in spec.data]),
        ("pipelines", [pipeline.name for pipeline in spec.pipelines]),
        ("groups", [group.name for group in spec.groups]),
        ("services", [service.name for service in spec.services]),
        ("secrets", list(spec.secrets)),
    ]
    for key, names in lists:
        counted = Counter(names)
        for index, name in enumerate(names):
            if counted[name] > 1 and names.index(name) < index:
                what = f"`{name}` is there twice in `{key}`"
                yield Broken("spec.duplicate-name", (key, index), what, fix="rename or remove one")
    variables = [data_variable(data.name) for data in spec.data]
    for index, data in enumerate(spec.data):
        first = variables.index(variables[index])
        if first < index and spec.data[first].name != data.name:
            what = f"`{data.name}` and `{spec.data[first].name}` share the variable {variables[index]}"
            yield Broken("spec.duplicate-name", ("data", index, "name"), what, fix="rename one")


def mounts(spec: JobSpec) -> Iterator[Broken]:
    for at, container in spec.containers:
        yield from _mounts((*at, "mounts"), container.mounts)


def _mounts(list_at: Path, listed: Sequence[Mount]) -> Iterator[Broken]:
    first: dict[str, int] = {}
    for index, mount in enumerate(listed):
        at: Path = (*list_at, index)
        for key, text in (("source", mount.source), ("target", mount.target)):
            if not text.startswith(("/", "~/", "${cluster:")) and text != "~":
                yield Broken(
                    "spec.mount", (*at, key), f"`{text}` is not an absolute path", fix="start it with `/`"
                )
        if mount.target in first:
            what = f"two mounts have the target `{mount.target}`"
            yield Broken(
                "spec.mount",
                (*at, "target"),
                what,
                f"the other is mounts[{first[mount.target]}]",
                "change or remove one",
            )
        first.setdefault(mount.target, index)


def checkpoint(spec: JobSpec) -> Iterator[Broken]:
    settings = spec.checkpoint
    if settings.dir is None and settings.resume == "must":
        fix = "add `dir`, or use `resume: auto`"
        yield Broken(
            "spec.checkpoint", ("checkpoint", "resume"), "`resume: must` has no `dir` to resume from", fix=fix
        )


def pipelines(spec: JobSpec) -> Iterator[Broken]:
    for index, pipeline in enumerate(spec.pipelines):
        at: Path = ("pipelines", index)
        if not pipeline.train_gpus:
            what = f"pipeline `{pipeline.name}` trains on no GPU"
            yield Broken("spec.pipeline", (*at, "train_gpus"), what, fix="write it like `[0, 1]`")
        for key, ids in (("train_gpus", pipeline.train_gpus), ("infer_gpus", pipeline.infer_gpus)):
            seen = set[int]()
            for place, gpu in enumerate(ids):
                if gpu in seen:
                    what = f"GPU {gpu} is there twice in `{key}` of pipeline `{pipeline.name}`"
                    yield Broken("spec.pipeline", (*at, key, place), what, fix="remove one")
                seen.add(gpu)


def sweep(spec: JobSpec) -> Iterator[Broken]:
    if spec.sweep is None:
        return
    if not spec.sweep.grid and not spec.sweep.points:
        yield Broken(
            "spec.sweep", ("sweep",), "the sweep has no points", fix="add `grid` or `list`, or remove `sweep`"
        )
    count = math.prod(len(values) for values in spec.sweep.grid.values())
    if count > MOST_POINTS:
        what, why = f"the sweep's grid has {count:,} points", f"jobspec takes {MOST_POINTS:,}"
        yield Broken("spec.sweep", ("sweep", "grid"), what, why, "leave out values, or `list` the points")
    for key, values in spec.sweep.grid.items():
        if not values:
            yield Broken(
                "spec.sweep", ("sweep", "grid", key), f"`{key}` has no values", fix="give at least one value"
            )
    places: list[tuple[Path, Iterable[str]]] = [(("sweep", "grid"), spec.sweep.grid)]
    places += [(("sweep", "list", index), point) for index, point in enumerate(spec.sweep.points)]
    places += [(("sweep", "exclude", index), point) for index, point in enumerate(spec.sweep.exclude)]
    for at, keys in places:
        for key in keys:
            yield from _sweep_key(key, (*at, key))


def _sweep_key(key: str, at: Path) -> Iterator[Broken]:
    try:
        parts = parse_path(key)
    except ValueError as problem:
        yield Broken(
            "spec.sweep",
            at,
            f"`{key}` is not a path into the spec: {problem}",
            fix="write it like `train.seed`",
        )
        return
    if parts[0] in ("sweep", "lock", "version", "base", "variants"):
        yield Broken("spec.sweep", at, f"a sweep cannot change `{parts[0]}`", fix="choose another key")
    unknown = first_unknown(root_shape("job"), parts)
    if unknown is not None:
        known = list(root_shape("job").at(parts[:unknown]).properties or {})
        where = f"`{format_path(parts[:unknown])}`" if unknown else "a job spec"
        fix = did_you_mean(str(parts[unknown]), known) or f"use one of {', '.join(known)}"
        yield Broken("spec.sweep", at, f"{where} has no key `{parts[unknown]}`", "the points set it", fix)


def slurm(spec: JobSpec) -> Iterator[Broken]:
    for bad in bad_options(spec.slurm.extra_sbatch, gpus_are_asked=True):
        yield Broken("spec.sbatch", ("slurm", "extra_sbatch", bad.index), bad.what, bad.why, bad.fix)
    for index, text in enumerate(spec.slurm.dependency):
        try:
            read_dependency(text)
        except ValueError as problem:
            what, _, fix = str(problem).partition("\n")
            yield Broken("spec.dependency", ("slurm", "dependency", index), what, fix=fix)


def thin(spec: JobSpec) -> Iterator[Broken]:
    """A spec has neither once its files are laid together, so `--set` has put it there."""
    set_late: list[Path] = [("base",)] if spec.base else []
    for path in (*set_late, *(("variants", name) for name in spec.variants)):
        what, why = f"`{path[0]}` cannot be set", "files are laid together before `--set`"
        yield Broken("spec.base", path, what, why, "write it in the spec, or name `SPEC:VARIANT`")


RULES: tuple[Rule, ...] = (
    repo_source,
    repo_folders,
    model_source,
    command,
    command_of_another_framework,
    helpers,
    checks,
    levels,
    not_applicable,
    secrets,
    override_secrets,
    duplicates,
    mounts,
    checkpoint,
    pipelines,
    groups,
    services,
    metrics,
    sweep,
    slurm,
    thin,
)
