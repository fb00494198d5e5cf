"""Folders into which several points of a sweep save: each would go on from what another point has trained."""

from __future__ import annotations

import posixpath
import re
import shlex
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from itertools import pairwise

from jobspec.finding import Finding, error
from jobspec.frameworks.shared.dotted_keys import flat
from jobspec.plan import Plan
from jobspec.spec.job import JobSpec

# The names that frameworks and scripts give to the folder of their checkpoints, not to one that they load.
SAVES = re.compile(
    r"(?!.*(?:load|resume|init|pretrain|import|teacher|ref_))(?:\w*_)?"
    r"(?:(?:checkpoints?|ckpts?|save)(?:_(?:dir|path|folder|root))?|output_(?:dir|folder)|default_local_dir"
    r"|default_root_dir|exp_dir|dump_folder)"
)
# Adapters whose folder names hold the point's own run.
OF_THE_RUN = re.compile(r"\$\{?JOBSPEC_CHECKPOINT_DIR\}?/\S*JOBSPEC_RUN_DIR")
REFERENCE = re.compile(r"\$\{([\w.]+)\}")
MAX_NAMED = 6


def shared_folders(points: Iterable[tuple[str, JobSpec, Plan]]) -> Iterator[Finding]:
    """An error for each folder that several points save into. `points` are label, spec and plan of each."""
    users: dict[str, dict[str, str]] = defaultdict(dict)
    for label, spec, plan in points:
        for key, folder in _folders(spec, plan):
            users[folder].setdefault(label, key)
    for folder, keys in users.items():
        if len(keys) < 2:
            continue
        key = next(iter(keys.values()))
        named = "; ".join([*keys][:MAX_NAMED]) + ("; ..." if len(keys) > MAX_NAMED else "")
        own = "leave `checkpoint.dir` out: each point then has a folder of its own in its run"
        if key != "checkpoint.dir":
            own = "give `$JOBSPEC_CHECKPOINT_DIR`, which is another folder for each point"
        yield error(
            "sweep.shared-checkpoint",
            f"{len(keys)} points of the sweep save into one folder, `{folder}`: {named}",
            f"`{key}` names it for each of them: a point overwrites or resumes what another one has trained",
            f"{own}; or put the swept value into its name, such as `{folder}/${{spec:KEY}}`",
            path=key if key.startswith(("checkpoint", "train.")) else "sweep",
        )


def _folders(spec: JobSpec, plan: Plan) -> Iterator[tuple[str, str]]:
    """Key and absolute folder of each place that a point's training saves to, where they are known."""
    texts = [text for command in plan.commands for text in command.argv]
    if plan.checkpoint_dir and not any(OF_THE_RUN.search(text) for text in texts):
        yield "checkpoint.dir", posixpath.normpath(plan.checkpoint_dir)
    overrides = {key.lstrip("+~"): value for key, value in flat(spec.train.overrides).items()}
    given = [(f"train.overrides.{key}", key, value) for key, value in overrides.items()]
    given += [("train.command", key, value) for key, value in _arguments(plan)]
    given += [(f"container.env.{key}", key, value) for key, value in spec.container.env.items()]
    for path, key, value in given:
        folder = _filled_in(str(value), overrides)
        leaf = key.rpartition(".")[2].lower().replace("-", "_")
        if SAVES.fullmatch(leaf) and folder.startswith("/") and "$" not in folder and not _is_file(folder):
            yield path, posixpath.normpath(folder)


def _arguments(plan: Plan) -> Iterator[tuple[str, str]]:
    """`--key value`, `--key=value` and `key=value` of the spec's own command."""
    for command in plan.commands if plan.framework == "command" else ():
        words = _words(command.argv[0]) if command.shell else command.argv
        for word, after in pairwise((*words, "")):
            key, equals, value = word.partition("=")
            if equals or word.startswith("--"):
                yield key.lstrip("-+"), value if equals else after


def _words(script: str) -> list[str]:
    try:
        return shlex.split(script, comments=True)
    except ValueError:
        return script.split()


def _filled_in(text: str, overrides: Mapping[str, object]) -> str:
    """Hydra's references to other overrides, such as `${trainer.experiment_name}`, with their values."""
    return REFERENCE.sub(lambda match: str(overrides.get(match[1], match[0])), text)


def _is_file(path: str) -> bool:
    return re.search(r"\.(?:ckpt|pth?|bin|safetensors|json|ya?ml|csv|txt|log)$", path) is not None
