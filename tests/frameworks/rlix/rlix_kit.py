"""Specs of RLix for the tests: the published smoke test on stand-in checkouts, with some keys changed."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml

from jobspec.finding import Finding
from jobspec.planning.resolve import Resolved, resolve
from jobspec.spec.find_site import load_cluster
from jobspec.spec.load import parse_spec
from tests.kits.fake_rlix import make_fake_nemo_fork, make_fake_rlix
from tests.kits.framework_kit import site_text

EXAMPLES = Path(__file__).parents[3] / "examples/rlix"
CONFIG = "examples/configs/grpo_math_1B.yaml"
OVER = "train/overrides"


def make_checkouts(made: Path) -> dict[str, Path]:
    return {
        "rlix": make_fake_rlix(made / "rlix"),
        "fork": make_fake_nemo_fork(made / "RL"),
        "published": make_fake_nemo_fork(made / "published", published=True),
    }


def resolved(
    checkouts: dict[str, Path],
    change: dict[str, Any] | None = None,
    fork: str = "fork",
    gpu_memory: str = "80G",
    **options: Any,
) -> Resolved:
    """The dual smoke test with some keys changed: `pipelines/1/train_gpus` and the like; None removes one."""
    data = yaml.safe_load((EXAMPLES / "dual_smoke.yaml").read_text())
    data["repos"] = [
        {"name": "rlix", "path": str(checkouts["rlix"]), "prove": {"import": "rlix"}},
        {"name": "nemo_rl", "path": str(checkouts[fork])},
    ]
    for key, value in (change or {}).items():
        at: Any = data
        parts: list[Any] = [int(part) if part.isdecimal() else part for part in key.split("/")]
        for part in parts[:-1]:
            at = at[part] if isinstance(part, int) else at.setdefault(part, {})
        if value is None and "~" not in key:
            at.pop(parts[-1], None)
        else:
            at[parts[-1]] = value
    site = checkouts["rlix"].parent / "site.yaml"
    site.write_text(site_text(cpus=64, memory="512G", gpu_memory=gpu_memory))
    env = {"USER": "u", "HOME": "/home/u"}
    loaded = parse_spec(yaml.safe_dump(data, sort_keys=False), env=env)
    return resolve(loaded, load_cluster(None, site, env=env), env=env, **options)


def errors(found: Resolved) -> dict[str, Finding]:
    return {finding.rule: finding for finding in found.findings if finding.is_error}


def pipelines(*given: dict[str, Any]) -> dict[str, Any]:
    return {
        "pipelines": [{"name": f"p{number}", "config": CONFIG, **one} for number, one in enumerate(given)],
        "resources/gpus_per_node": 8,
        "resources/cpus_per_node": 64,
    }


def wrappers(found: Resolved) -> dict[str, Any]:
    """The wrapper files that the run writes, out of the plan alone."""
    assert found.plan is not None
    text = found.plan.commands[-1].argv[0]
    files = re.findall(
        r"""cat > "\$out/configs/"(\S+)\.yaml <<'JOBSPEC_END'\n(.*?)JOBSPEC_END\n""", text, re.S
    )
    return {name: yaml.safe_load(body) for name, body in files}
