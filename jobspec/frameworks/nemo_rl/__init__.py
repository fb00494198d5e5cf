"""Framework `nemo_rl`: the functional tests of a NeMo-RL checkout, run and judged as coverage levels."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from jobspec.finding import Finding
from jobspec.frameworks.base import Context, FrameworkPlan, Level
from jobspec.frameworks.nemo_rl import rules
from jobspec.frameworks.nemo_rl.checkout import find_bridge, find_checkout
from jobspec.frameworks.nemo_rl.levels import LEVELS, Variant
from jobspec.plan import CommandPlan, ExpectPlan, LearningPlan

if TYPE_CHECKING:
    from jobspec.evidence import Evidence
    from jobspec.verdict import Deliverable

PROBE = "bridge-import"
WORKER = "nemo_rl.models.policy.workers.megatron_policy_worker.MegatronPolicyWorker"
METRIC_KEYS = {"reward": "train/reward", "loss": "train/loss", "grad norm": "train/grad_norm"}
LIMITATIONS = (
    "the import of Megatron-Bridge is looked up in the Megatron worker's interpreter, not inside the actor",
    "Megatron-Bridge's own tests were not run",
)
# One script leaves its files in the checkout and removes them at its next start: they are copied away, and
# only those of this start. NeMo-RL resumes from whatever `step_N` it finds, so each attempt has its folder.
# An existing conversion makes NeMo-RL skip the import from Hugging Face, so that folder is new as well.
SCRIPT = """\
unset NRL_IGNORE_TP_ACCURACY_CHECK
{exports}cd {root}
kept="$JOBSPEC_ATTEMPT_DIR/nemo_rl/{name}"
checkpoints="$JOBSPEC_CHECKPOINT_DIR/$(basename "$JOBSPEC_RUN_DIR")/attempt-$JOBSPEC_ATTEMPT/{name}"
case "$kept$checkpoints${{JOBSPEC_MODEL_PATH:-}}" in
  *[[:space:]]*) echo "jobspec: the scripts cannot handle a path with spaces" >&2; exit 2 ;;
esac
if [ -e "$checkpoints" ] || [ -e "$kept" ] || compgen -G {leftovers} >/dev/null; then
  echo "jobspec: leftovers would shorten this run: $checkpoints, $kept or {leftovers}" >&2; exit 2
fi
mkdir -p "$kept" "$JOBSPEC_METRICS_DIR/{name}"
touch "$kept/started"
export NRL_MEGATRON_CHECKPOINT_DIR="$kept/hf-import" RAY_DEDUP_LOGS=0 PYTHONIOENCODING=utf-8
keep() {{
  set +e
  local from={outputs}
  find "$from" -newer "$kept/started" \\( -name '*.json' -o -name 'run*.log*' \\) -exec cp {{}} "$kept" \\;
  for file in {metrics}; do
    [ -f "$kept/$file" ] && cp "$kept/$file" "$JOBSPEC_METRICS_DIR/{name}/"
  done
  if ! compgen -G "$JOBSPEC_METRICS_DIR/{name}/*.json" >/dev/null; then
    find "$from" -newer "$kept/started" -name '*tfevents*' -exec cp {{}} "$JOBSPEC_METRICS_DIR/{name}" \\;
  fi
  for info in "$checkpoints"/step_*/training_info.json; do
    [ -d "${{info%/*}}/policy/weights" ] && echo "jobspec: complete checkpoint ${{info%/*}}"
  done
  return 0
}}
trap keep EXIT
uv run --no-sync bash {path} {arguments}
"""
LOOK_UP = """import importlib.util as u
print('jobspec: megatron.bridge from', u.find_spec('megatron.bridge').origin)"""
BRIDGE_SCRIPT = """\
cd {root}
for python in python-MegatronPolicyWorker /opt/ray_venvs/{worker}/bin/python venvs/{worker}/bin/python; do
  if command -v "$python" >/dev/null; then exec "$python" -c {code}; fi
done
exec uv run --no-sync --extra mcore python -c {code}
"""


class NemoRlFramework:
    """One command for each variant, and before them a look-up of Megatron-Bridge where the spec has it."""

    name = "nemo_rl"
    summary = "the functional tests of a NeMo-RL checkout, on Megatron-Bridge and one node"
    levels = LEVELS
    modes = ("ray",)

    def validate(self, context: Context) -> Iterable[Finding]:
        return rules.check(context)

    def plan(self, context: Context) -> FrameworkPlan:
        root, bridge = find_checkout(context.repo_paths), find_bridge(context.repo_paths)
        chosen = rules.variants(context)
        look_up = BRIDGE_SCRIPT.format(root=shlex.quote(root), worker=WORKER, code=shlex.quote(LOOK_UP))
        first = (CommandPlan(PROBE, (look_up,), shell=True),) if bridge else ()  # noqa: S604 - starts nothing
        steps = context.spec.train.steps or chosen[0].steps
        limits = (*LIMITATIONS, *(item.limitation for item in chosen if item.limitation))
        expect = ExpectPlan(
            level=context.level.name,
            variants=tuple(item.name for item in chosen),
            steps=steps,
            metrics_require=context.spec.metrics.require,
            learning=_learning(context),
            files=context.spec.artifacts.require,
            metric_keys=METRIC_KEYS,
            limitations=limits,
            options={"bridge": bridge, "steps": context.spec.train.steps or 0},
        )
        commands = tuple(_command(context, root, item) for item in chosen)
        return FrameworkPlan((*first, *commands), expect=expect, collect=("nemo_rl/*/*.json",))

    def expect(self, level: Level, variants: tuple[str, ...] = (), steps: int = 0) -> ExpectPlan:
        learning = LearningPlan(METRIC_KEYS["reward"]) if level.name == "learning" else None
        return ExpectPlan(
            level=level.name, variants=variants, steps=steps, learning=learning, metric_keys=METRIC_KEYS
        )

    def judge(self, evidence: Evidence) -> Iterable[Deliverable]:
        from jobspec.frameworks.nemo_rl.judge import judge

        return judge(evidence)


def _learning(context: Context) -> LearningPlan | None:
    asked = context.spec.metrics.learning
    if asked is not None:
        return LearningPlan(asked.metric, asked.direction, asked.min_change)
    return LearningPlan("train/reward", "up") if context.level.name == "learning" else None


def _command(context: Context, root: str, variant: Variant) -> CommandPlan:
    arguments = [shlex.quote(text) for text in rules.overrides(context, variant)]
    if not variant.own_checkpoint_dir:
        arguments.append('checkpointing.checkpoint_dir="$checkpoints"')
    if context.spec.model is not None:
        arguments += [f'policy.{key}="$JOBSPEC_MODEL_PATH"' for key in ("model_name", "tokenizer.name")]
    text = SCRIPT.format(
        name=variant.name,
        root=shlex.quote(root),
        outputs=variant.outputs or "/nonexistent",
        path=variant.script,
        exports=_exports({**context.cluster.env, **context.spec.container.env}),
        leftovers=shlex.quote(next(iter(variant.leftovers), "/nonexistent/*")),
        metrics=" ".join(variant.metrics),
        arguments=" ".join(arguments),
    )
    return CommandPlan(variant.name, (text,), shell=True)  # noqa: S604 - plain data, starts nothing


def _exports(env: Mapping[str, str]) -> str:
    """The spec's variables once more: those of a NeMo-RL image win over what a step is started with."""
    return "".join(f"export {key}={shlex.quote(value)}\n" for key, value in sorted(env.items()))
