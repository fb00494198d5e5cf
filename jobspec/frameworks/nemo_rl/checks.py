"""`coverage.checks` for NeMo-RL: the guide's unit tests, as far as the checkouts have them.

NeMo-RL's `conftest.py` leaves out every test marked `mcore` unless it is asked for, and `--mcore-only` leaves
out all others; with a marker expression it does neither. So the guide's bare `pytest` would run nothing.
Both repositories are tested by NeMo-RL's own environment with Megatron: the Bridge's own project asks for
another Python than the one that trains.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from jobspec.finding import Finding, error, warning
from jobspec.frameworks.base import Context
from jobspec.frameworks.nemo_rl.checkout import find_bridge, find_checkout
from jobspec.frameworks.nemo_rl.variant import Variant
from jobspec.plan import CommandPlan
from jobspec.spec.job import Check

BRIDGE_TESTS = (
    "tests/unit_tests/models/test_model_provider_mixin.py",
    "tests/unit_tests/models/test_param_mapping.py",
    "tests/unit_tests/training/test_integration.py",
)
MEGATRON_TESTS = (
    "tests/unit/models/megatron/test_megatron_setup.py",
    "tests/unit/models/policy/test_megatron_worker.py",
)
CHECKPOINT_TESTS = ("tests/unit/utils/test_checkpoint.py", "tests/unit/utils/test_native_checkpoint.py")
REFIT_TESTS = (
    "tests/unit/utils/test_weight_transfer.py",  # its name before `test_weight_transfer_stream.py`
    "tests/unit/utils/test_weight_transfer_stream.py",
    "tests/unit/models/generation/test_vllm_generation.py",
    "tests/unit/models/generation/test_vllm_utils.py",
)
DATA_PLANE_TESTS = ("tests/unit/data_plane",)
MARKERS = "not (automodel or vllm or sglang or trtllm or nemo_gym or hf_gated)"


def test_commands(context: Context, variants: Sequence[Variant]) -> tuple[CommandPlan, ...]:
    """One command per entry of `coverage.checks`."""
    return tuple(_command(context, check, variants) for check in context.spec.coverage.checks)


def check_tests(context: Context, variants: Sequence[Variant]) -> Iterator[Finding]:
    """What of the guide's tests a checkout lacks; an error where nothing is left to run."""
    for index, check in enumerate(context.spec.coverage.checks):
        wanted = _defaults(context, check, variants)
        if check.tests or not wanted:
            continue
        root, path = context.repo_paths.get(check.repo, ""), f"coverage.checks[{index}]"
        missing = [name for name in wanted if not Path(root, name).exists()]
        if len(missing) == len(wanted):
            what = f"repository `{check.repo}` has none of the tests that the guide names"
            yield error("nemo_rl.checks", what, f"looked for {_listed(wanted)}", "give `tests`", path=path)
        elif missing:
            what = f"repository `{check.repo}` has no {_listed(missing)}: the other tests run"
            yield warning("nemo_rl.checks", what, "the guide names them", path=path)


def _listed(names: Sequence[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def _command(context: Context, check: Check, variants: Sequence[Variant]) -> CommandPlan:
    root, project = context.repo_paths.get(check.repo, ""), find_checkout(context.repo_paths)
    wanted = _defaults(context, check, variants)
    tests = check.tests or tuple(name for name in wanted if Path(root, name).exists())
    argv = check.command or ("python3", "-m", "pytest", "-q")
    if wanted and not check.command:
        environment = ("--project", project, "--extra", "mcore", "--group", "test")
        argv = ("uv", "run", *environment, "python", "-m", "pytest", "-q")
        argv += ("-m", MARKERS) if root == project else ()
    return CommandPlan(f"checks-{check.repo}", (*argv, *tests), cwd=root)


def _defaults(context: Context, check: Check, variants: Sequence[Variant]) -> tuple[str, ...]:
    """The guide's tests for a repository and what the variants touch; none for another repository."""
    path = context.repo_paths.get(check.repo, "")
    if path and path == find_checkout(context.repo_paths):
        found: tuple[str, ...] = MEGATRON_TESTS
        found += CHECKPOINT_TESTS if any(item.saves or item.resumes for item in variants) else ()
        found += _refit_tests(path) if any(item.level == 2 for item in variants) else ()
        found += DATA_PLANE_TESTS if any("data-plane" in item.name for item in variants) else ()
        return found
    return BRIDGE_TESTS if path and path == find_bridge(context.repo_paths) else ()


def _refit_tests(root: str) -> tuple[str, ...]:
    """Without the old name where the new one is there, and the other way round."""
    old, new, *others = REFIT_TESTS
    return (old if Path(root, old).is_file() else new, *others)
