"""A reward that is a function of the user's own: `path/in/repo.py:function` in one of `repos`."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import NamedTuple

from jobspec.finding import Finding, error
from jobspec.frameworks.base import Context
from jobspec.python_text import parsed
from jobspec.words import did_you_mean, one_of


class RewardFile(NamedTuple):
    file: str
    function: str


def find_reward_file(context: Context, reward: str, rule: str) -> RewardFile | Finding:
    """The file and the function that `reward` names, or a finding of `rule` that says what is wrong."""
    name, _, function = reward.rpartition(":")
    candidates = [Path(root) / name for root in context.repo_paths.values()]
    file = next((path for path in candidates if path.is_file()), None)
    # An absent repository may hold the file, and its own finding comes first.
    if file is None and context.absent:
        return RewardFile(str(Path(context.absent[0]) / name), function)
    if file is None:
        paths = ", ".join(f"`{path}`" for path in candidates)
        why = f"looked for {paths}" if paths else "`repos` names no repository"
        what, fix = f"reward file `{name}` is in no repository", "give its path from a repository's root"
        return error(rule, what, why, fix, path="train.reward")
    functions = _functions(file)
    if function not in functions:
        fix = did_you_mean(function, functions) or f"name a function of the file: {one_of(sorted(functions))}"
        return error(rule, f"`{file}` has no function `{function}`", fix=fix, path="train.reward")
    return RewardFile(str(file), function)


def _functions(path: Path) -> frozenset[str]:
    """Names that a module binds at its top level by `def`, assignment or import."""
    try:
        tree = parsed(path.read_bytes())
    except OSError:
        return frozenset()
    body = tree.body if tree else []
    names = {node.name for node in body if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))}
    names |= {t.id for n in body if isinstance(n, ast.Assign) for t in n.targets if isinstance(t, ast.Name)}
    names |= {a.asname or a.name for n in body if isinstance(n, ast.ImportFrom) for a in n.names}
    return frozenset(names)
