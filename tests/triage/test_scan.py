"""The matcher: order, effects, places, blocks, odd bytes."""

from __future__ import annotations

import gzip
import os
import random
import threading
from io import BytesIO
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobspec import log_search
from jobspec.triage import LogSource, first_cause, scan, scan_files, scan_lines, scan_stream
from jobspec.triage.times import find_time

DISK = "OSError: [Errno 28] No space left on device"
OOM = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB"
WATCHDOG = "[Rank 3] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=1)"


def signatures(*lines: str) -> list[str]:
    return [match.signature for match in scan_lines(lines)]


def test_specific_cause_beats_earlier_and_louder_effects() -> None:
    lines = [WATCHDOG, *["ray.exceptions.ActorDiedError: The actor died"] * 50, DISK]
    assert signatures(*lines)[0] == "disk.full"


def test_first_specific_cause_wins_within_a_log() -> None:
    assert signatures(OOM, DISK)[:2] == ["gpu.out-of-memory", "disk.full"]


def test_time_orders_causes_over_nodes(tmp_path: Path) -> None:
    late = tmp_path / "a.log"
    late.write_text(f"2026-08-22 10:00:09,000 INFO x\n{OOM}\n")
    early = tmp_path / "b.log"
    early.write_text(f"2026-08-22 10:00:03,500 INFO x\n{DISK}\n")
    first, second = scan_files([LogSource(late, "n1/a.log", "n1"), LogSource(early, "n2/b.log", "n2")])
    assert (first.node, first.signature, first.file, first.line) == ("n2", "disk.full", "n2/b.log", 2)
    assert first.time is not None and second.time is not None and second.time - first.time == 5.5


def test_reading_order_decides_where_a_time_is_missing(tmp_path: Path) -> None:
    (tmp_path / "a.log").write_text(f"{OOM}\n")
    (tmp_path / "b.log").write_text(f"2026-08-22 10:00:03 {DISK}\n")
    assert scan_files([tmp_path / "a.log", tmp_path / "b.log"])[0].signature == "gpu.out-of-memory"


def test_notes_are_never_a_cause() -> None:
    matches = scan_lines(["warning:  Clock skew detected. Your build may be incomplete."])
    assert [match.verdict for match in matches] == ["Note"]
    assert first_cause(matches) is None


METRICS_PORT = """
2026-11-28 15:39:04,725 ERROR monitor.py:218 -- An exception occurred while starting the metrics server.
Traceback (most recent call last):
  File "/opt/venv/lib/python3.11/site-packages/ray/{}", line 207, in {}
    prometheus_client.start_http_server(
  File "/v/lib/python3.11/site-packages/prometheus_client/exposition.py", line 260, in start_wsgi_server
    httpd = make_server(addr, port, app, TmpServer, handler_class=_SilentHandler)
  File "/usr/lib/python3.11/socketserver.py", line 472, in server_bind
    self.socket.bind(self.server_address)
OSError: [Errno 98] Address already in use
"""


@pytest.mark.parametrize(
    ("file", "function", "signature"),
    [
        ("autoscaler/_private/monitor.py", "__init__", None),
        ("autoscaler/v2/monitor.py", "__init__", None),
        ("dashboard/head.py", "_setup_metrics", None),
        ("dashboard/head.py", "run", "network.port-in-use"),
        ("serve/_private/proxy.py", "__init__", "network.port-in-use"),
    ],
)
def test_ray_without_its_own_metrics_goes_on(file: str, function: str, signature: str | None) -> None:
    """Ray 2.60 logs this on every node that has two Rays; what failed after it is the cause."""
    lines = METRICS_PORT.format(file, function).splitlines()
    cause = first_cause(scan_lines(lines))
    assert (cause and cause.signature) == signature
    later = first_cause(scan_lines([*lines, OOM]))
    assert later is not None and later.signature == (signature or "gpu.out-of-memory")


def test_secret_is_found_but_not_repeated() -> None:
    (match,) = scan_lines(["+ export WANDB_API_KEY=abcdef0123", "next"])
    assert match.signature == "note.secret"
    assert "abcdef0123" not in str(match) and "[secret]" in match.text


def test_the_text_of_a_script_that_traces_itself_is_no_message() -> None:
    """NeMo-RL's ray.sub (main, 2026-08) runs with `set -x`: its log holds the whole of its node scripts."""
    said = "[ERROR] /r/.shared_fs_canary not visible on the head node; LOG_DIR must be shared"
    text = [
        "+ head_cmd='set -o pipefail",
        f'  echo "{said}" >&2',
        "  #   AssertionError: Session name ... does not match persisted value ...",
        '  echo "[ERROR] Timed out waiting for all workers to connect ($worker_units/16 after 30 min)"',
    ]
    assert scan_lines(text) == []
    assert [match.line for match in scan_lines([*text, said])] == [5]


def test_what_ray_announces_at_its_start_is_no_message() -> None:
    """Ray 2.60, `ray start --block`."""
    line = (
        "2026-11-28 06:36:35,628\tINFO scripts.py:1269 -- Running subprocesses are monitored and a message "
        "will be printed if any of them terminate unexpectedly. Subprocesses exit with SIGTERM will be "
        "treated as graceful, thus NOT reported."
    )
    assert scan_lines([line]) == []


def test_harmless_exception_of_a_busy_ray_is_a_note() -> None:
    line = "(TrainController pid=7) ray.exceptions.GetTimeoutError: Get timed out: some object(s) not ready."
    assert signatures(line) == ["note.ray-get-timeout"]


def test_colours_prefixes_and_progress_bars_do_not_hide_a_line() -> None:
    line = "\x1b[36m(RayTrainWorker pid=7, ip=10.0.0.2)\x1b[0m  40%|####   | 2/5\rKilled"
    assert signatures(line) == ["effect.killed"]


def test_quoted_source_of_a_traceback_is_not_the_exception() -> None:
    lines = [
        '    raise ValueError("Please don\'t set ROCR_VISIBLE_DEVICES when")',
        "ValueError: Please don't set ROCR_VISIBLE_DEVICES",
    ]
    (match,) = scan_lines(lines)
    assert match.line == 2


def test_signature_is_reported_once_per_log_with_context() -> None:
    (match,) = scan_lines(["before", DISK, "after", DISK])
    assert (match.line, match.context) == (2, ("before", DISK, "after", DISK))


def test_digits_decide_where_the_shape_is_the_same() -> None:
    assert signatures("OSError: [Errno 5] x", "OSError: [Errno 28] x")[0] == "disk.full"
    # The first line shows a weak signature without digits, which is no reason to skip the second.
    assert signatures("OSError: [Errno 999] x", "OSError: [Errno 28] x")[0] == "disk.full"


@pytest.mark.parametrize("block", [64, 100, 1000])
def test_blocks_do_not_change_the_result(monkeypatch: pytest.MonkeyPatch, block: int) -> None:
    text = "".join(f"step {n} loss {n / 7:.4f}\n" for n in range(40)) + f"{DISK}\nlast"
    whole = [(match.signature, match.line) for match in scan_lines(text.splitlines())]
    monkeypatch.setattr(log_search, "BLOCK_BYTES", block)
    monkeypatch.setattr(scan, "HEAD_BYTES", block)
    assert (
        [(match.signature, match.line) for match in scan_stream(BytesIO(text.encode()))]
        == whole
        == [("disk.full", 41)]
    )


def test_bytes_that_are_no_text_do_not_stop_the_scan(tmp_path: Path) -> None:
    path = tmp_path / "x.log"
    path.write_bytes(b"\xff\xfe\x00 \xe2\n" + DISK.encode() + b" \xe2\n")
    assert scan_files([path])[0].line == 2


def test_log_that_cannot_be_opened_is_left_out(tmp_path: Path) -> None:
    (tmp_path / "b.log").write_text(DISK)
    assert len(scan_files([tmp_path / "no.log", tmp_path, tmp_path / "b.log"])) == 1


@given(st.binary(max_size=400))
def test_any_bytes_are_scanned_without_an_error(data: bytes) -> None:
    scan_stream(BytesIO(data))


@given(st.lists(st.text(st.characters(codec="utf-8", exclude_characters="\r\n"), max_size=80), max_size=20))
def test_match_is_found_between_any_lines(lines: list[str]) -> None:
    found = scan_lines([*lines, DISK])
    assert any(match.signature.startswith("disk.") for match in found)


@pytest.mark.parametrize(
    ("line", "seconds"),
    [
        ("1970-01-01 00:00:10 x", 10.0),
        ("[1970-01-01T00:00:10.250Z] x", 10.25),
        ("1970-01-01 00:00:10,5 x", 10.5),
        ("x 1970-01-01T01:00:10+0100 x", 10.0),
        ("x 1970-01-01T00:00:10-01:30", 5410.0),
        ("9999-99-99 99:99:99", None),
        ("2026-01-01 00:00:00+99:99", None),
        ("no time", None),
    ],
)
def test_times_of_log_lines(line: str, seconds: float | None) -> None:
    assert find_time(line) == seconds


def test_packed_and_torn_logs_are_read(tmp_path: Path) -> None:
    packed = gzip.compress(f"{DISK}\n".encode() + random.Random(1).randbytes(100_000))
    (tmp_path / "whole.gz").write_bytes(packed)
    (tmp_path / "torn.gz").write_bytes(packed[:-50])
    (tmp_path / "damaged.gz").write_bytes(packed[:50_000] + bytes(20) + packed[50_020:])
    for path in sorted(tmp_path.iterdir()):
        assert [match.line for match in scan_files([path])] == [1], path.name
    with (tmp_path / "torn.gz").open("rb") as stream:
        assert scan_stream(stream)[0].signature == "disk.full"


def test_pipe_is_read_once(tmp_path: Path) -> None:
    """As from a shell's `<(command)`."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = threading.Thread(target=pipe.write_text, args=(f"x\n{DISK}\n",))
    writer.start()
    found = scan_files([pipe])
    writer.join()
    assert [match.line for match in found] == [2]


@pytest.mark.parametrize("said", ["execute enroot command", "get list of containers", "start container"])
def test_what_pyxis_could_not_do_is_a_container_that_did_not_start(said: str) -> None:
    """Seen with pyxis 0.24 where slurmd's PATH has no enroot."""
    (match,) = scan_lines([f"slurmstepd-n1: error: pyxis: couldn't {said}"])
    assert (match.kind, match.verdict) == ("container", "Blocked")


@pytest.mark.parametrize(
    ("line", "signature"),
    [
        ("/usr/lib/python3.12/multiprocessing/resource_tracker.py:254: UserWarning: resource_tracker: There "
         "appear to be 3 leaked semaphore objects to clean up at shutdown", "note.resource-tracker"),
        ("[rank0]:[W822 10:20:11.113 ProcessGroupNCCL.cpp:1496] Warning: WARNING: destroy_process_group() "
         "was not called before program exit, which can leak resources.", "note.process-group"),
        ("[W ProcessGroupNCCL.cpp:1250] Warning: WARNING: process group has NOT been destroyed before we "
         "destruct ProcessGroupNCCL.", "note.process-group"),
    ],
)  # fmt: skip
def test_noise_of_a_shutdown_is_a_note(line: str, signature: str) -> None:
    (match,) = scan_lines([line])
    assert (match.signature, match.verdict) == (signature, "Note")


@pytest.mark.parametrize("name", ["ActorDiedError", "ActorUnavailableError", "WorkerCrashedError"])
@pytest.mark.parametrize(
    ("file", "function"),
    [
        ("/x/trainer.py", "save_models"),
        ("/x/trainer.py", "update_weights"),
        ("/x/megatron/bridge/a.py", "load"),
        ("/x/trainer.py", "validate_config"),
    ],
)
def test_who_waited_for_a_dead_actor_is_not_its_failure(file: str, function: str, name: str) -> None:
    lines = [
        "Traceback (most recent call last):",
        f'  File "{file}", line 1139, in {function}',
        "    ray.get(refs)",
        f"ray.exceptions.{name}: The actor died unexpectedly before finishing this task.",
    ]
    cause = first_cause(scan_lines(lines))
    assert cause is not None and cause.signature == "effect.actor-died"


PRIME_RL = [
    "16:42:34 SUCCESS Step 0 | Time: 10.14s | Reward: 0.2131 | Throughput: 1991.0 tokens/s",
    "16:42:36 WARNING [verifiers] Retrying request to /chat/completions (1/10): Connection reset by peer",
    "16:42:43 SUCCESS Step 1 | Time: 9.62s | Reward: 0.2735 | Throughput: 2249.3 tokens/s",
]
SERVER_ENDS = """INFO 01-20 16:45:26 [launcher.py:110] Shutting down FastAPI HTTP server.
(EngineCore_DP0 pid=5311) INFO 01-20 16:45:26 [core.py:840] EngineCore exiting due to SIGTERM.
ERROR:    Traceback (most recent call last):
  File "/v/site-packages/starlette/routing.py", line 701, in lifespan
    await receive()
  File "/v/site-packages/uvicorn/lifespan/on.py", line 137, in receive
    return await self.receive_queue.get()
asyncio.exceptions.CancelledError"""


@pytest.mark.parametrize(
    ("end", "well"),
    [
        (["16:45:26 SUCCESS RL training finished!", "rl exited with 0"], True),
        (["2026-01-20 16:45:26 - INFO - Training completed successfully."], True),
        (["16:45:20 INFO Saving checkpoint at step 2"], False),
        (["16:45:26 INFO Actor training done, 12.3s"], False),
    ],
)
def test_what_servers_say_at_the_end_of_a_run_that_ended_well(
    end: list[str], well: bool, tmp_path: Path
) -> None:
    (tmp_path / "rl.log").write_text("\n".join([*PRIME_RL, *end]))
    (tmp_path / "server.log").write_text(SERVER_ENDS)
    cause = first_cause(scan_files([tmp_path / "rl.log", tmp_path / "server.log"]))
    assert (cause and cause.signature) == (None if well else "effect.terminated")


@pytest.mark.parametrize(
    "line",
    [
        "[2026-08-22 10:00:01,402] INFO eval:  33%|###  | 1/3 [00:01<00:02,  1.00s/it]",
        "2026-08-22 10:00:01 | INFO | 100%|#####| 1.5.2/3 [00:01<00:00,  1.00it/s]",
        " 10%|#  | ./10 [99:99<?, ?it/s]",
    ],
)
def test_any_progress_bar_is_read(line: str) -> None:
    """A bar on a line with a time of its own has no clock that is needed."""
    cause = first_cause(scan_lines([line, line.replace("33%", "66%"), OOM]))
    assert cause is not None and cause.signature == "gpu.out-of-memory"


def skyrl_step(*inside: str) -> list[str]:
    """A step by SkyRL's timer, which says `Finished` of a step that raised, too."""
    said = "2026-08-22 10:00:01.000 | INFO     | skyrl.train.trainer:train:279 - {}"
    first = ["Finished: 'sync_weights', time cost: 0.17s", "Started: 'step'", "Started: 'policy_train'"]
    last = ["Finished: 'policy_train', time cost: 2.48s", *inside, "Finished: 'step', time cost: 5.66s"]
    return [said.format(text) for text in (*first, *last)]


def test_step_of_skyrl_that_raised_is_no_finished_step() -> None:
    failed = ["Traceback (most recent call last):", OOM]
    workers = [
        "time to initialize megatron (seconds): 3.2",
        *(f"(MegatronPolicyWorker pid=7) {x}" for x in failed),
    ]
    done, raised = skyrl_step("Finished: 'sync_weights', time cost: 0.19s"), skyrl_step()
    effect = (
        "ray.exceptions.RayTaskError(OutOfMemoryError): ray::MegatronPolicyWorker.forward_backward() (pid=7)"
    )
    for lines, verdict, survived in (
        ([*workers, *raised, effect], "Blocked", False),
        ([*workers, *done, effect], "Blocked", True),
        ([*done, *workers, *raised, effect], "Blocked", False),
    ):
        cause = first_cause(scan_lines(lines))
        assert cause is not None and (cause.verdict, cause.survived) == (verdict, survived), lines
