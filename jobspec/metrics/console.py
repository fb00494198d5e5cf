"""Metrics that programs print: the last resort, where no metric file exists.

Each format has one small parser. The parsers are tried in order on every cleaned line; a new framework adds
its parser to `PARSERS`. Lines are read as a stream. A line that was cut off gives its whole values. A dict of
several lines is put together from the lines of its process, since others print in between.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from sys import intern

from jobspec.finding import Finding, warning
from jobspec.log_text import bare, strip_ansi, to_number, unwrap_scalars
from jobspec.metrics.table import Table
from jobspec.metrics.trainer_steps import OWN_MARKS, TrainerSteps, last_bars
from jobspec.runtime.base.metric_files import Row
from jobspec.runtime.base.run_files import open_file

Values = list[tuple[str, float]]


@dataclass(frozen=True)
class Printed:
    """What one line says. `step` alone opens a step whose values follow on later lines."""

    step: int | None
    values: Values


# Digits are bounded: Python refuses to read a number of thousands, and no run has so many steps.
VERL_STEP = re.compile(r"^step:(\d{1,15}) - ")
# Another worker's unfinished line may stand before it.
VERL_INSIDE = re.compile(r"\) ?(step:\d{1,15} - .*)$")
NEMO_EPOCH = re.compile(r"^=+ Epoch (\d{1,9})/\d+ =+")
NEMO_STEP = re.compile(r"^=+ Step (\d{1,15})/\d+ =+")
NEMO_DATA = re.compile(r"^Logged data to \S*train_data_step(\d{1,15})\.jsonl")
NEMO_VALUE = re.compile(r"^\s*[•-] ([A-Z][\w/() ]{2,60}): (\S+?)(?:s|%)?(?: \(\d.*| tokens)?$")
# A progress bar that was not ended may stand before it, or a name for the step: OpenRLHF, slime.
DICT_LINE = re.compile(
    r"(?:^|\]|(?:^|[\s-])(?:step|rollout|perf|eval|iteration) (\d{1,15}):)\s*(\{['\"]\w.*)$", re.IGNORECASE
)
# SkyRL's console logger: `Step 3:` at the end of a line, and a dict of one item a line below it.
BLOCK_STEP = re.compile(r"(?:^|[\s-])Step (\d{1,15}):\s*$")
BLOCK_LINE = re.compile(r"^\s*\{?(?:['\"][\w/@. -]+['\"]: (?:'[^']*'|[^'{}\[\],]+)[,}]\s*)+$")
# Who prints a line: an actor of Ray, a task of srun, a rank of torchrun.
STREAM = re.compile(r"^\s*(?:\(([^()]{1,120}? pid=\d+[^()]*)\)|(\d{1,5}): |\[((?:rank|default)\d+)\])")
DICT_ITEM = re.compile(r"['\"]([\w/@. -]+)['\"]: ('[^']*'|\"[^\"]*\"|[^,{}\[\]]+)(?=[,}])")
# Every line with a metric holds one of these: the rest is not looked at closer.
MARKS = (
    b"step:", b" Step ", b"= Epoch ", b"train_data_step", "\u2022 ".encode(), b"  - ", b"': ",
    b'{"', *OWN_MARKS,
)  # fmt: skip
BLOCK_BYTES = 4 * 1024**2
MAX_BAR_BYTES = 512
MAX_VALUES = 2_000_000  # of one log: the memory for more is not there on every login node
MAX_LINE_BYTES = 64 * 1024  # the longest metric lines of verl have about 6 KB
Parser = Callable[[str, int | None], Printed | None]
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
    reader = ConsoleReader(name or str(path))
    rows: list[Row] = []
    try:
        with open_file(path) as file:
            while (block := file.read(BLOCK_BYTES)) and len(rows) < MAX_VALUES:
                rows.extend(reader.feed(block))
    except OSError:
        block = b""
    rows.extend(() if block else reader.close())
    steps = reader.trainer.steps()
    placed = (row if row.step is not None else row._replace(step=steps.get(row.line)) for row in rows)
    return Table(tuple(placed), (_too_many(reader.source),) if block else (), reader.trainer.planned)


def _too_many(source: str) -> Finding:
    what, why = "metrics cannot be read in full", f"the log prints more than {MAX_VALUES:,} values"
    return warning("metrics.unreadable", what, why, "judge the run by its metric files", file=source)


def parse_console(lines: Iterable[str], source: str = "") -> Iterator[Row]:
    """Rows of the printed metrics in `lines`; line numbers count line feeds, not carriage returns."""
    reader = ConsoleReader(source)
    for line in lines:
        data = line.encode("utf-8", "replace")
        yield from reader.feed(data if data.endswith(b"\n") else data + b"\n")


@dataclass
class ConsoleReader:
    """Reads a log piece by piece, as it grows; memory grows with the Trainer's dicts alone.

    `feed` takes the next bytes and yields the rows of all lines that are whole by then. `close` reads a last
    line without an end, but not its last value, which may be cut. `skip_line` leaves out the first line, for
    bytes that begin inside a line.
    """

    source: str = ""
    step: int | None = None
    number: int = 0
    rest: bytes = b""
    epoch: int = 0
    header: int = 0
    base: int = 0
    skip_line: bool = False
    blocks: dict[str, int] = field(default_factory=dict)
    trainer: TrainerSteps = field(default_factory=TrainerSteps)

    def feed(self, data: bytes) -> Iterator[Row]:
        if self.skip_line:
            _, end, data = data.partition(b"\n")
            self.skip_line = not end
        *lines, rest = (self.rest + data).split(b"\n")
        self.rest = rest[-MAX_LINE_BYTES:]
        first = self.number
        marks = [mark for mark in MARKS if mark in data or (lines and mark in lines[0])]
        marked = {at for mark in marks for at, line in enumerate(lines) if mark in line}
        since = 0
        for at in sorted(marked):
            self.number = first + at
            yield from self.line(lines[at], lines[since:at])
            since = at + 1
        self._bar(lines[since:])
        self.number = first + len(lines)

    def close(self) -> Iterator[Row]:
        rest, self.rest = self.rest, b""
        part = rest.rsplit(b"\r", 1)[-1]
        if b"{" not in part:  # a dict's value ends with a comma or a brace, another with the line
            part = part.rpartition(b" - ")[0] if b"step:" in part else b""
        yield from self.line(part)

    def line(self, line: bytes, before: Sequence[bytes] = ()) -> Iterator[Row]:
        """The rows of one line; `before` are the lines since the one that was read last."""
        self.number += 1
        self._bar(before)
        stream = _stream(line)
        for part in line[-MAX_LINE_BYTES:].decode("utf-8", "replace").split("\r"):
            text = bare(part)
            if "%|" in text and self.trainer.bar(stream, text) and "{" not in text:
                continue
            self.trainer.note(text)
            self._nemo_rl_step(text)
            printed = self._block(stream, text) or _parse(text, self.step)
            if printed is None:
                continue
            self.step = printed.step if printed.step is not None else self.step
            if printed.step is None:
                self.trainer.add(self.number, stream, text, printed.values)
            for metric, value in printed.values:
                yield Row(intern(metric), printed.step, value, None, self.source, self.number)

    def _bar(self, lines: Sequence[bytes]) -> None:
        """Note the last state of the Trainer's bar in `lines`, of each process that printed one."""
        for state in last_bars(reversed(lines)):
            if self.trainer.bar(_stream(state), bare(state[:MAX_BAR_BYTES].decode("utf-8", "replace"))):
                break

    def _block(self, stream: str, text: str) -> Printed | None:
        """What a line says of the dict that its process began below `Step N:`."""
        if (match := BLOCK_STEP.search(text)) is not None:
            self.blocks[stream] = int(match[1])
        elif stream in self.blocks:
            step, whole = self.blocks[stream], BLOCK_LINE.match(text) is not None
            if not whole or text.rstrip().endswith("}"):
                del self.blocks[stream]
            return Printed(step, _items(text)) if whole else None
        return None

    def _nemo_rl_step(self, text: str) -> None:
        """Keep the number of NeMo-RL's step over all epochs: its headers start anew in each epoch.

        The name of a step's data file holds that number. Source: NeMo-RL `algorithms/grpo.py`.
        """
        if (match := NEMO_DATA.match(text)) is not None and self.header:
            self.step = int(match[1])
            self.base = self.step - self.header
        elif (match := NEMO_EPOCH.match(text)) is not None:
            following = self.epoch and int(match[1]) > self.epoch
            self.base = self.base + self.header if following else 0
            self.epoch, self.header = int(match[1]), 0
        elif (match := NEMO_STEP.match(text)) is not None:
            self.header = int(match[1])
            self.step = self.base + self.header


def _stream(line: bytes) -> str:
    match = STREAM.match(strip_ansi(line[:MAX_BAR_BYTES].decode("utf-8", "replace")))
    return "" if match is None else next(group for group in match.groups() if group)


def _parse(line: str, step: int | None) -> Printed | None:
    return next((printed for parser in PARSERS if (printed := parser(line, step)) is not None), None)


def parse_verl(line: str, step: int | None) -> Printed | None:
    """`step:3 - actor/loss:0.1 - critic/score/mean:np.float64(0.5)`. Source: verl `utils/logger`."""
    if ") step:" in line or ")step:" in line:
        inside = VERL_INSIDE.search(line)
        line = inside[1] if inside is not None else line
    match = VERL_STEP.match(line)
    if match is None:
        return None
    values: Values = []
    for item in unwrap_scalars(line[match.end() :]).split(" - "):
        metric, _, text = item.rpartition(":")
        number = to_number(text)
        if metric and number is not None:
            values.append((metric, number))
    return Printed(int(match[1]), values)


def parse_dict(line: str, step: int | None) -> Printed | None:
    """`{'loss': 0.1, 'grad_norm': nan, 'step': 3}`, as the Hugging Face Trainer and TRL print it."""
    match = DICT_LINE.search(line)
    if match is None or line.count("{") > 1:  # a printed configuration is nested
        return None
    numbers = dict(_items(match[2]))
    kept = [(key, value) for key, value in numbers.items() if key not in STEP_NAMES]
    logged_step = next((numbers[key] for key in STEP_NAMES if key in numbers), math.nan)
    step = int(logged_step) if math.isfinite(logged_step) else None
    return Printed(int(match[1]) if match[1] else step, kept) if kept else None


def _items(text: str) -> Values:
    """The numbers of a printed dict, or of a line of one."""
    values = ((key, to_number(value)) for key, value in DICT_ITEM.findall(unwrap_scalars(text)))
    return [(key, value) for key, value in values if value is not None]


def parse_nemo_rl(line: str, step: int | None) -> Printed | None:
    """`• Loss: 0.1` below a step's header. Source: NeMo-RL `algorithms/grpo.py`."""
    match = NEMO_VALUE.match(line) if step is not None else None
    number = to_number(match[2]) if match is not None else None
    if match is None or number is None:
        return None
    return Printed(step, [(NEMO_NAMES.get(match[1], match[1]), number)])


PARSERS: tuple[Parser, ...] = (parse_verl, parse_dict, parse_nemo_rl)
