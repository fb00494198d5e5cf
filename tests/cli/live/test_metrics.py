"""The progress of runs whose files grow: every format, cheap looks, attempts, and what `logs` prints."""

from __future__ import annotations

import json
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest

from jobspec.cli.commands.logs import _last_lines
from jobspec.cli.live import metrics as progress_module
from jobspec.cli.live.metrics import ProgressReader
from jobspec.cli.live.screen import shown
from jobspec.metrics.console import ConsoleReader
from jobspec.runs.paths import RunPaths
from jobspec.runtime.base.metric_files import LineDecoder

# Two records without checksums: the version line, and `loss` = 2.0 at step 7.
SAMPLE = bytes.fromhex(
    "18000000000000000000000009000000000000f03f1a0d627261696e2e4576656e743a3200000000"
    "1a000000000000000000000009000000000000f03f10072a0d0a0b0a046c6f7373150000004000000000"
)  # fmt: skip
VERL_KEYS = {"reward": "critic/rewards/mean", "loss": "actor/pg_loss", "grad norm": "actor/grad_norm"}


def run(folder: Path, **expect: Any) -> RunPaths:
    paths = RunPaths(folder)
    paths.attempt(1).mkdir(parents=True)
    paths.plan.write_text(json.dumps({"expect": {"steps": 60, **expect}}))
    return paths


def metrics(paths: RunPaths, attempt: int = 1, name: str = "metrics.jsonl") -> Path:
    path = paths.attempt(attempt) / "metrics" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    return path


def log(paths: RunPaths, name: str = "train.log") -> Path:
    path = paths.attempt(1) / "logs" / "n1" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    return path


def append(path: Path, text: str) -> None:
    with path.open("a", encoding="utf-8") as file:
        file.write(text)


def record(step: int, **values: float) -> str:
    return json.dumps({"step": step, "time": 1.0, **values}) + "\n"


def test_run_without_files_shows_what_is_planned(tmp_path: Path) -> None:
    assert ProgressReader(run(tmp_path)).read().text() == "0 of 60"


def test_plan_as_render_writes_it_is_asked_for_its_own_key_alone(tmp_path: Path) -> None:
    inner = {"expect": {"steps": 1}, "text": '\n  "expect": {"steps": 2}'}
    paths = run(tmp_path)
    paths.plan.write_text(json.dumps({"env": inner, "expect": {"steps": 60}, "x": inner}, indent=2))
    assert ProgressReader(paths).read().steps == 60


def test_step_without_a_metric_is_none(tmp_path: Path) -> None:
    paths = run(tmp_path)
    append(metrics(paths), record(1, loss=0.5) + record(2) + '{"step": 3, "note": "text"}\n')
    assert ProgressReader(paths).read().step == 1


def test_metrics_file_that_grows(tmp_path: Path) -> None:
    paths = run(tmp_path)
    reader, path = ProgressReader(paths), metrics(paths)
    append(path, record(1, reward=0.25, loss=0.5, grad_norm=0.1) + '{"step": 2, "rew')
    assert (reader.read().text(), reader.read().value) == ("1 of 60", 0.25)
    append(path, 'ard": 0.5, "perf/tokens_per_s": 1200}\n')
    found = reader.read()
    assert (found.step, found.value) == (2, 0.5)
    assert shown(found) == "reward 0.5  loss 0.5  grad norm 0.1  1200 tokens/s"


def test_verl_file_and_its_names(tmp_path: Path) -> None:
    paths = run(tmp_path, metric_keys=VERL_KEYS)
    data = {
        "critic/rewards/mean": 0.4,
        "actor/pg_loss": 0.01,
        "actor/grad_norm": None,
        "perf/throughput": 900.0,
    }
    append(metrics(paths), json.dumps({"step": 7, "data": data}) + "\n")
    found = ProgressReader(paths).read()
    assert (found.text(), found.metric, found.value) == ("7 of 60", "critic/rewards/mean", 0.4)
    assert shown(found) == "reward 0.4  loss 0.01  grad norm nan  900 tokens/s"


def test_what_the_spec_asks_to_rise_is_shown_first(tmp_path: Path) -> None:
    paths = run(tmp_path, learning={"metric": "val/acc"})
    append(metrics(paths), record(3, **{"reward": 0.1, "val/acc": 0.9}))
    found = ProgressReader(paths).read()
    assert (found.metric, shown(found)) == ("val/acc", "val/acc 0.9  reward 0.1")


VERL_LINE = "\x1b[36m(TaskRunnerV1 pid=7)\x1b[0m step:{0} - actor/grad_norm:0.2"
VERL_LINE += " - critic/rewards/mean:np.float64(0.{0})\n"
NEMO_STEP = "\n========================= Step {0}/60 =========================\n"
NEMO_RESULTS = "  • Loss: 0.{0}\n  • Avg Reward: 0.5\n    - E2E (Tokens/sec): 71.77\n"


def test_console_of_verl_that_grows(tmp_path: Path) -> None:
    paths = run(tmp_path, metric_keys=VERL_KEYS)
    reader, path = ProgressReader(paths), log(paths)
    append(path, "starting\n" + VERL_LINE.format(3) + "step:4 - actor/gr")
    assert reader.read().text() == "3 of 60"
    append(path, "ad_norm:0.7\n")
    found = reader.read()
    assert (found.text(), found.figure("grad norm"), found.figure("reward")) == ("4 of 60", 0.7, 0.3)


def test_console_of_nemo_rl_that_grows(tmp_path: Path) -> None:
    paths = run(tmp_path)
    reader, path = ProgressReader(paths), log(paths)
    append(path, NEMO_STEP.format(1) + NEMO_RESULTS.format(1) + NEMO_STEP.format(2))
    found = reader.read()
    assert shown(found) == "reward 0.5  loss 0.1  71.77 tokens/s"
    assert found.step == 1  # the second has only begun
    append(path, NEMO_RESULTS.format(2))
    assert reader.read().step == 2


def test_event_file_of_nemo_rl_that_grows(tmp_path: Path) -> None:
    board = pytest.importorskip("torch.utils.tensorboard", reason="needs torch and tensorboard")
    paths = run(tmp_path)
    reader = ProgressReader(paths)
    writer = board.SummaryWriter(str(paths.attempt(1) / "metrics" / "tensorboard"))
    for step in (1, 2):
        writer.add_scalar("train/grad_norm", step / 10, step)
        writer.add_scalar("ray/node.0.gpu.0.mem_gb", 11.0, 10 * step)
        writer.flush()
        found = reader.read()
        assert (found.step, found.figure("grad norm")) == (step, pytest.approx(step / 10))
    writer.close()


def test_metric_files_count_before_what_is_printed(tmp_path: Path) -> None:
    paths = run(tmp_path)
    append(log(paths), VERL_LINE.format(5))
    append(metrics(paths), record(2, reward=1.0))
    assert ProgressReader(paths).read().step == 2


def test_samples_without_a_step_do_not_hide_what_is_printed(tmp_path: Path) -> None:
    paths = run(tmp_path)
    append(metrics(paths, name="gpus.jsonl"), '{"time": 1.0, "gpu/util": 90}\n')
    append(log(paths), VERL_LINE.format(5))
    assert ProgressReader(paths).read().step == 5


def test_last_record_counts_as_soon_as_its_json_is_whole(tmp_path: Path) -> None:
    paths = run(tmp_path)
    append(metrics(paths), record(1, reward=0.1) + record(2, reward=0.2).rstrip())
    found = ProgressReader(paths).read()
    assert (found.step, found.value) == (2, 0.2)


def test_event_file_whose_start_is_not_read_is_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress_module, "EVENTS_BYTES", 50)
    paths = run(tmp_path)
    metrics(paths, name="events.out.tfevents.1").write_bytes(SAMPLE)
    assert ProgressReader(paths).read().step is None
    monkeypatch.setattr(progress_module, "EVENTS_BYTES", len(SAMPLE))
    assert ProgressReader(paths).read().step == 7


def test_new_attempt_starts_anew(tmp_path: Path) -> None:
    paths = run(tmp_path)
    append(metrics(paths), record(9, reward=1.0))
    reader = ProgressReader(paths)
    assert reader.read().step == 9
    append(metrics(paths, attempt=2), record(5, loss=0.5))
    found = reader.read()
    assert (found.step, found.value) == (5, None)


def test_file_that_was_written_anew_is_read_from_its_start(tmp_path: Path) -> None:
    paths = run(tmp_path)
    reader, path = ProgressReader(paths), metrics(paths)
    append(path, record(1, reward=0.1) * 3)
    assert reader.read().step == 1
    path.write_text(record(1, reward=0.9))
    assert reader.read().value == 0.9


@pytest.mark.parametrize("line", [record(1, reward=0.1), VERL_LINE.format(1)], ids=["file", "console"])
def test_a_look_reads_the_end_alone_then_what_is_new(
    line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress_module, "JSONL_TAIL_BYTES", 1000)
    monkeypatch.setattr(progress_module, "CONSOLE_TAIL_BYTES", 1000)
    paths = run(tmp_path)
    path = metrics(paths) if line.startswith("{") else log(paths)
    append(path, line * 20_000 + line.replace("1", "8", 1) if line.startswith("{") else line * 20_000)
    sizes: list[int] = []
    for kind in (LineDecoder, ConsoleReader):
        feed = kind.feed
        monkeypatch.setattr(
            kind, "feed", lambda self, data, feed=feed: sizes.append(len(data)) or feed(self, data)
        )
    reader = ProgressReader(paths)
    assert reader.read().step is not None
    append(path, line)
    reader.read()
    assert sizes[:1] == [1000] and sizes[-1] == len(line.encode())


def test_later_ranks_share_what_is_read_of_their_logs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress_module, "RANKS_TAIL_BYTES", 8000)
    monkeypatch.setattr(progress_module, "LEAST_TAIL_BYTES", 500)
    paths, sizes = run(tmp_path), list[int]()
    for rank in range(9):
        append(log(paths, f"train-{rank}.log"), VERL_LINE.format(rank) + "x\n" * 1000)
    feed = ConsoleReader.feed
    monkeypatch.setattr(ConsoleReader, "feed", lambda self, data: sizes.append(len(data)) or feed(self, data))
    assert ProgressReader(paths).read().step == 0, "what the first rank has printed is read as before"
    assert sizes[0] > 2000 and sizes[1:] == [1000] * 8


@pytest.mark.parametrize(
    "text", [b"", b"a", b"a\n", b"a\nb\n", b"a\n\nb", b"\n\n\n", b"x" * 50 + b"\n" + b"y" * 50]
)
@pytest.mark.parametrize("lines", [0, 1, 2, 9])
@pytest.mark.parametrize("piece", [1, 3, 1000])
def test_last_lines_of_a_file(text: bytes, lines: int, piece: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jobspec.cli.commands.logs.PIECE_BYTES", piece)
    wanted = b"".join(text.splitlines(keepends=True)[-lines:] if lines else [])
    assert text[_last_lines(BytesIO(text), lines) :] == wanted
