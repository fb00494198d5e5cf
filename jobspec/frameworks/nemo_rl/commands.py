"""What runs for a variant: short bash around `runtime/drivers/nemo_rl/script_run.py`, outside values quoted.

The agent exports the spec's environment inside the container, so it wins over the image's own variables.
Values that only the run knows (its folders) are variables of the shell.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from jobspec.frameworks.nemo_rl.variant import Variant
from jobspec.frameworks.shared.nemo_recipe import SIZES
from jobspec.plan import CommandPlan

PROBE, ANNOUNCE = "bridge-import", "announce-address"
TP_GUARD = "NRL_IGNORE_TP_ACCURACY_CHECK"
WORKER = "nemo_rl.models.policy.workers.megatron_policy_worker.MegatronPolicyWorker"
RUNNER, ADDRESS = "jobspec.runtime.drivers.nemo_rl.script_run", "jobspec.runtime.drivers.nemo_rl.own_address"
CHECK_ROUTES = "tools/check_r3_trace.py"
CHECK_METRICS, DUMP_EVENTS = "tests/check_metrics.py", "tests/json_dump_tb_logs.py"
# Every maintained script sets these; recipes turn on W&B, which needs a network and an account.
ENTRY = (
    "logger.tensorboard_enabled=true",
    "logger.wandb_enabled=false",
    "logger.monitor_gpus=true",
    "checkpointing.enabled=false",
)
LOOK_UP = """\
import importlib.util as u, sys
for name in ('megatron.bridge', 'megatron.core'):
    s = u.find_spec('megatron') and u.find_spec(name)
    if s is not None:
        print('jobspec: %s from' % name, s.origin)
    elif name == 'megatron.bridge':
        sys.exit('jobspec: blocked: %s finds no megatron.bridge' % sys.executable)"""
# NeMo-RL's images have a wrapper and a folder of environments; elsewhere NeMo-RL makes them in `venvs`.
WORKER_PYTHONS = (
    "python-MegatronPolicyWorker",
    f'"${{NEMO_RL_VENV_DIR:-/opt/ray_venvs}}/{WORKER}/bin/python"',
    f"venvs/{WORKER}/bin/python",
)
FOLDERS = """\
unset {guard}  # any value, even 0, switches off a check that evidence needs
kept=$JOBSPEC_ATTEMPT_DIR/nemo_rl/{name}
# A conversion that exists makes NeMo-RL skip the import from Hugging Face weights: each attempt has its own.
export NRL_MEGATRON_CHECKPOINT_DIR="$kept/hf-import" RAY_DEDUP_LOGS=0 PYTHONIOENCODING=utf-8
export TORCH_CUDA_ARCH_LIST="${{TORCH_CUDA_ARCH_LIST:-9.0 10.0}}"  # the image's; Megatron workers want one
"""
# NeMo-RL resumes from any `step_N`, even with checkpoints off: so each attempt has its own folder.
CHECKPOINTS = """\
checkpoints=$JOBSPEC_CHECKPOINT_DIR/${{JOBSPEC_RUN_DIR##*/}}/attempt-$JOBSPEC_ATTEMPT/{name}
"""
# Source: NeMo-RL's docs/guides/router-replay.md; the maintained suite with a trace sets the same.
TRACE = """\
export NRL_R3_TRACE=1 NRL_R3_TRACE_VERIFY_FORWARD=1 NRL_R3_TRACE_DIR="$kept/r3_trace"
export NRL_R3_TRACE_STEPS=1 NRL_R3_TRACE_SAMPLES=1 NRL_R3_TRACE_MICROBATCHES=1
"""


@dataclass(frozen=True)
class Setting:
    """The spec's part of a variant's command. `overrides` are `key=value`, and later ones win."""

    root: str
    python: str = "python3"
    nodes: int = 1
    gpus: int = 0
    overrides: tuple[str, ...] = ()
    model: bool = False
    own_ray: bool = False


def bridge_command(setting: Setting) -> CommandPlan:
    """A command that prints where the Megatron worker's interpreter finds the Bridge.

    The driver's interpreter has no Megatron.
    """
    code = shlex.quote(LOOK_UP)
    text = (
        f"for python in {' '.join(WORKER_PYTHONS)}; do\n"
        f'  if command -v "$python" >/dev/null; then exec "$python" -c {code}; fi\n'
        f"done\nexec uv run --no-sync --extra mcore python -c {code}\n"
    )
    return _bash(PROBE, text, setting)


def announce_command(setting: Setting, nodes: int) -> CommandPlan:
    """A command that prints each node's announced address, found as every client of Mooncake finds it."""
    return CommandPlan(ANNOUNCE, (setting.python, "-m", ADDRESS, str(nodes)), on="all")


def variant_command(setting: Setting, variant: Variant, fetches: str = "") -> CommandPlan:
    """The command of a variant. `fetches` is a git URL from which its actors install while it runs."""
    lines = [FOLDERS.format(guard=TP_GUARD, name=variant.name)]
    lines += [CHECKPOINTS.format(name=variant.name)] if not variant.own_checkpoint_dir else []
    lines += ["unset RAY_ADDRESS\n"] if setting.own_ray else []
    lines += [f"export {name}={shlex.quote(value)}\n" for name, value in variant.env.items()]
    lines += [TRACE] if variant.trace else []
    lines += _early(variant, fetches)
    lines.append(_words([*_runner(setting, variant), "--", *_training(setting, variant)]))
    lines += _metrics(variant) if variant.is_entry else ()
    lines += [_routes(setting)] if variant.trace else []
    return _bash(variant.name, "".join(lines), setting)


def _bash(name: str, text: str, setting: Setting) -> CommandPlan:
    return CommandPlan(name, (text,), shell=True, cwd=setting.root)  # noqa: S604 - plain data, starts nothing


def _words(words: Sequence[str]) -> str:
    return " \\\n  ".join(words) + "\n"


def _early(variant: Variant, fetches: str) -> Iterator[str]:
    """Lines that try early what would else fail minutes into the training, or after it."""
    if not variant.is_entry and variant.checks:
        # uv makes an environment for this script's own requirement, from its cache or the network.
        what = f"{CHECK_METRICS} needs package rich from uv's cache or a network"
        yield f"uv run {CHECK_METRICS} --help >/dev/null || {_blocked(what)}\n"
    if fetches:
        what = f"actors of the data plane install TransferQueue from {fetches}, which is not reachable"
        yield f"timeout 60 git ls-remote {shlex.quote(fetches)} HEAD >/dev/null || {_blocked(what)}\n"


def _blocked(what: str) -> str:
    return f"{{ echo {shlex.quote(f'jobspec: blocked: {what}')} >&2; exit 3; }}"


def _runner(setting: Setting, variant: Variant) -> Iterator[str]:
    yield f"{shlex.quote(setting.python)} -m {RUNNER}"
    # Converted weights are as large as the model, and the next attempt must not find them.
    yield f'--kept "$kept" --metrics "$JOBSPEC_METRICS_DIR/{variant.name}" --scratch "$kept/hf-import"'
    if variant.is_entry:
        yield '--outputs "$kept"'
    else:
        yield f"--outputs {shlex.quote(variant.outputs)} --hold {shlex.quote(variant.script)}"
        yield from (f"--file {shlex.quote(name)}" for name in variant.metrics)
    if not variant.own_checkpoint_dir:
        yield '--checkpoints "$checkpoints"'
    for pattern in variant.leftovers:
        yield f"--leftover {shlex.quote(pattern)}"
    if variant.max_capability:
        yield f"--below-capability {shlex.quote(variant.max_capability)}"
    if setting.own_ray:
        yield "--own-ray"


def _training(setting: Setting, variant: Variant) -> Iterator[str]:
    if variant.is_entry:
        yield f"uv run --no-sync python {shlex.quote(variant.script)} --config {shlex.quote(variant.config)}"
        yield from (shlex.quote(text) for text in (*ENTRY, *_size(setting, variant)))
        yield 'logger.log_dir="$kept/logs"'
    else:
        yield f"uv run --no-sync bash {shlex.quote(variant.script)}"
    yield from (shlex.quote(text) for text in setting.overrides)
    if not variant.own_checkpoint_dir:
        yield 'checkpointing.checkpoint_dir="$checkpoints"'
    if setting.model:
        yield from (f'{key}="$JOBSPEC_MODEL_PATH"' for key in variant.model_keys)
    elif variant.is_entry and not variant.config.startswith("examples/configs/recipes"):
        yield from (shlex.quote(f"{key}={variant.model}") for key in variant.model_keys)


def _size(setting: Setting, variant: Variant) -> Iterator[str]:
    yield f"cluster.num_nodes={variant.nodes or setting.nodes}"
    yield f"cluster.gpus_per_node={variant.gpus if variant.nodes else setting.gpus}"


def _metrics(variant: Variant) -> Iterator[str]:
    """The checkout's own tools, used as in its scripts, but without an environment of uv's."""
    file = f'"$JOBSPEC_METRICS_DIR/{variant.name}/{variant.metrics[0]}"'
    yield f'uv run --no-sync python {DUMP_EVENTS} "$kept/logs" --output_path {file}\n'
    checks = [shlex.quote(check.text) for check in variant.metric_checks]
    yield _words([f"uv run --no-sync python {CHECK_METRICS} {file}", *checks])


def _routes(setting: Setting) -> str:
    """The check that vLLM chose, the data plane carried and Megatron replayed the same routes."""
    alone = f"{SIZES['cp']}=1" in setting.overrides  # without slices there is no identity to verify
    identity = [] if alone else ["--require-cp-identity"]
    words = [f'uv run --no-sync python {CHECK_ROUTES} "$kept/r3_trace"', "--require-forward-verify"]
    return _words([*words, *identity])
