"""Rules about the checkout of Megatron-Bridge that a spec tests: its proof, and its own Megatron-LM."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from jobspec.evidence.import_lines import BRIDGE, CORE
from jobspec.finding import Finding, error, warning
from jobspec.frameworks.base import Context

OWN_CORE = "3rdparty/Megatron-LM"


def check_proof(context: Context, rule: str, found: bool = False) -> Iterator[Finding]:
    """An error where nothing proves which Bridge runs; `found`: a checkout is known without a proof."""
    proofs = (repo.prove for repo in context.spec.repos if repo.prove is not None)
    if not found and not any(proof.module == BRIDGE for proof in proofs):
        yield error(
            rule,
            f"no repository proves the import of `{BRIDGE}`",
            "every level tests a Bridge checkout; without this proof a run may test an installed package",
            f"add `prove: {{import: {BRIDGE}}}` to the checkout of Megatron-Bridge",
            path="repos",
        )


def check_core(context: Context, rule: str) -> Iterator[Finding]:
    """A warning where no `pythonpath` holds Megatron-Core: the image's is tested then, and nobody sees it."""
    spec = context.spec
    if any(repo.prove is not None and repo.prove.module == CORE for repo in spec.repos):
        return
    bridge = next(
        (at for at, repo in enumerate(spec.repos) if repo.prove is not None and repo.prove.module == BRIDGE),
        None,
    )
    if bridge is None or any(
        _holds_core(context, repo.name, part) for repo in spec.repos for part in repo.pythonpath
    ):
        return
    name = spec.repos[bridge].name
    yield warning(
        rule,
        f"`{OWN_CORE}` of repository `{name}` is not in `pythonpath`",
        "the Bridge is then tested with the Megatron-Core of the image",
        f"add `{OWN_CORE}` to it, or the folder of a copy of it",
        path=f"repos[{bridge}].pythonpath",
    )


def _holds_core(context: Context, name: str, part: str) -> bool:
    """By its name where the folder is not here: a checkout of another machine."""
    folder = Path(context.repo_paths.get(name, ""), part)
    return "megatron-lm" in part.lower() or (folder / "megatron/core").is_dir()
