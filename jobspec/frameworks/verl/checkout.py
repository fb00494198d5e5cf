"""What a checkout supports, read from verl's maintained script and the Bridge's folders.

Releases differ: a script silently ignores a variable that it does not read, and the run proves something
else. Nothing of either checkout is imported or run.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

WRAPPER = "tests/special_e2e/run_ppo_trainer_megatron.sh"
PREPARE_GSM8K = "examples/data_preprocess/gsm8k.py"
CONFIG = "verl/trainer/config/_generated_ppo_megatron_trainer.yaml"
IMAGE_MEGATRON = "/workspace/Megatron-LM"
# The guide's tests of Megatron-Bridge, without `training/test_integration.py`: current checkouts lack it, and
# pytest then ends without having run any. Source: Megatron-Bridge 067f987, skill `verl-e2e-testing`.
GUIDE_TESTS = (
    "tests/unit_tests/models/test_model_provider_mixin.py",
    "tests/unit_tests/models/test_param_mapping.py",
)


@dataclass(frozen=True)
class Wrapper:
    """The maintained script's text, without its comment lines."""

    text: str

    def reads(self, name: str) -> bool:
        """Whether the script expands variable `name`: `$NAME`, `${NAME}`, `${NAME:-default}`."""
        return re.search(rf"\$\{{?{re.escape(name)}\b", self.text) is not None

    @property
    def keys(self) -> tuple[str, ...]:
        """Configuration keys that the script sets and does not add (`+key`)."""
        return tuple(re.findall(r"(?m)^\s+([a-z_]+(?:\.\w+)+)=", self.text))

    @property
    def reward_switch(self) -> str:
        """The key that turns the reward model off, empty when the script sets none.

        It is below `reward.` from release 0.7.1 on, and the new name is an error before.
        """
        for key in ("reward.reward_model.enable", "reward_model.enable"):
            if re.search(rf"(?<![\w.]){re.escape(key)}=", self.text):
                return key
        return ""

    @property
    def batch_grows_with_gpus(self) -> bool:
        """Whether batch sizes are multiples of NUM_GPUS, as before release 0.8.0."""
        return re.search(r"\$\(\([^)\n]*\bNUM_GPUS\b", self.text) is not None

    @property
    def calls_plain_python(self) -> bool:
        """Whether the script makes a dummy model by `python`, as up to release 0.9.0: some images lack it."""
        return re.search(r"(?m)^\s*python scripts/", self.text) is not None

    @property
    def prefers_image_megatron(self) -> bool:
        """Whether the script puts the image's own Megatron-LM first on PYTHONPATH."""
        return re.search(rf"PYTHONPATH=[\"']?{re.escape(IMAGE_MEGATRON)}", self.text) is not None


def read_wrapper(repo_paths: Mapping[str, str]) -> Wrapper | None:
    """The script of the repository called `verl`; None when there is no such repository or file."""
    root = repo_paths.get("verl")
    if root is None:
        return None
    try:
        text = (Path(root) / WRAPPER).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return None
    return Wrapper("\n".join(line for line in text.splitlines() if not line.lstrip().startswith("#")))


def read_config(repo_paths: Mapping[str, str]) -> Mapping[str, Any] | None:
    """verl's whole configuration as its checkout keeps it, with defaults; None where it cannot be read.

    Interpolations stay text. Source: verl, `scripts/generate_trainer_config.sh`.
    """
    import yaml  # only needed where a spec names keys

    root = repo_paths.get("verl")
    if root is None:
        return None
    try:
        text = (Path(root) / CONFIG).read_text(encoding="utf-8")
        config = yaml.load(text, getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    except (OSError, UnicodeDecodeError, yaml.YAMLError):
        return None
    return config if isinstance(config, Mapping) else None


def unknown_part(config: Mapping[str, Any], key: str) -> tuple[str, tuple[str, ...]] | None:
    """The first part of a dotted key that the configuration lacks, and the names that stand there instead.

    None when the key is there, or lies below an interpolation, whose keys are not known.
    """
    at: Any = config
    for part in key.split("."):
        if not isinstance(at, Mapping):
            return None if isinstance(at, str) else (part, ())
        if part not in at:
            return part, tuple(str(name) for name in at)
        at = at[part]
    return None


def guide_tests(bridge: str) -> tuple[str, ...]:
    """Those of the guide's tests that the checkout at `bridge` has."""
    return tuple(name for name in GUIDE_TESTS if (Path(bridge) / name).is_file())


def needs_apex(bridge: str) -> bool:
    """Whether the Bridge at `bridge` fuses gradient accumulation where Transformer Engine is.

    Megatron's output layer, which is not Transformer Engine's, then asks for Apex: so from release 0.4.2 on.
    """
    try:
        text = (Path(bridge) / "src/megatron/bridge/utils/fusions.py").read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return False
    body = re.search(r"(?ms)^def can_enable_gradient_accumulation_fusion\b.*?(?=^def |\Z)", text)
    return body is not None and "import transformer_engine" in body[0]


def megatron_core(root: str, pythonpath: Iterable[str]) -> str | None:
    """The first folder of a checkout's `pythonpath` that holds `megatron/core`; None when none does."""
    folders = (Path(root) / name for name in pythonpath)
    return next((str(folder) for folder in folders if (folder / "megatron/core").is_dir()), None)


def empty_submodules(root: str, pythonpath: Iterable[str]) -> tuple[str, ...]:
    """Folders of `pythonpath` that are there and hold nothing: submodules that nobody fetched."""
    return tuple(name for name in pythonpath if name != "." and root and _is_empty(Path(root) / name))


def _is_empty(folder: Path) -> bool:
    try:
        return folder.is_dir() and next(folder.iterdir(), None) is None
    except OSError:
        return False
