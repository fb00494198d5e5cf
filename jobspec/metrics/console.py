"""Metrics that programs print: the last resort, where no metric file exists.

Each format has one small parser. The parsers are tried in order on every cleaned line; a new framework adds
its parser to `PARSERS`. Lines are read as a stream. A line that was cut off gives its whole values. A dict of
several lines is put together from the lines of its process, since others print in between.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from sys import intern

from jobspec.finding import Finding, warning
from jobspec.log_text import ACTOR, bare, strip_ansi, to_number, unwrap_scalars
from jobspec.metrics.plain_lines import MARKS as PLAIN_MARKS
from jobspec.metrics.plain_lines import PlainSteps, is_plain, parse_plain
from jobspec.metrics.table import Table
from jobspec.metrics.trainer_steps import EPOCH, OWN_MARKS, SWIFT_STEP, TrainerSteps
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
NEMO_HEAD = re.compile(r"^=+ (?:Epoch|Step) \d|^Logged data to ")
NEMO_EPOCH = re.compile(r"^=+ Epoch (\d{1,9})/\d+ =+")
NEMO_STEP = re.compile(r"^=+ Step (\d{1,15})/\d+ =+")
NEMO_DATA = re.compile(r"^Logged data to \S*train_data_step(\d{1,15})\.jsonl")
NEMO_VALUE = re.compile(r"^\s*[•-] ([A-Z][\w/() ]{2,60}): (\S+?)(?:s|%)?(?: \(\d.*| tokens)?$")
# A progress bar that was not ended may stand before it, the step (OpenRLHF, slime), or a logger's head.
DICT_LINE = re.compile(
    r"(?:^|\]|(?:^|[\s-])(?:step|rollout|perf|eval|iteration) (\d{1,15}):|(?P<head>[-|:>] ))"
    r"\s*(?P<dict>\{['\"]\w.*)$",
    re.IGNORECASE,
)
# SkyRL's console logger: `Step 3:` at the end of a line, and a dict of one item a line below it.
BLOCK_STEP = re.compile(r"(?:^|[\s-])Step (\d{1,15}):\s*$")
BLOCK_LINE = re.compile(r"^\s*\{?(?:['\"][\w/@. -]+['\"]: (?:'[^']*'|[^'{}\[\],]+)[,}]\s*)+$")
# What SkyRL's trainer says of each step, wherever it logs to, and where its steps begin after a resume.
# Older versions say `avg_raw_rewards`. A step that samples again, for want of mixed rewards, says the first
# line of each sampling and the second once.
SKYRL_SAMPLED = re.compile(r" - (reward/avg_pass_at_\d+): (\S+?), (reward/avg_raw_reward): ([^\s,]+)")
SKYRL_REWARD = re.compile(r" - (avg_(?:final|raw)_rewards): (\S+?), (avg_response_length): (\S+)")
SKYRL_NAMES = {
    "avg_final_rewards": "loss/avg_final_rewards",
    "avg_raw_rewards": "loss/avg_raw_rewards",
    "avg_response_length": "generate/avg_num_tokens",
}
SKYRL_STEP = re.compile(r"Finished: 'step', time cost: (\d{1,9}(?:\.\d{1,9})?)s")
SKYRL_RESUME = re.compile(
    r"(?:Resum(?:ing|ed training)|loaded complete checkpoint state) from global_step[:_]? ?(\d{1,15})"
)
# Who prints a line: an actor of Ray, a task of srun, a rank of torchrun.
STREAM = re.compile(rf"^\s*(?:\(({ACTOR} pid=\d+[^()]*)\)|(\d{{1,5}}): |\[((?:rank|default)\d+)\])")
DICT_ITEM = re.compile(r"['\"]([\w/@. -]+)['\"]: ('[^']*'|\"[^\"]*\"|[^,{}\[\]]+)(?=[,}])")
# Every line with a metric holds one of these: the rest is not looked at closer. Each costs a search of the
# whole log, so the marks of lines that need a beginning before them are looked for behind it only.
STEP_HEAD = b"Step"
SKYRL_MARKS = (b"avg_final_rewards", b"avg_raw_reward", b"from global_step", b"Finished: 'step'")
MARKS = (b"step:", STEP_HEAD, b"= Epoch ", b"{", *SKYRL_MARKS, *OWN_MARKS)
VERL_MARK = re.compile(rb"step:[\d\x1b]")  # many messages have `step: 3`; a number may be coloured
NEMO_MARKS, BLOCK_MARK = (b"train_data_step", "\u2022 ".encode(), b"  - "), b"': "
OF_METRICS = (b"epoch", b"step", b"loss", b"reward", b"Step", b"rollout", b"perf ", b"eval", b"iteration")
BLOCK_BYTES = 4 * 1024**2
MAX_BAR_BYTES, MAX_BARS = 512, 64  # of one state, and states that are looked at before a line
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


def read_console(path: Path, name: str = "", plain: bool = False) -> Table:
    """Metrics printed in a log; an empty table when it cannot be opened or prints none.

    With `plain`, lines in no known form count too (`jobspec.metrics.plain_lines`).
    """
    reader = ConsoleReader(name or str(path), plain=plain)
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
    if len(set(reader.printers.values())) > 1:  # pipelines of RLix, each with its own metrics
        who = {line: f"{stream}/" for line, stream in reader.printers.items()}
        placed = (row._replace(metric=who.get(row.line, "") + row.metric) for row in placed)
    findings = (_too_many(reader.source),) if block else ()
    return Table(
        tuple(placed),
        findings,
        reader.trainer.planned or reader.plain_steps.total,
        (reader.source,) if any(one.trains for one in reader.trainer.logged) else (),
    )


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
    """Reads a log piece by piece, as it grows; memory grows with the lines of NeMo-RL and the Trainer alone.

    `feed` takes the next bytes and yields the rows of all lines that are whole by then. `close` reads a last
    line without an end, but not its last value, which may be cut. `skip_line` leaves out the first line, for
    bytes that begin inside a line. With `plain`, lines in no known form count too.
    """

    source: str = ""
    step: int | None = None
    number: int = 0
    rest: bytes = b""
    skyrl: int = 0
    skyrl_open: bool = False
    skip_line: bool = False
    plain: bool = False
    plain_steps: PlainSteps = field(default_factory=PlainSteps)
    nemo: dict[str, NemoSteps] = field(default_factory=dict)
    printers: dict[int, str] = field(default_factory=dict)
    blocks: dict[str, int] = field(default_factory=dict)
    trainer: TrainerSteps = field(default_factory=TrainerSteps)

    def feed(self, data: bytes) -> Iterator[Row]:
        if self.skip_line:
            _, skipped, data = data.partition(b"\n")
            self.skip_line = not skipped
        data = self.rest + data
        end = data.rfind(b"\n") + 1
        self.rest, text = data[end:][-MAX_LINE_BYTES:], data[:end]
        number, read = self.number, 0
        for at, stop in self._marked(text):
            if not self._worth(text[at:stop]):
                continue
            self.number = number = number + text.count(b"\n", read, at)
            self._bar(text, read, at)
            yield from self.line(text[at:stop])
            number, read = number + 1, stop + 1
        self._bar(text, read, end)
        self.number = number + text.count(b"\n", read)

    def _marked(self, text: bytes) -> list[tuple[int, int]]:
        """Where the lines with a mark begin and end."""
        marks = list(MARKS)
        if self.nemo or self.blocks or STEP_HEAD in text:
            marks += (*NEMO_MARKS, BLOCK_MARK)
        if self.plain:
            marks += PLAIN_MARKS
        places = set()
        for mark in marks:
            at = text.find(mark)
            while at >= 0:
                stop = text.find(b"\n", at)
                places.add((text.rfind(b"\n", 0, at) + 1, stop))
                at = text.find(mark, stop + 1)
        return sorted(places)

    def _worth(self, line: bytes) -> bool:
        """Whether a line with a mark is looked at closer, which takes as long as a hundred of these tests."""
        if VERL_MARK.search(line) or b"= Epoch " in line or (self.blocks and BLOCK_MARK in line):
            return True
        if b"Step " in line and (b"= Step " in line or line.rstrip().endswith(b":")):
            return True
        if self.plain and is_plain(line) and any(mark in line for mark in PLAIN_MARKS):
            return True
        if line.count(b"{") == 1 and (BLOCK_MARK in line or b'": ' in line):
            return any(word in line for word in OF_METRICS)
        own = (*SKYRL_MARKS, *OWN_MARKS)
        return any(mark in line for mark in ((*own, *NEMO_MARKS) if self.nemo else own))

    def close(self) -> Iterator[Row]:
        rest, self.rest = self.rest, b""
        part = rest.rsplit(b"\r", 1)[-1]
        if b"{" not in part:  # a dict's value ends with a comma or a brace, another with the line
            part = part.rpartition(b" - ")[0] if b"step:" in part else b""
        yield from self.line(part)

    def line(self, line: bytes) -> Iterator[Row]:
        self.number += 1
        stream = _stream(line)
        for part in line[-MAX_LINE_BYTES:].decode("utf-8", "replace").split("\r"):
            text = bare(part)
            if "%|" in text and self.trainer.bar(stream, text) and "{" not in text:
                continue
            self.trainer.note(text)
            step = self._nemo_rl_step(stream, text)
            printed = self._block(stream, text) or self._skyrl(text) or _parse(text, step)
            if printed is None and self.plain:
                printed = self._plain(text)
            if printed is None:
                continue
            self.step = printed.step if printed.step is not None else self.step
            if stream in self.nemo:
                self.printers[self.number] = stream
            if printed.step is None:
                self.trainer.add(self.number, stream, text, printed.values)
            for metric, value in printed.values:
                yield Row(intern(metric), printed.step, value, None, self.source, self.number)

    def _bar(self, text: bytes, start: int, end: int) -> None:
        """Note the last state of the Trainer's bar in a part of the log; others' bars may stand behind it."""
        for _ in range(MAX_BARS):
            at = text.rfind(b"%|", start, end)
            if at < 0:
                break
            end = max(text.rfind(b"\r", start, at), text.rfind(b"\n", start, at), start)
            state = text[end : at + MAX_BAR_BYTES].strip(b"\r\n").splitlines()[0]
            if self.trainer.bar(_stream(state), bare(state.decode("utf-8", "replace"))):
                break

    def _plain(self, text: str) -> Printed | None:
        line = parse_plain(text)
        return None if line is None else Printed(self.plain_steps.note(line), line.values)

    def _block(self, stream: str, text: str) -> Printed | None:
        """What a line says of the dict that its process began below `Step N:`."""
        if "Step " in text and (match := BLOCK_STEP.search(text)) is not None:
            self.blocks[stream] = int(match[1])
        elif stream in self.blocks:
            step, whole = self.blocks[stream], BLOCK_LINE.match(text) is not None
            if not whole or text.rstrip().endswith("}"):
                del self.blocks[stream]
            return Printed(step, _items(text)) if whole else None
        return None

    def _skyrl(self, text: str) -> Printed | None:
        """The next step's reward, and the time of a step that is done. Source: SkyRL `trainer.py`."""
        if (resume := SKYRL_RESUME.search(text)) is not None:
            self.skyrl = int(resume[1])
        if (done := SKYRL_STEP.search(text)) is not None:
            self.skyrl, self.skyrl_open = self.skyrl + 1, False
            return Printed(self.skyrl, [("timing/step", float(done[1]))])
        rewarded = SKYRL_REWARD.search(text)
        match = rewarded or SKYRL_SAMPLED.search(text)
        if match is None:
            return None
        self.skyrl += self.skyrl_open  # a log that says nothing of the end of steps
        self.skyrl_open = rewarded is not None
        pairs = (match.group(1, 2), match.group(3, 4))
        values = ((SKYRL_NAMES.get(name, name), to_number(number)) for name, number in pairs)
        return Printed(self.skyrl + 1, [(name, value) for name, value in values if value is not None])

    def _nemo_rl_step(self, stream: str, text: str) -> int | None:
        """The step of NeMo-RL's block that a line stands in; two pipelines of RLix print in one log."""
        if NEMO_HEAD.match(text):
            self.nemo.setdefault(stream, NemoSteps()).note(text)
        steps = self.nemo.get(stream)
        return steps.step if steps is not None and steps.header else None


@dataclass
class NemoSteps:
    """NeMo-RL's step over all epochs: its headers start anew in each epoch.

    The name of a step's data file holds that number; early releases, of one epoch, count the files from 0.
    Source: NeMo-RL `algorithms/grpo.py`.
    """

    epoch: int = 0
    header: int = 0
    base: int = 0
    step: int = 0

    def note(self, text: str) -> None:
        if (match := NEMO_DATA.match(text)) is not None and self.header:
            self.base = max(0, int(match[1]) - self.header)
            self.step = self.base + self.header
        elif (match := NEMO_EPOCH.match(text)) is not None:
            following = self.epoch and int(match[1]) > self.epoch
            self.base = self.base + self.header if following else 0
            self.epoch, self.header = int(match[1]), 0
        elif (match := NEMO_STEP.match(text)) is not None:
            self.header = int(match[1])
            self.step = self.base + self.header


def _stream(line: bytes) -> str:
    if line.startswith((b"{", b"step:", b" ", b"=")):
        return ""
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
    numbers = dict(_items(match["dict"]))
    kept = [(key, value) for key, value in numbers.items() if key not in STEP_NAMES]
    logged_step = next((numbers[key] for key in STEP_NAMES if key in numbers), math.nan)
    if match["head"] and math.isnan(logged_step) and EPOCH not in numbers:
        return None  # a message with a dict, such as settings
    named = SWIFT_STEP.search(line) or match
    at = float(named[1] or logged_step)
    return Printed(int(at) if math.isfinite(at) else None, kept) if kept else None


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
