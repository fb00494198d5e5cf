"""How often `triage` and `judge` are right on labelled files, and how often they state something false.

    python benchmarks/verdict_truth.py [FOLDER]... [--show] [--json]

A FOLDER holds cases (`tests/kits/verdict_cases.py` says their form); without one the sets of the tests are
tried, and our own corpus of failure lines in all its surroundings. A row a set: right, partly right, wrong,
and false statements, which may stand in any of them; then which verdict was given where which was right.
`--show` prints what each case that is not right misses. `--first-try` beside it prints jobspec's own output.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
import tempfile
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from tests.kits.verdict_cases import PARTLY, RIGHT, WRONG, Case, Score, cases, score  # noqa: E402

SETS = ROOT / "tests" / "corpus" / "reported"


def main() -> int:
    options = _parser().parse_args()
    folders = options.folders or [path for path in sorted(SETS.iterdir()) if path.is_dir()]
    tried = {folder.name: [(case, score(case)) for case in cases(folder)] for folder in folders}
    if options.json:
        print(json.dumps({name: [_as_json(*row) for row in rows] for name, rows in tried.items()}, indent=1))
        return 0
    print(f"{'set':<14} {'cases':>5} {'right':>6} {'partly':>6} {'wrong':>6} {'false':>6}")
    for name, rows in tried.items():
        grades = Counter(result.grade for _, result in rows)
        false = sum(bool(result.false) for _, result in rows)
        counts = "".join(f"{grades[grade]:>7}" for grade in (RIGHT, PARTLY, WRONG))
        print(f"{name:<14} {len(rows):>5}{counts}{false:>7}   {grades[RIGHT] / max(1, len(rows)):.0%}")
    if not options.folders:
        right, whole = _own_corpus()
        print(f"{'own corpus':<14} {whole:>5}{right:>7}{0:>7}{whole - right:>7}{'':>7}   {right / whole:.0%}")
    _confusion([row for rows in tried.values() for row in rows])
    for case, result in (row for rows in tried.values() for row in rows if options.show):
        if result.grade != RIGHT or result.false:
            print(f"\n== {case.name}: {result.grade}")
            print("\n".join(f"   misses {text}" for text in result.missing))
            print("\n".join(f"   FALSE  {text}" for text in result.false))
            print(result.output if options.first_try else "", end="")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folders", nargs="*", type=Path)
    parser.add_argument("--show", action="store_true")
    parser.add_argument("--first-try", action="store_true")
    parser.add_argument("--json", action="store_true")
    return parser


def _as_json(case: Case, result: Score) -> dict[str, object]:
    return {
        "case": case.name,
        "grade": result.grade,
        "verdict": result.verdict,
        "missing": result.missing,
        "false": result.false,
    }


def _own_corpus() -> tuple[int, int]:
    """First causes that are right, and all, over our own failure lines in their surroundings."""
    from tests.corpus.corpus_kit import SURROUNDINGS, public_cases, shown

    right = whole = 0
    for case in public_cases():
        for surrounding in SURROUNDINGS:
            with tempfile.TemporaryDirectory() as folder:
                match = shown(case, surrounding, Path(folder))
            whole += 1
            right += match is not None and (match.signature, match.kind) == (case.signature, case.kind)
    return right, whole


def _confusion(rows: list[tuple[Case, Score]]) -> None:
    pairs = Counter((case.answer["command"], case.expected, result.verdict) for case, result in rows)
    print(f"\n{'command':<8} {'right is':<26} {'was given':<13} cases")
    for (command, expected, given), count in sorted(pairs.items()):
        print(f"{command:<8} {expected:<26} {given:<13} {count:>5}")


if __name__ == "__main__":
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # `| head` ends it, as it ends other commands
    raise SystemExit(main())
