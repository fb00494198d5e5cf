"""The list of rules that `--allow` knows, against the sources."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from jobspec.checks.rule_names import RULES, check_allowed, known_rules
from jobspec.finding import allow, error, warning
from jobspec.frameworks import BUILT_IN

ROOT = Path(__file__).parents[2]
RULE = re.compile(r"[a-z_]+\.[a-z0-9-]+")
# The functions that are given a rule, as one of their first three arguments.
MAKERS = {
    "error", "warning", "fail", "Finding", "BadReferenceError", "Broken", "Rule", "_add", "_error",
    "_finding", "_unquoted", "check_core", "check_proof", "check_trackers", "owned_key", "refused",
    "too_few_steps", "unknown_variants", "unused_keys",
}  # fmt: skip
# Findings about runs, logs and command lines: no spec has them, so nothing is there to allow.
OTHERS = {
    "check", "compare", "detect", "disk", "evidence", "file", "init", "judge", "run",
    "triage", "usage", "verdict",
}  # fmt: skip
# Rules that no literal beside a maker names: those of constants, and those that a key or a kind completes.
COMPOSED = {
    "spec.kind", "metrics.require", "render.bash", "render.shellcheck", "memory.gpu", "memory.host",
    "resources.gpus-per-node", "resources.cpus-per-node", "resources.memory", "model.unpinned",
    "data.unpinned", "spec.base", "spec.variant",
}  # fmt: skip


def rules_in(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        if not isinstance(node, ast.Call):
            continue
        called = node.func
        name = getattr(called, "id", getattr(called, "attr", ""))
        if name in MAKERS or isinstance(called, ast.IfExp):
            for inner in (item for argument in node.args[:3] for item in ast.walk(argument)):
                if isinstance(inner, ast.Constant) and RULE.fullmatch(str(inner.value)):
                    yield str(inner.value)


def test_the_list_is_that_of_the_sources() -> None:
    """A rule that is missing here could not be allowed; one too many would be accepted without effect."""
    files = [path for folder in ("jobspec", "launchers") for path in (ROOT / folder).rglob("*.py")]
    shared = ("staging/hub.py", "staging/shared.py", "checkouts/git.py")  # of the login node too
    files += [ROOT / "runtime" / name for name in shared]
    found = {rule for path in files for rule in rules_in(path) if rule.split(".")[0] not in OTHERS}
    # Of the job that brings a model, and of the files that a run has left.
    found -= {"stage.job", "metrics.lost-answers", "metrics.several-runs", "metrics.tensorboard"}
    found -= {"metrics.unreadable"}
    known = known_rules()
    missing, idle = sorted((found | COMPOSED) - known), sorted(known - found - COMPOSED)
    assert (missing, idle) == ([], []), "add or remove it in jobspec/checks/rule_names.py"


def test_composed_rules_are_still_made() -> None:
    text = "".join(path.read_text() for path in (ROOT / "jobspec").rglob("*.py"))
    for rule in COMPOSED - {"resources.gpus-per-node", "resources.cpus-per-node"}:
        family, name = rule.split(".")
        assert f'"{rule}"' in text or f".{name}" in text or f'f"{family}.{{' in text, rule


def test_every_adapter_has_rules() -> None:
    assert set(BUILT_IN) <= set(RULES)


@pytest.mark.parametrize(
    ("name", "fix"),
    [
        ("repo.mising", "did you mean `repo.missing`?"),
        ("repo.missing ", "did you mean `repo.missing`?"),
        ("Repo.Missing", "did you mean `repo.missing`?"),
        ("nemo-rl.checkout", "did you mean `nemo_rl.checkout`?"),
        ("repos", "did you mean `repo`?"),
        ("", "copy the name"),
        ("*", "copy the name"),
        ("usage.command", "copy the name"),
        ("skyrl.foo.bar", "copy the name"),
    ],
)
def test_what_is_no_rule(name: str, fix: str) -> None:
    (found,) = check_allowed(["repo.missing", "megatron", name])
    assert (found.rule, found.file) == ("usage.rule", f"--allow {name}")
    assert fix in found.fix


def test_an_error_that_leaves_nothing_stays_one() -> None:
    known = (error("spec.type", "a"), warning("spec.unquoted", "b"))
    assert [item.severity for item in allow(known, ["spec"])] == ["warning", "warning"]
    assert allow(known, ["spec"], usable=False) == known
    more = (*known, error("repo.missing", "c"))
    assert [item.is_error for item in allow(more, ["spec"], usable=False)] == [False, False, True]
