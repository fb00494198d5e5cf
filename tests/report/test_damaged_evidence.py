"""Damaged evidence of every framework: no Pass without proof, no traceback, and what lacks is named."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from jobspec import frameworks
from jobspec.evidence.read import read_evidence
from jobspec.judging import foreign_run
from jobspec.report import FORMATS, render_report
from jobspec.verdict import Result, Verdict
from tests.kits.verdict_kit import T0, RunFolder
from tests.report.damage_kit import MAKERS, healthy, verdict

FRAMEWORKS = list(MAKERS)
ALL = frozenset(FRAMEWORKS)
NO_LOG_NEEDED = frozenset({"trl", "trl, checkpoint", "command", "skyrl"})  # they are judged by metrics
CONSOLE = frozenset({"verl"})  # prints every step with its values: that is evidence, too
DUMP = frozenset({"nemo_rl"})  # one JSON object, not lines
Record = dict[str, Any]


@dataclass(frozen=True)
class Damage:
    """What is done to a healthy run, what every report must say, and where the run is proved all the same."""

    apply: Callable[[RunFolder], None]
    says: str
    still_proved: frozenset[str] = frozenset()
    silent: frozenset[str] = frozenset()  # where there is nothing to say, as nothing was damaged


# -- how to damage -------------------------------------------------------------------------------------


def metric_files(run: RunFolder) -> list[Path]:
    return sorted(path for path in (run.folder / "metrics").rglob("*") if path.is_file())


def on_metrics(change: Callable[[bytes], bytes | None]) -> Callable[[RunFolder], None]:
    def apply(run: RunFolder) -> None:
        for path in metric_files(run):
            changed = change(path.read_bytes())
            path.unlink()
            if changed is not None:
                path.write_bytes(changed)

    return apply


def on_records(change: Callable[[list[Record]], list[Record]]) -> Callable[[RunFolder], None]:
    """Change the records of JSON lines; a JSON dump becomes records of steps, and a dump again."""

    def apply(run: RunFolder) -> None:
        for path in metric_files(run):
            if path.suffix == ".jsonl":
                found = [json.loads(line) for line in path.read_text().splitlines()]
                path.write_text("".join(json.dumps(record) + "\n" for record in change(found)))
            else:
                path.write_text(json.dumps(as_dump(change(as_records(json.loads(path.read_text()))))))

    return apply


def as_records(dump: dict[str, Record]) -> list[Record]:
    steps = sorted({int(step) for values in dump.values() for step in values})
    return [
        {"step": step, **{name: values[str(step)] for name, values in dump.items() if str(step) in values}}
        for step in steps
    ]


def as_dump(found: list[Record]) -> dict[str, Record]:
    names = dict.fromkeys(name for record in found for name in record if name != "step")
    return {name: {str(record["step"]): record[name] for record in found if name in record} for name in names}


def with_last_value(found: list[Record], value: float) -> list[Record]:
    """The last value of every metric replaced, whichever step that is."""
    last = {name: place for place, record in enumerate(found) for name in record.get("data", record)}
    return [
        with_values(record, value, {name for name, at in last.items() if at == place})
        for place, record in enumerate(found)
    ]


def with_values(record: Record, value: Any, names: Collection[str] | None = None) -> Record:
    """Every value, or those of `names`, replaced; not what names or places the step."""
    inner = record.get("data", record)
    wanted = set(inner if names is None else names) - {"step", "time", "training/global_step"}
    changed = {key: value if key in wanted else old for key, old in inner.items()}
    return {**record, "data": changed} if "data" in record else changed


def with_steps(change: Callable[[int], Any]) -> Callable[[RunFolder], None]:
    return on_records(lambda found: [{**record, "step": change(record["step"])} for record in found])


def on_results(change: Callable[[Record], None]) -> Callable[[RunFolder], None]:
    def apply(run: RunFolder) -> None:
        path = run.folder / "results.json"
        data = json.loads(path.read_text())
        change(data)
        path.write_text(json.dumps(data))

    return apply


def on_logs(change: Callable[[str], str | None]) -> Callable[[RunFolder], None]:
    def apply(run: RunFolder) -> None:
        for path in sorted((run.folder / "logs").rglob("*.log")):
            text = change(path.read_text())
            path.unlink()
            if text is not None:
                path.write_text(text)

    return apply


def on_events(change: Callable[[list[Record]], list[Record]]) -> Callable[[RunFolder], None]:
    def apply(run: RunFolder) -> None:
        run.events = change(run.events)
        run.write()

    return apply


def cut(name: str, share: float) -> Callable[[RunFolder], None]:
    def apply(run: RunFolder) -> None:
        path = run.root / name
        path.write_bytes(path.read_bytes()[: int(path.stat().st_size * share)])

    return apply


def gone(name: str) -> Callable[[RunFolder], None]:
    return lambda run: (run.root / name).unlink()


def end(phase: str, outcome: str, node: str = "") -> Record:
    return {"v": 1, "t": T0 + 99, "phase": phase, "event": "end", "node": node, "outcome": outcome}


def new_attempt(run: RunFolder) -> None:
    (run.root / "attempts/2").mkdir()


def new_attempt_that_began(run: RunFolder) -> None:
    later = run.next_attempt()
    later.event("preflight", "start")
    later.write()


def copied_attempt(run: RunFolder) -> None:
    """A folder of attempt 2 whose files are those of attempt 1."""
    shutil.copytree(run.folder, run.root / "attempts/2")


def failed_after_all_steps(data: Record) -> None:
    data["commands"][-1]["exit_code"] = 1
    data.update(outcome="failed", exit_code=1)


def sizes_gone(found: list[Record]) -> list[Record]:
    return [{key: value for key, value in record.items() if key != "checkpoint/bytes"} for record in found]


TRACEBACK = (
    'Traceback (most recent call last):\n  File "/src/x.py", line 3, in f\n    g()\nValueError: boom\n'
)
NO_STEP = r"no train step logged|was not found|no metrics|first missing"
NO_RESULTS = r"`results.json` is missing, torn or of another attempt"

DAMAGES: dict[str, Damage] = {
    # Nothing lacks: order, repetition and clocks are no evidence.
    "records in another order": Damage(on_records(lambda found: found[::-1]), "", ALL),
    "records repeated after a resume": Damage(on_records(lambda found: found + found[-3:]), "", ALL),
    "a clock that jumps in the metrics": Damage(
        on_records(lambda found: [{**record, "time": 1e9 - n} for n, record in enumerate(found)]),
        "",
        ALL,
    ),
    "a clock that jumps in the events": Damage(
        on_events(lambda found: [{**event, "t": event["t"] - 5000 * n} for n, event in enumerate(found)]),
        "",
        ALL,
    ),
    "last lines of the log twice": Damage(
        on_logs(lambda text: text + "".join(text.splitlines(True)[-2:])), "", ALL
    ),
    "a traceback before exit code 0": Damage(on_logs(lambda text: text + TRACEBACK), "ValueError: boom", ALL),
    # Metrics.
    "metrics torn in the last line": Damage(
        on_metrics(lambda data: data.rstrip()[:-7]), "cannot be read in full", CONSOLE | {"command"}
    ),
    "metrics torn in the middle": Damage(
        on_metrics(lambda data: data[: len(data) // 2]), "metrics cannot be read in full", CONSOLE
    ),
    "metrics empty": Damage(on_metrics(lambda data: b""), NO_STEP, CONSOLE, silent=CONSOLE),
    "metrics gone": Damage(on_metrics(lambda data: None), NO_STEP, CONSOLE, silent=CONSOLE),
    "metrics of zeros": Damage(
        on_metrics(lambda data: bytes(len(data))), "metrics cannot be read in full", CONSOLE
    ),
    "last values not a number": Damage(
        on_records(lambda found: with_last_value(found, float("nan"))),
        r"not (?:a )?finite|is nan|not restored",
    ),
    "all values infinite": Damage(
        on_records(lambda found: [with_values(record, float("inf")) for record in found]),
        r"not (?:a )?finite|is inf",
    ),
    "values are text": Damage(
        on_records(lambda found: [with_values(record, "0.5") for record in found]), NO_STEP
    ),
    "steps are text": Damage(with_steps(lambda step: f"step {step}"), NO_STEP, CONSOLE, silent=CONSOLE),
    "steps are fractions": Damage(with_steps(lambda step: step + 0.5), NO_STEP, CONSOLE, silent=CONSOLE),
    "steps of another run": Damage(
        with_steps(lambda step: step + 1000),
        r"first missing|not trained|of another run|continued from step|no complete checkpoint",
        CONSOLE | {"command"},
        silent=CONSOLE | {"command"},
    ),
    "checkpoints without sizes": Damage(
        on_records(sizes_gone),
        "no complete checkpoint was written",
        ALL - {"trl, checkpoint"},
        silent=ALL - {"trl, checkpoint"},
    ),
    # `results.json`.
    "results gone": Damage(gone("attempts/1/results.json"), NO_RESULTS),
    "results half written": Damage(cut("attempts/1/results.json", 0.5), NO_RESULTS),
    "results empty": Damage(cut("attempts/1/results.json", 0), NO_RESULTS),
    "results of another attempt": Damage(on_results(lambda data: data.update(attempt=7)), "attempt 7"),
    "no command in the results": Damage(on_results(lambda data: data.update(commands=[])), "did not start"),
    "exit code unknown": Damage(
        on_results(lambda data: data["commands"][0].update(exit_code=None)), "did not end on its own"
    ),
    "exit code 1 after all steps": Damage(on_results(failed_after_all_steps), "exited with 1"),
    "exit codes disagree": Damage(on_results(lambda data: data.update(exit_code=1)), "with exit code 1"),
    # Logs.
    "log without its end": Damage(
        on_logs(lambda text: "".join(text.splitlines(True)[: -max(2, len(text.splitlines()) // 3)])),
        r"not in the log|did not run|no complete checkpoint|no process|jobspec found no line",
        NO_LOG_NEEDED,
        silent=NO_LOG_NEEDED,
    ),
    "log gone": Damage(on_logs(lambda text: None), r"log of `[\w-]+`, `[\w/.-]+`, is missing", NO_LOG_NEEDED),
    "log empty": Damage(
        on_logs(lambda text: ""),
        r"jobspec found no log|jobspec found no line",
        NO_LOG_NEEDED,
        silent=NO_LOG_NEEDED,
    ),
    # Events.
    "events gone": Damage(gone("attempts/1/events.jsonl"), "no event shows phase `preflight`"),
    "events torn in the last line": Damage(
        cut("attempts/1/events.jsonl", 0.99), "nothing says how collection ended"
    ),
    "preflight ended twice, once badly": Damage(
        on_events(lambda found: [*found, end("preflight", "failed")]), "phase `preflight` ended as `failed`"
    ),
    "preflight ended badly on one node": Damage(
        on_events(lambda found: [*found, end("preflight", "blocked", "n2")]),
        "phase `preflight` ended as `blocked`",
    ),
    "the driver ended twice, once badly": Damage(
        on_events(lambda found: [*found, end("driver", "failed")]), "an event says that it ended as `failed`"
    ),
    # Attempts.
    "a second attempt that left nothing": Damage(new_attempt, "attempt 2 left no evidence"),
    "a second attempt that only began": Damage(new_attempt_that_began, "nothing says how it ended"),
    "a second attempt with the first one's files": Damage(copied_attempt, "is of attempt 1"),
    # The rest.
    "plan gone": Damage(gone("plan.json"), "`plan.json` cannot be read"),
    "plan torn": Damage(cut("plan.json", 0.5), "`plan.json` cannot be read"),
    "manifest gone": Damage(gone("artifacts/manifest.json"), "`manifest.json` is missing or torn"),
    "artifact torn": Damage(cut("artifacts/notes.txt", 0.4), "is missing or has another size"),
}


def report(run: RunFolder, found: Verdict) -> str:
    """Every form is written without an error; the text is what people read."""
    evidence = read_evidence(run.root)
    forms = {fmt: render_report(found, evidence, fmt) for fmt in (*FORMATS, "summary")}
    return forms["text"]


# -- tests ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_undamaged_run_passes(framework: str, tmp_path: Path) -> None:
    """Otherwise no damage below could be told from what was missing before."""
    healthy(tmp_path, framework)
    found = verdict(tmp_path)
    assert found.result is Result.PASS, found.reason
    assert not found.findings


@pytest.mark.parametrize("framework", FRAMEWORKS)
@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_damage_is_never_proof_and_is_named(damage: Damage, framework: str, tmp_path: Path) -> None:
    run = healthy(tmp_path, framework)
    damage.apply(run)
    found = verdict(tmp_path)
    text = " ".join(report(run, found).split())
    assert (found.result is Result.PASS) == (framework in damage.still_proved), found.reason
    if framework not in damage.silent:
        assert re.search(damage.says, text), text
    if found.result is not Result.PASS:
        assert found.reason


# -- two causes, and one that is echoed ----------------------------------------------------------------

DISK = "OSError: [Errno 28] No space left on device: '/scratch/x'"
MEMORY = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB"
EFFECTS = [
    "ray.exceptions.ActorDiedError: The actor died unexpectedly before finishing this task.",
    "[rank5]:[E822 10:20:00.113456 ProcessGroupNCCL.cpp:616] Watchdog caught collective operation timeout",
    "srun: error: n1: task 0: Exited with exit code 1",
]


def failed(run: RunFolder, text: str) -> Verdict:
    """The verdict when the last command failed after all steps; `text` is the end of its log."""
    on_results(failed_after_all_steps)(run)
    log = last_log(run)
    log.write_text(log.read_text() + text)
    return verdict(run.root)


def last_log(run: RunFolder) -> Path:
    return run.folder / f"logs/n1/{run.plan.commands[-1].name}.log"


@pytest.mark.parametrize("framework", FRAMEWORKS)
@pytest.mark.parametrize(
    ("first", "second", "signature", "result"),
    [
        (DISK, MEMORY, "disk.full", Result.BLOCKED),
        (MEMORY, DISK, "gpu.out-of-memory", Result.BLOCKED),
        ("\n".join(EFFECTS), DISK, "disk.full", Result.BLOCKED),
    ],
    ids=["disk, memory", "memory, disk", "effects, disk"],
)
def test_earliest_specific_cause_wins(
    first: str, second: str, signature: str, result: Result, framework: str, tmp_path: Path
) -> None:
    text = "\n".join([first, second, *EFFECTS * 3])
    found = failed(healthy(tmp_path, framework), f"{text}\n")
    assert found.first_cause is not None
    assert (found.first_cause.signature, found.result) == (signature, result)


def test_causes_on_several_nodes_go_by_time(tmp_path: Path) -> None:
    """The loud node is read first; the other one was earlier."""
    run = healthy(tmp_path, "command")
    run.log(f"2026-11-28 10:00:01,000 ERROR {DISK}\n", node="n2")
    found = failed(run, f"2026-11-28 10:00:09,000 ERROR {MEMORY}\n")
    assert found.first_cause is not None
    assert (found.first_cause.node, found.first_cause.signature) == ("n2", "disk.full")


@pytest.mark.parametrize("framework", FRAMEWORKS)
@pytest.mark.parametrize(
    "echo",
    [
        "\x1b[36m(Worker[rank={rank}] pid=4{rank:03d}, ip=10.0.0.{rank})\x1b[0m {line}",
        "\x1b[36m(Worker pid=4{rank:03d})\x1b[0m {line}\x1b[32m [repeated {rank}x across cluster]\x1b[0m",
        "{rank}: [rank{rank}]: {line}",
    ],
    ids=["ray", "ray, repeated", "torchrun"],
)
def test_echoes_of_many_ranks_are_one_cause(framework: str, echo: str, tmp_path: Path) -> None:
    ranks = [echo.format(rank=rank, line=DISK) for rank in range(1, 65)]
    run = healthy(tmp_path, framework)
    first = len(last_log(run).read_text().splitlines()) + 1
    found = failed(run, "\n".join([*ranks, MEMORY, *ranks]))
    assert found.first_cause is not None
    assert (found.first_cause.signature, found.first_cause.line) == ("disk.full", first)
    assert report(run, found).count("No space left") <= 4


# -- files of a run that jobspec did not launch --------------------------------------------------------

LEVELS = {"trl": "learning", "nemo_rl": "smoke", "verl": "smoke", "skyrl": "learning", "rlix": "multi"}
BY_LOG = CONSOLE | {
    "rlix"
}  # files of others are judged by the log too: it names steps, and metrics or weights
# The end of a log holds the checks of jobspec's own scripts, which others do not run.
OF_FILES = [name for name in DAMAGES if re.match("metrics|log (gone|empty)|values|steps|last v|all v", name)]


@pytest.mark.parametrize("framework", LEVELS)
@pytest.mark.parametrize("damage", OF_FILES)
def test_damaged_files_of_others_pass_nothing_without_proof(
    damage: str, framework: str, tmp_path: Path
) -> None:
    run = healthy(tmp_path / "run", framework)
    DAMAGES[damage].apply(run)
    for part in ("logs", "metrics"):
        shutil.copytree(run.folder / part, tmp_path / "files" / part)
    wanted = foreign_run.expected(
        frameworks.get(framework), LEVELS[framework], (), run.plan.expect.steps, (), "", ()
    )
    found = foreign_run.judge_files(tmp_path / "files", wanted)[1]
    assert found.reason
    proved = DAMAGES[damage].still_proved | (frozenset() if damage.startswith("log") else BY_LOG)
    assert found.result is not Result.PASS or framework in proved
