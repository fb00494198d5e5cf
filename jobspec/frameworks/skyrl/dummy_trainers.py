"""SkyRL's dummy trainers: real train steps on fabricated answers, to measure speed and memory.

`main_ultra_sweep` and `main_full_ctx` are entrypoints with settings of their own; the first is only in pull
request 1816. So the checkout's source says which settings an entrypoint adds. This module also reads what the
harnesses print.
Source: erictang000/SkyRL 290466b8, examples/train_scripts/full_context/.
"""

from __future__ import annotations

import ast
import itertools
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from jobspec.frameworks.base import Context
from jobspec.log_search import Hints, find_lines
from jobspec.log_text import strip_ansi
from jobspec.metrics import Row, Table
from jobspec.verdict import Deliverable, EvidenceItem, Status

if TYPE_CHECKING:
    from jobspec.evidence.evidence import Evidence

MAIN = "skyrl.train.entrypoints.main_base"
STEPS, RESULTS_FILE = "trainer.num_dummy_steps", "trainer.sweep_results_file"
# Sequences of varied length: the switch and its value, the mean and its default.
VARIED = (
    ("trainer.sweep_mode", "varlen", "trainer.sweep_avg_len", 60000),
    ("trainer.dummy_variable_length", True, "trainer.dummy_mean_len", 70000),
)
TRACKING, SEVERAL = "skyrl/train/utils/tracking.py", "for backend in backends"
STUB = "get_inference_client"  # the harness's own in place of the one that starts engines
TRAINING = "Training"
SWEEP_RESULT = re.compile(r"SWEEP_RESULT (\{.*\})\s*$")
FULL_CONTEXT = re.compile(r"FULLCTX_STEP step=(\d{1,9}) timings=(\{.*?\}) peak_mem=(.*)$")
# The harnesses' names -> the metrics'. `peak_reserved_gb` counts 1e9 bytes, `peak_reserved_GB` 2**30.
NUMBERS = {
    "tokens_per_s": "tokens_per_s",
    "step_time_s": "step_time_s",
    "peak_reserved_gb": "peak_reserved_gb",
    "peak_alloc_gb": "peak_alloc_gb",
    "min_free_gb": "min_free_gb",
    "total_tokens": "total_tokens",
}


def module_of(context: Context) -> str:
    """The Python module that `train.command` starts by `-m`; SkyRL's own entrypoint without one."""
    words = context.spec.train.command or ()
    return next((after for word, after in itertools.pairwise(words) if word == "-m"), MAIN)


def find_checkout(context: Context) -> Path | None:
    """The repository with SkyRL's entrypoint, else one that is given by URL and not cloned yet."""
    checkout = next((Path(p) for p in context.repo_paths.values() if _file(Path(p), MAIN).is_file()), None)
    if checkout is not None:
        return checkout
    remote = (Path(context.repo_paths[repo.name]) for repo in context.spec.repos if repo.url)
    return next((path for path in remote if not path.exists()), None)


def tracks_several(context: Context) -> bool:
    """Whether this SkyRL writes to several trackers at once, as it did before pull request 1713."""
    checkout = find_checkout(context)
    try:
        lines = (checkout / TRACKING).read_text(encoding="utf-8").splitlines() if checkout else []
    except (OSError, UnicodeDecodeError):
        return False
    return any(line.strip().startswith(SEVERAL) for line in lines)


def _file(checkout: Path, module: str) -> Path:
    return checkout / (module.replace(".", "/") + ".py")


def _classes(context: Context) -> tuple[ast.ClassDef, ...] | None:
    """Classes of an entrypoint that is not SkyRL's own; None when the checkout does not have it."""
    module, checkout = module_of(context), find_checkout(context)
    if module == MAIN or checkout is None:
        return ()
    try:
        tree = ast.parse(_file(checkout, module).read_text(encoding="utf-8"))
    except (OSError, SyntaxError, UnicodeDecodeError, ValueError):
        return None
    return tuple(node for node in tree.body if isinstance(node, ast.ClassDef))


def extra_keys(context: Context) -> frozenset[str] | None:
    """Settings that the entrypoint adds to the trainer's; None when the checkout does not have it."""
    classes = _classes(context)
    if classes is None:
        return None
    return frozenset(f"trainer.{name}" for node in classes if _is_trainer(node) for name in _fields(node))


def stubs_engines(context: Context) -> bool:
    """Whether the entrypoint trains without inference engines."""
    methods = (item for node in _classes(context) or () for item in node.body)
    return any(isinstance(item, ast.FunctionDef) and item.name == STUB for item in methods)


def _is_trainer(node: ast.ClassDef) -> bool:
    return any(isinstance(base, ast.Name) and base.id == "TrainerConfig" for base in node.bases)


def _fields(node: ast.ClassDef) -> Iterator[str]:
    for item in node.body:
        if isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name):
            yield item.target.id


def is_dummy(context: Context) -> bool:
    """Whether the entrypoint trains a number of steps on fabricated answers."""
    return STEPS in (extra_keys(context) or ())


def may_be_dummy(context: Context) -> bool:
    """Whether it is one, or its source is not here to tell."""
    checkout = find_checkout(context)
    away = module_of(context) != MAIN and (checkout is None or not checkout.is_dir())
    return away or is_dummy(context)


def read_log(log: Path, source: str) -> Iterator[Row]:
    """Metrics that the harnesses print. The first step counts as step 1; it warms up."""
    for line in find_lines(log, Hints(("SWEEP_RESULT", "FULLCTX_STEP"))):
        text = strip_ansi(line.text)
        if match := SWEEP_RESULT.search(text):
            yield from _sweep_rows(match[1], source, line.number)
        elif match := FULL_CONTEXT.search(text):
            yield from _full_context_rows(match, source, line.number)


def _sweep_rows(text: str, source: str, line: int) -> Iterator[Row]:
    try:
        record = json.loads(text)
    except (ValueError, RecursionError):
        return
    if not isinstance(record, dict) or not isinstance(record.get("step"), int):
        return
    step = record["step"] + 1
    if record.get("oom") or record.get("error"):
        yield Row("oom" if record.get("oom") else "step_failed", step, 1.0, None, source, line)
        return
    for key, metric in NUMBERS.items():
        value = record.get(key)
        if isinstance(value, int | float) and not isinstance(value, bool):
            yield Row(metric, step, float(value), None, source, line)


def _full_context_rows(match: re.Match[str], source: str, line: int) -> Iterator[Row]:
    step = int(match[1])
    for name, value in _numbers(match[2]):
        yield Row(f"timing/{name}", step, value, None, source, line)
        if name == "step":
            yield Row("step_time_s", step, value, None, source, line)
    for name, value in _numbers(match[3].strip()):
        yield Row(f"gpu/{name}", step, value, None, source, line)


def _numbers(text: str) -> Iterator[tuple[str, float]]:
    """The numbers of a printed Python dict; nothing when the text is no dict."""
    try:
        printed = ast.literal_eval(text)
    except (ValueError, SyntaxError, RecursionError, MemoryError):
        return
    if isinstance(printed, dict):
        pairs = ((str(key), value) for key, value in printed.items())
        yield from ((key, float(value)) for key, value in pairs if isinstance(value, int | float))


def read_logs(evidence: Evidence) -> Table:
    """What the harnesses printed in the last attempt."""
    logs = evidence.last.logs if evidence.last else ()
    return Table(tuple(row for log in logs for row in read_log(evidence.root / log.path, log.path)))


def judge(evidence: Evidence) -> Iterator[Deliverable]:
    """`Training`: every planned dummy step gave its time. A failed step ends the harness with exit code 0."""
    table, planned = read_logs(evidence), evidence.plan.expect.steps
    for metric, what in (("oom", "ran out of GPU memory"), ("step_failed", "failed")):
        for row in table.series(metric)[:1]:
            item = EvidenceItem(row.source, row.line)
            yield Deliverable(TRAINING, Status.FAIL, (item,), f"step {row.step} {what}")
            return
    rows = table.series("step_time_s")
    items = tuple(EvidenceItem(row.source, row.line, metric=row.metric, value=row.value) for row in rows[-1:])
    done = f"{len(rows)} of {planned} planned dummy steps ran"
    yield Deliverable(TRAINING, Status.PASS if len(rows) >= planned else Status.FAIL, items, done)
