"""What the two checkouts have: RLix with its driver, and the NeMo-RL fork with what RLix calls. Reads only.

RLix and the fork are a pair: RLix's pipeline calls hooks of the fork, and a missing hook shows only after
both models are loaded. Source: rlops/rlix `nemo` f77d913 and the fork that its submodule pins,
TianyeGGBond/RL 0c98d7d (2026-05-05).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from jobspec.frameworks.base import Context

DRIVER = "examples/start_nemo_rl_multi_pipeline.py"
ROLL_DRIVER = "examples/start_multi_pipeline_test.py"
PIPELINE = "rlix/pipeline/nemo_rl_pipeline.py"
PACKAGE = "nemo_rl"
RLIX_NAMES, NEMO_NAMES = frozenset({"rlix"}), frozenset({"nemo_rl", "nemo-rl", "nemo", "rl"})


@dataclass(frozen=True)
class Hook:
    """A call of RLix's pipeline (`asks`, in its source), and where the fork must have it (`has`)."""

    name: str
    asks: str
    where: str  # a file or a folder of the fork
    has: str
    without: str


GRPO = "nemo_rl/algorithms/grpo.py"
VLLM = "nemo_rl/models/generation/vllm"
HOOKS = (
    Hook(
        "external_train_cluster",
        "external_train_cluster=",
        GRPO,
        "external_train_cluster",
        "`grpo.setup` takes no GPUs from outside",
    ),
    Hook("rlix_hooks", "rlix_hooks=", GRPO, "rlix_hooks", "the training loop asks nobody for its GPUs"),
    Hook(
        "before_weight_sync",
        "def before_weight_sync",
        GRPO,
        "before_weight_sync(",
        "weights are never copied before NeMo-RL frees them, so engines keep old ones",
    ),
    Hook(
        "build_cpu_bucket_cache",
        ".build_cpu_bucket_cache(",
        "nemo_rl/models/policy",
        "def build_cpu_bucket_cache",
        "RLix raises NotImplementedError after the first train step",
    ),
    Hook(
        "set_active_dp_ranks",
        ".set_active_dp_ranks",
        "nemo_rl/algorithms",
        "def set_active_dp_ranks",
        "the trajectory collector sends requests to engines that sleep, and waits for ever",
    ),
    Hook(
        "wake_up_partial(skip_activate=...)",
        "skip_activate=",
        VLLM,
        "skip_activate",
        "a woken engine answers with old weights",
    ),
    Hook(
        "get_model_update_receiver",
        ".get_model_update_receiver(",
        VLLM,
        "def get_model_update_receiver",
        "nothing receives the weights",
    ),
)


def rlix_repo(paths: Mapping[str, str]) -> str:
    """The name of the repository with RLix; a repository that is not cloned yet counts by its name."""
    return _named(paths, "rlix/pipeline", RLIX_NAMES)


def nemo_repo(paths: Mapping[str, str]) -> str:
    """The name of the repository with NeMo-RL's package; empty without one."""
    return _named(paths, PACKAGE, NEMO_NAMES)


def _named(paths: Mapping[str, str], folder: str, names: frozenset[str]) -> str:
    present = [name for name, path in paths.items() if Path(path, folder).is_dir()]
    absent = [name for name, path in paths.items() if name.lower() in names and not Path(path).is_dir()]
    return next(iter((*present, *absent)), "")


def roots(context: Context) -> tuple[str, str]:
    """Folders of RLix and of NeMo-RL; empty where no repository has that package."""
    paths = context.repo_paths
    return paths.get(rlix_repo(paths), ""), paths.get(nemo_repo(paths), "")


def missing_hooks(rlix: Path, nemo: Path) -> Iterator[Hook]:
    """Hooks that RLix's pipeline calls and the fork lacks; none where the pipeline cannot be read."""
    source = _text(rlix / PIPELINE)
    for hook in HOOKS:
        if hook.asks in source and not any(hook.has in _text(file) for file in _files(nemo / hook.where)):
            yield hook


def _files(place: Path) -> Iterator[Path]:
    yield from sorted(place.rglob("*.py")) if place.is_dir() else (place,)


def _text(file: Path) -> str:
    try:
        return file.read_text("utf-8", errors="replace")
    except OSError:
        return ""
