"""The model and the data sets that a spec names: where they lie, and the model's sizes.

A model or data set by id lies in the Hugging Face cache as `hub/models--org--name`. A path names such a
folder, a snapshot inside one, or a plain folder or file. Reads a few small files, changes nothing.
Source of the layout: huggingface_hub's "Understand caching" guide.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jobspec.disk import exists, is_file
from jobspec.finding import Finding, error, warning
from jobspec.frameworks.base import FoundModel
from jobspec.plan import StagePlan, data_variable
from jobspec.planning.far_inputs import FarInputs
from jobspec.planning.on_disk import is_missing

if TYPE_CHECKING:
    from jobspec.megatron.architecture import Architecture
    from jobspec.spec.job import Data, Model

HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[\w.-]+|[A-Za-z0-9][\w.-]*")


def find_model(
    model: Model | None, base: Path, hf_home: str, scheduler: str, far: FarInputs | None = None
) -> FoundModel:
    """The spec's model with its place and its sizes, as far as this machine sees them, or a login node.

    `findings` are about its place. `size_findings` name the checks that unknown sizes prevent.
    """
    if model is None:
        return FoundModel()
    findings: list[Finding] = []
    stage = _model(model, base, hf_home, findings)
    folder, absent = None, False
    if stage is not None and far is not None:
        seen = far.get(stage.source)
        stage = settled(stage, far)
        folder, absent = (seen.folder, not seen.there) if seen is not None else (None, False)
    elif stage is not None:
        folder, absent = files_of(stage), is_missing(stage, scheduler)
    name = model.id or model.path or ""
    config = folder / "config.json" if folder is not None else None
    if model.config:
        known, doubts = _parsed(model.config, name, "`model.config` of the spec", "model.config")
        has_config = True
    elif config is not None and is_file(config):
        known, doubts = _read(config, name)
        has_config = True
    else:
        known, doubts, has_config = _shipped(name), [], False
        if known is None:
            why = "neither a config.json nor an entry of the shipped table was found"
            doubts = [_unknown(name, why, "model")]
    return FoundModel(
        stage=stage,
        folder=folder,
        absent=absent,
        architecture=known,
        has_config=has_config,
        findings=tuple(findings),
        size_findings=tuple(doubts),
    )


def trained_architecture(model: FoundModel, named: str) -> tuple[Architecture | None, tuple[Finding, ...]]:
    """The sizes of the trained model, or None with a warning that names the checks without them.

    The model's own config wins, then the shipped table by the model's name, then the table by `named`:
    the model that an adapter trains when the spec names none.
    """
    if model.architecture is None and not model.has_config and named:
        known = _shipped(named)
        if known is not None:
            return known, ()
    return model.architecture, model.size_findings


def _shipped(name: str) -> Architecture | None:
    from jobspec.megatron.architecture import find_architecture  # not loaded for a spec without a model

    return find_architecture(name)


def _read(file: Path, name: str) -> tuple[Architecture | None, list[Finding]]:
    try:
        config = json.loads(file.read_text("utf-8"))
    except (OSError, ValueError) as problem:
        return None, [_unknown(name, f"`{file}` cannot be read: {problem}", "model")]
    if not isinstance(config, dict):
        return None, [_unknown(name, f"`{file}` holds no mapping", "model")]
    return _parsed(config, name, str(file), "model")


def _parsed(
    config: Mapping[str, Any], name: str, source: str, path: str
) -> tuple[Architecture | None, list[Finding]]:
    from jobspec.megatron.architecture import parse_config

    try:
        return parse_config(config, name, source), []
    except KeyError as missing:
        return None, [_unknown(name, f"{source} has no {missing.args[0]!r}", path)]
    except (AttributeError, IndexError, TypeError, ValueError) as problem:
        return None, [_unknown(name, f"{source} has a value that is no size: {problem}", path)]


def _unknown(name: str, why: str, path: str) -> Finding:
    return warning(
        "megatron.model-unknown",
        f"the sizes of `{name}` are not known: layers, heads, experts and memory are not checked",
        why=why,
        fix="stage the model first, or give its config.json's sizes in `model.config`",
        path=path,
    )


def find_data(
    data: Sequence[Data], base: Path, hf_home: str, far: FarInputs | None = None
) -> tuple[tuple[StagePlan, ...], list[Finding]]:
    """The data sets that every node must be able to read, with findings about them."""
    findings: list[Finding] = []
    plans = [_data(item, base, hf_home, f"data[{index}]", findings) for index, item in enumerate(data)]
    return tuple(settled(plan, far or {}) for plan in plans if plan is not None), findings


def settled(item: StagePlan, far: FarInputs) -> StagePlan:
    """The item with the commit that the cluster's cache has for its revision."""
    seen = far.get(item.source)
    return replace(item, revision=seen.commit) if seen is not None and seen.commit else item


def _model(model: Model, base: Path, hf_home: str, findings: list[Finding]) -> StagePlan | None:
    if model.id is not None:
        plan: StagePlan | None = _hub(
            "model", "model", model.id, model.revision, hf_home, "model.id", findings, model.stage == "hub"
        )
    else:
        plan = _by_path("model", "model", model.path or "", model.revision, base)
    return plan and replace(
        plan,
        node_local=model.stage != "shared",
        from_hub=model.stage == "hub",
        env="JOBSPEC_MODEL_PATH",
        require=model.require,
        allow=model.allow,
        ignore=model.ignore,
    )


def _data(data: Data, base: Path, hf_home: str, where: str, findings: list[Finding]) -> StagePlan | None:
    plan: StagePlan | None
    if data.source.startswith((".", "/", "~")) or exists(base / data.source):
        plan = _by_path(data.name, "dataset", data.source, data.revision, base)
    elif HUB_ID.fullmatch(data.source):
        at, direct = f"{where}.source", data.stage == "hub"
        plan = _hub(data.name, "dataset", data.source, data.revision, hf_home, at, findings, direct)
    else:
        findings.append(
            error(
                "data.source",
                f"`{data.source}` is neither a path nor a Hugging Face id",
                fix="write `org/name`, or a path that starts with `./` or `/`",
                path=f"{where}.source",
            )
        )
        return None
    local, direct = data.stage != "shared", data.stage == "hub"
    return plan and replace(plan, node_local=local, from_hub=direct, env=data_variable(data.name))


def _hub(
    name: str,
    kind: str,
    repo_id: str,
    revision: str | None,
    hf_home: str,
    where: str,
    findings: list[Finding],
    direct: bool = False,
) -> StagePlan | None:
    if not hf_home and not direct:
        findings.append(
            error(
                "stage.no-hf-home",
                f"`{repo_id}` is a Hugging Face id, but no cache is known",
                fix="set `hf_cache.home`, or `paths.hf_home` in the site profile",
                path=where,
            )
        )
        return None
    folder = f"{kind}s--{repo_id.replace('/', '--')}"
    cache = f"{hf_home}/hub/{folder}" if hf_home else folder
    # Nodes that ask for themselves need a commit that the spec or the lock names, not one that a cache has.
    commit = "" if direct else hub_commit(cache, revision or "main")
    return StagePlan(name, kind, cache, "hf", repo_id, commit or revision or "main")


def _by_path(name: str, kind: str, path: str, revision: str | None, base: Path) -> StagePlan:
    source = Path(os.path.normpath(base / os.path.expanduser(path)))  # noqa: PTH111 - relative is kept
    if source.parent.name == "snapshots" and _cache_id(source.parent.parent.name):
        return StagePlan(
            name,
            kind,
            str(source.parent.parent),
            "hf",
            _cache_id(source.parent.parent.name),
            source.name,
        )
    repo_id = _cache_id(source.name)
    if repo_id:
        commit = hub_commit(source, revision or "main")
        return StagePlan(name, kind, str(source), "hf", repo_id, commit or revision or "main")
    return StagePlan(name, kind, str(source), "plain", "", revision or "")


def files_of(item: StagePlan) -> Path:
    """The folder that has a source's files: a cache keeps them below its revision."""
    root = Path(item.source)
    return root if item.layout == "plain" else root / "snapshots" / item.revision


def _cache_id(folder: str) -> str:
    """`org/name` of a cache folder's name, empty for any other folder."""
    kind, mark, rest = folder.partition("--")
    return rest.replace("--", "/", 1) if mark and kind in ("models", "datasets") else ""


def hub_commit(cache: str | Path, revision: str) -> str:
    """The commit that `revision` names in a Hugging Face cache folder, or an empty string."""
    name = revision or "main"
    if re.fullmatch(r"[0-9a-f]{40}", name):
        return name
    if ".." in Path(name).parts or name.startswith("/"):
        return ""
    try:
        return (Path(cache) / "refs" / name).read_text().strip()
    except (OSError, UnicodeDecodeError):
        return ""
