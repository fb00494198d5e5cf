"""The estimate beside what was measured; `python -m tests.megatron.memory_score` prints the page's table."""

from __future__ import annotations

from jobspec.megatron.memory import Estimate, estimate
from jobspec.units import GIB
from tests.kits.measured import ROWS, Row
from tests.kits.shapes_kit import known

H200 = 141 * GIB
PROCESS = ("CUDA and NCCL", "engine, asleep", "engine, awake")  # what the allocator does not see


def judged(row: Row) -> Estimate:
    return estimate(row.shape, known(row.model), H200)


def is_right(row: Row) -> bool:
    """Whether what ran is no error, and what ran out of memory an error or a warning."""
    return said(row) != "error" if row.fits else said(row) != "fits"


def said(row: Row) -> str:
    """What `validate` says of a row: `fits`, `warning` or `error`."""
    found = judged(row)
    return "error" if found.is_hopeless else "fits" if found.outcome == "fits" else "warning"


def allocated(row: Row) -> float:
    """What the allocator of the fullest GPU would report, in GB as the measurements are."""
    parts = judged(row).worst.parts
    return sum(part.bytes for part in parts if part.name not in PROCESS) / 1e9


def table() -> str:
    lines = ["| Measured case | Was | Estimate (GiB) | Verdict | |", "| --- | --- | --- | --- | --- |"]
    for row in ROWS:
        if row.fits is None:
            lines.append(f"| {row.name} | invalid | | refused by `megatron.layers` | |")
            continue
        found = judged(row)
        was = "fits" if row.fits else "out of memory"
        size = f"{found.worst.bytes / GIB:.0f} of {found.usable / GIB:.0f}"
        lines.append(
            f"| {row.name} | {was} | {size} | {said(row)} | {'' if is_right(row) else '**wrong**'} |"
        )
    return "\n".join(lines)


def main() -> None:
    rows = [row for row in ROWS if row.fits is not None]
    print(table())
    print(f"\n{sum(is_right(row) for row in rows)} of {len(rows)} right")


if __name__ == "__main__":
    main()
