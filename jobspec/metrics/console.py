"""Metrics that programs print: the last resort, where no metric file exists.

One small parser per format, tried in order on every cleaned line; a new framework adds one to `PARSERS`.
Lines are read as a stream. A line that was cut off gives the values that are whole.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from jobspec.metrics.table import Row, Table
from jobspec.metrics.text import clean, to_number, unwrap_scalars

Values = list[tuple[str, float]]


@dataclass(frozen=True)
class Printed:
    """What one line says. `step` alone opens a step whose values follow on later lines."""

    step: int | None
    values: Values


Parser = Callable[[str, int | None], Printed | None]

VERL_STEP = re.compile(r"^step:(\d+) - ")
NEMO_STEP = re.compile(r"^=+ Step (\d+)/\d+ =+")
NEMO_VALUE = re.compile(r"^\s*[•-] ([A-Z][\w/() ]{2,60}): (\S+?)(?:s|%)?(?: \(\d.*| tokens)?$")
DICT_LINE = re.compile(r"^\s*\{['\"]\w")
DICT_ITEM = re.compile(r"['\"]([\w/@. -]+)['\"]: ('[^']*'|\"[^\"]*\"|[^,{}\[\]]+)(?=[,}])")
# NeMo-RL prints titles for people; its metric files use these names. Source: nemo_rl `algorithms/grpo.py`.
NEMO_NAMES = {
    "Loss": "train/loss",
    "Avg Reward": "train/reward",
    "Generation KL Error": "train/gen_kl_error",
    "Mean Generation Length": "train/mean_gen_tokens_per_sample",
    "Total step time": "timing/train/total_step_time",
    "E2E (Tokens/sec)": "performance/tokens_per_sec",
    "Accuracy": "validation/accuracy",
}
STEP_NAMES = ("step", "global_step", "train_step")


def read_console(path: Path, name: str = "") -> Table:
    """Metrics printed in a log; an empty table when it cannot be opened or prints none."""
    source = name or str(path)
    try:
        with path.open("r", encoding="utf-8", errors="replace", newline="\n") as file:
            return Table(tuple(parse_console(file, source)))
    except OSError:
        return Table()


def parse_console(lines: Iterable[str], source: str = "") -> Iterator[Row]:
    """Rows of the printed metrics in `lines`; line numbers count line feeds, not carriage returns."""
    step: int | None = None
    for number, line in enumerate(lines, 1):
        for part in line.split("\r"):
            printed = _parse(clean(part), step)
            if printed is None:
                continue
            step = printed.step if printed.step is not None else step
            for metric, value in printed.values:
                yield Row(metric, printed.step, value, None, source, number)


def _parse(line: str, step: int | None) -> Printed | None:
    return next((found for parser in PARSERS if (found := parser(line, step)) is not None), None)


def parse_verl(line: str, step: int | None) -> Printed | None:
    """`step:3 - actor/loss:0.1 - critic/score/mean:np.float64(0.5)`. Source: verl `utils/logger`."""
    found = VERL_STEP.match(line)
    if found is None:
        return None
    values: Values = []
    for item in unwrap_scalars(line[found.end() :]).split(" - "):
        metric, _, text = item.rpartition(":")
        number = to_number(text)
        if metric and number is not None:
            values.append((metric, number))
    return Printed(int(found[1]), values)


def parse_dict(line: str, step: int | None) -> Printed | None:
    """`{'loss': 0.1, 'grad_norm': nan, 'step': 3}`, as the Hugging Face Trainer and TRL print it."""
    if not DICT_LINE.match(line) or line.count("{") > 1:  # a printed configuration is nested
        return None
    values = {key: to_number(text) for key, text in DICT_ITEM.findall(unwrap_scalars(line))}
    numbers = {key: value for key, value in values.items() if value is not None}
    own = next((numbers[key] for key in STEP_NAMES if key in numbers), None)
    kept = [(key, value) for key, value in numbers.items() if key not in STEP_NAMES]
    step = int(own) if own is not None and math.isfinite(own) else None
    return Printed(step, kept) if kept else None


def parse_nemo_rl(line: str, step: int | None) -> Printed | None:
    """`=== Step 3/10 ===`, then `• Loss: 0.1` under it. Source: NeMo-RL `algorithms/grpo.py`."""
    opened = NEMO_STEP.match(line)
    if opened is not None:
        return Printed(int(opened[1]), [])
    found = NEMO_VALUE.match(line) if step is not None else None
    number = to_number(found[2]) if found is not None else None
    if found is None or number is None:
        return None
    return Printed(step, [(NEMO_NAMES.get(found[1], found[1]), number)])


PARSERS: tuple[Parser, ...] = (parse_verl, parse_dict, parse_nemo_rl)
