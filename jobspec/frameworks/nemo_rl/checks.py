"""`coverage.checks` for NeMo-RL: those of the guide's unit tests that the checkouts have.

By default NeMo-RL's `conftest.py` leaves out every test marked `mcore`, and `--mcore-only` leaves out all
others. A marker expression switches both rules off. So the guide's bare `pytest` would run nothing.
NeMo-RL's own environment with Megatron tests both repositories: the Bridge's own project needs another Python
than the one that trains.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from jobspec.finding import Finding, error, warning
from jobspec.frameworks.base import Context
from jobspec.frameworks.nemo_rl.checkout import find_bridge, find_checkout
from jobspec.frameworks.nemo_rl.variant import Variant
from jobspec.frameworks.shared.repo_tests import PYTEST, Asked, asked_tests, tests_of
from jobspec.plan import CommandPlan

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
TRANSFER_TESTS = (
    "tests/unit/utils/test_weight_transfer.py",  # its name before `test_weight_transfer_stream.py`
    "tests/unit/utils/test_weight_transfer_stream.py",
)
REFIT_TESTS = (
    "tests/unit/models/generation/test_vllm_generation.py",
    "tests/unit/models/generation/test_vllm_utils.py",
)
DATA_PLANE_TESTS = ("tests/unit/data_plane",)
MARKERS = "not (automodel or vllm or sglang or trtllm or nemo_gym or hf_gated)"


def test_commands(context: Context, variants: Sequence[Variant]) -> tuple[CommandPlan, ...]:
    """One command per entry of `coverage.checks` and `coverage.checks_only`."""
    return tuple(_command(context, asked, variants) for asked in asked_tests(context.spec.coverage))


def check_tests(context: Context, variants: Sequence[Variant]) -> Iterator[Finding]:
    """A warning for the guide's tests that a checkout lacks; an error where no test is left."""
    for asked in asked_tests(context.spec.coverage):
        check, path = asked.check, asked.path
        defaults = _defaults(context, check.repo, variants)
        if not (asked.with_guide and defaults):
            continue
        root = context.repo_paths.get(check.repo, "")
        missing = [name for name in defaults if not Path(root, name).exists()]
        if len(missing) == len(defaults) and not (check.tests or check.command):
            what = f"repository `{check.repo}` has none of the tests that the guide names"
            yield error(
                "nemo_rl.checks", what, f"jobspec looked for {_listed(defaults)}", "give `tests`", path=path
            )
        elif missing:
            what = f"repository `{check.repo}` has no {_listed(missing)}: only the other tests run"
            yield warning("nemo_rl.checks", what, "the guide names them", path=path)


def _listed(names: Sequence[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def _command(context: Context, asked: Asked, variants: Sequence[Variant]) -> CommandPlan:
    repo = asked.check.repo
    root, project = context.repo_paths.get(repo, ""), find_checkout(context.repo_paths)
    defaults = _defaults(context, repo, variants)
    tests = tests_of(asked, [name for name in defaults if Path(root, name).exists()])
    argv = asked.check.command or ("python3", *PYTEST)
    if defaults and not asked.check.command:
        environment = ("--project", project, "--extra", "mcore", "--group", "test")
        argv = ("uv", "run", *environment, "python", *PYTEST)
        argv += ("-m", MARKERS) if root == project else ()
    return CommandPlan(asked.name, (*argv, *tests), cwd=root)


def _defaults(context: Context, repo: str, variants: Sequence[Variant]) -> tuple[str, ...]:
    """The guide's tests for a repository and for what the variants touch; none for other repositories."""
    path = context.repo_paths.get(repo, "")
    if path and path == find_checkout(context.repo_paths):
        tests: tuple[str, ...] = (*MEGATRON_TESTS, _transfer_test(path))
        tests += CHECKPOINT_TESTS if any(item.saves or item.resumes for item in variants) else ()
        tests += REFIT_TESTS if any(item.level == 2 for item in variants) else ()
        proofs = [proof for item in variants for proof in item.proofs]
        tests += DATA_PLANE_TESTS if any(proof.startswith("data-plane") for proof in proofs) else ()
        return tests
    return BRIDGE_TESTS if path and path == find_bridge(context.repo_paths) else ()


def _transfer_test(root: str) -> str:
    """The test of the weight transfer by its old or its new name, whichever the checkout has."""
    old, new = TRANSFER_TESTS
    return old if Path(root, old).is_file() else new
