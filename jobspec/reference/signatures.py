"""The table in docs/troubleshooting.md; `python -m jobspec.reference.signatures` renews it in place."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from jobspec.reference.marks import renew, with_part
from jobspec.triage.signatures import Fix, Signature, load_signatures

MAKER = "jobspec.reference.signatures"
PAGE = "docs/troubleshooting.md"
AREAS = {
    "slurm": "Slurm and the allocation",
    "container": "Containers",
    "ray": "Ray",
    "cloud": "Machines of a cloud",
    "network": "Network and ports",
    "gpu": "GPUs",
    "disk": "Disks",
    "hub": "Hugging Face hub and its cache",
    "data": "Data",
    "model": "Model and checkpoint files",
    "limits": "Limits of the job",
    "host": "Host memory and crashes in native code",
    "engine": "Rollout engines",
    "train": "Trainers",
    "build": "Building helpers and kernels",
    "image": "Packages of the image",
    "env": "Environment",
    "config": "Configuration",
    "rlix": "Pipelines that share GPUs (RLix)",
    "provider": "What is tested",
    "driver": "jobspec's own driver",
    "effect": "Effects: look for the cause above them",
    "note": "Notes: worth knowing, never a cause",
}


def table() -> str:
    """Markdown: one section per area, one row per signature."""
    signatures = load_signatures()
    return "\n\n".join(_section(area, title, signatures) for area, title in AREAS.items()) + "\n"


def with_table(page: str) -> str:
    """The page with a fresh table. Raises: ValueError when its two marks are not there once each."""
    return with_part(page, MAKER, table())


def _section(area: str, title: str, signatures: tuple[Signature, ...]) -> str:
    head = [
        f"### {title}",
        "",
        "| Signature | Verdict | What it means | Next step |",
        "| --- | --- | --- | --- |",
    ]
    return "\n".join([*head, *(_row(item) for item in signatures if item.id.split(".")[0] == area)])


def _row(item: Signature) -> str:
    return f"| {' | '.join(_cells(item))} |"


def _cells(item: Signature) -> Iterator[str]:
    yield f"[`{item.id}`]({item.source})" if item.source else f"`{item.id}`"
    yield f"{item.verdict}, if nothing else is found" if item.generic else item.verdict
    yield item.title.replace("|", "\\|")
    yield "<br>".join(_steps(item.fix)).replace("|", "\\|")


def _steps(fix: Fix) -> Iterator[str]:
    for words, step in fix.steps:
        head = f"`{words.pattern}`: " if words.pattern else "else: " if len(fix.steps) > 1 else ""
        yield f"{head}{step}"


def main(root: Path | None = None) -> None:
    """Renew the page below `root`, the current folder by default."""
    renew((root or Path.cwd()) / PAGE, MAKER, table())


if __name__ == "__main__":
    main()
