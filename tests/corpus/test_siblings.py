"""Siblings of the public failures: frameworks, prefixes, orders, and healthy runs with their noise."""

from __future__ import annotations

from pathlib import Path

import pytest

from jobspec.triage import first_cause, scan_files
from jobspec.triage.nodes import speaker
from tests.corpus.line_kit import EXITED, at, cause_of, raised, ray_starts, shown, verl_steps

# -- wrappers, and who speaks --------------------------------------------------------------------------

STEPS = [ray_starts(0), *verl_steps(1, 2)]
SERVER = raised("/opt/vllm/v1/worker/gpu_model_runner.py", "execute", "IndexError: list index out of range")
CLIENTS = [
    "aiohttp.client_exceptions.ClientResponseError: 500, message='x', url='http://10.4.0.2/gen'",
    "aiohttp.client_exceptions.ClientConnectorError: Cannot connect to host 10.8.1.4:8000 ssl:default [x]",
    "httpx.HTTPStatusError: Server error '503 Service Unavailable' for url 'http://n1:8000/v1'",
    "openai.InternalServerError: Error code: 500 - {'error': {'message': 'x'}}",
    "requests.exceptions.ConnectionError: HTTPConnectionPool(host='10.20.0.1', port=1500): Max retries"
    " exceeded with url: /update_weights (Caused by NewConnectionError('[Errno 111] Connection refused'))",
    "requests.exceptions.HTTPError: 500 Server Error: Internal Server Error for url: http://localhost:30/x",
    'INFO:     10.4.0.2:51926 - "POST /generate HTTP/1.1" 500 Internal Server Error',
    "asyncio.exceptions.CancelledError",
    "Exception: Server process terminated unexpectedly.",
    "BrokenPipeError: [Errno 32] Broken pipe",
    "torch.distributed.DistNetworkError: failed to recv, got 0 bytes",
    "vllm.v1.engine.exceptions.EngineDeadError: EngineCore encountered an issue.",
    "[rank3]:[E301 10:20:30.1 ProcessGroupNCCL.cpp:616] Watchdog caught collective operation timeout",
]  # fmt: skip
PREFIXES = [
    "{}",
    "\x1b[36m(vLLMHttpServer pid=9)\x1b[0m ERROR 03-01 10:20:01 [core.py:1299] {}",
    "(EngineCore_DP0 pid=22) (RayWorkerWrapper pid=71) ERROR 03-01 10:20:01 [worker_base.py:301] {}",
    "[rank2]: {}",
]


@pytest.mark.parametrize("client", CLIENTS, ids=lambda line: line[:40])
@pytest.mark.parametrize("prefix", PREFIXES)
def test_servers_own_exception_beats_its_clients(client: str, prefix: str) -> None:
    own = [prefix.format(line) for line in SERVER]
    assert shown([*STEPS, client, *own])[1] == len(STEPS) + 5
    assert shown([*STEPS, *own, client])[1] == len(STEPS) + 4


def test_servers_own_exception_is_found_in_another_file(tmp_path: Path) -> None:
    (tmp_path / "a.log").write_text("\n".join([*STEPS, CLIENTS[4]]))
    (tmp_path / "b.log").write_text("\n".join(SERVER))
    cause = first_cause(scan_files(sorted(tmp_path.iterdir())))
    assert cause is not None and (Path(cause.file).name, cause.line) == ("b.log", 4)


LATER_FILES = {
    "a trainer that waits for its server": (
        "ConnectionError: The vLLM server can't be reached at http://0.0.0.0:8000 after 2.0 s.", SERVER),
    "a call that did not come back": ("TimeoutError: RPC call to sample_tokens timed out.", SERVER),
    "SGLang's scheduler": (
        "aiohttp.client_exceptions.ServerDisconnectedError: Server disconnected",
        ["[2026-03-01 10:19:50 TP0] Scheduler hit an exception: Traceback (most recent call last)",
         *SERVER[1:]]),
    "a logger's word": ("2026-03-01 10:30:00,123 - ERROR - train - Training failed: ValueError: x", SERVER),
}  # fmt: skip


@pytest.mark.parametrize("name", LATER_FILES)
def test_what_another_file_says_beats_who_waited_for_it(tmp_path: Path, name: str) -> None:
    waits, server = LATER_FILES[name]
    (tmp_path / "a.log").write_text("\n".join([*STEPS, waits]))
    (tmp_path / "b.log").write_text("\n".join(server))
    cause = first_cause(scan_files(sorted(tmp_path.iterdir())))
    assert cause is not None and (Path(cause.file).name, cause.line) == ("b.log", 4)


@pytest.mark.parametrize(
    "head", ["ERROR:root:", "2026-03-01 10:30:00,123 - ERROR - train - Training failed: "]
)
def test_logged_exception_is_better_than_how_the_step_ended(head: str) -> None:
    assert shown([*STEPS, f"{head}ValueError: bad group size 7", EXITED])[1] == len(STEPS) + 1


def test_watchdog_that_aborts_its_process_is_shown_before_the_abort() -> None:
    stuck = "[rank2]:[E301 13:48:58.2 x.cpp:17] ProcessGroupNCCL's watchdog got stuck for 480 seconds"
    lines = [*STEPS, stuck, "Fatal Python error: Aborted", "srun: error: n1: task 0: Aborted (core dumped)"]
    assert shown(lines) == ("effect.nccl-stuck", len(STEPS) + 1)


def test_effect_without_a_cause_says_so() -> None:
    cause = cause_of([*STEPS, EXITED])
    assert cause is not None and cause.why.endswith("of which triage knows none as a cause")


def test_cancelled_step_is_better_than_its_signal() -> None:
    cancelled = "slurmstepd: error: *** STEP 77.0 ON n1 CANCELLED AT 2026-03-01T10:07:00 ***"
    cause = cause_of([*STEPS, "*** SIGTERM received at time=1 on cpu 3 ***", cancelled])
    assert cause is not None and (cause.kind, cause.verdict) == ("cancelled", "Blocked")
    assert shown([*STEPS, EXITED, cancelled])[0] == "effect.step-ended"


SPEAKERS = {
    "pyxis": (
        ["slurmstepd: error: pyxis: container start failed with error code: 1",
         "slurmstepd: error: pyxis: printing enroot log file:",
         "slurmstepd: error: pyxis:     enroot-nsenter: failed to set up what nobody knows", EXITED], 3),
    "pyxis, a hook's shell": (
        ["slurmstepd: error: pyxis: container start failed with error code: 1",
         "slurmstepd: error: pyxis:     /etc/enroot/hooks.d/10-shadow.sh: line 70: 3474706 Broken pipe",
         "slurmstepd: error: pyxis:     nvidia-container-cli: ldcache error: ldconfig failed", EXITED], 3),
    "apptainer": (["FATAL:   while extracting image: something new", EXITED], 1),
    "docker": (["docker: Error response from daemon: OCI runtime create failed: runc: something new"], 1),
    "srun": (["srun: fatal: something new", "RuntimeError: no cluster"], 1),
    "srun, in another zone": (
        ["2026-03-01T10:00:00-08:00 launch", "srun: fatal: something new", ray_starts(30),
         f"[{at(60)},345 E 91 91] gcs_rpc_client.h:179: Failed to connect to GCS at address 10.0.0.1:6379"
         " within 5 seconds."], 2),
    "torchrun": (["torchrun: error: unrecognized arguments: --nproc", EXITED], 1),
    "the driver": (
        ["/x.py:174: UserWarning: CUDA initialization: Unexpected error from cudaGetDeviceCount(). Error 803:"
         " system has unsupported display driver / cuda driver combination (Triggered internally at x)",
         "RuntimeError: No CUDA GPUs are available"], 1),
    "the hub": (
        raised("/venv/site-packages/huggingface_hub/download.py", "get", "httpx.ReadTimeout: timed out"), 4),
    "the hub's server": (
        ["requests.exceptions.HTTPError: 503 Server Error: Unavailable for url: https://hf.co/x"], 1),
}  # fmt: skip


@pytest.mark.parametrize("name", SPEAKERS)
def test_what_the_cluster_says_is_blocked(name: str) -> None:
    lines, line = SPEAKERS[name]
    cause = cause_of(lines)
    assert cause is not None and (cause.line, cause.verdict) == (line, "Blocked")


LANDMARKS = {
    "verl, FSDP": ("(WorkerDict pid=1) Qwen2ForCausalLM contains 7.62B parameters", "construction"),
    "NeMo-RL, DTensor": ("[Rank 0] Initializing empty model for FSDP...", "construction"),
    "SkyRL": (f"{at(0)} | INFO | skyrl.train.trainer:build:8 - init policy/ref/critic models done", "built"),
    "Trainer": ("***** Running training *****", "built"),
    "TRL": ("{'loss': '0.1', 'epoch': '0.1'}", "step"),
    "OpenRLHF": ("INFO ✨ Global step 3: {'policy_loss': 0.1}", "step"),
    "Megatron-LM": (" iteration    2/  100 | elapsed time per iteration (ms): 1 | lm loss: 1E+00", "step"),
    "slime": ("step 3: {'train/loss': 0.1, 'train/kl': 0.0}", "step"),
    "one's own": ("[trainer] INFO step 2 reward=0.131 loss=0.0011 grad_norm=0.58", "step"),
}  # fmt: skip


@pytest.mark.parametrize("name", LANDMARKS)
def test_landmark_places_an_unknown_exception(name: str) -> None:
    line, mark = LANDMARKS[name]
    cause = cause_of([line, *raised("/home/u/reward.py", "score", "LookupError: no answer")])
    assert cause is not None and cause.verdict == "Fail" and "/home/u/reward.py:66 score" in cause.fix
    assert any(mark in fact and fact.endswith("(log:1)") for fact in cause.facts)


def test_without_a_landmark_nothing_is_said_about_one() -> None:
    cause = cause_of([ray_starts(0), *raised("/home/u/reward.py", "score", "LookupError: no answer")])
    assert cause is not None and not cause.why and not cause.facts


@pytest.mark.parametrize(
    ("file", "place"),
    [
        ("/venv/lib/python3.12/site-packages/torch/nn/modules/module.py", "/home/u/train.py:12 main"),
        ("/usr/lib/python3.12/asyncio/base_events.py", "/home/u/train.py:12 main"),
        ("/venv/lib/python3.12/site-packages/trl/trainer/grpo_trainer.py",
         "/venv/lib/python3.12/site-packages/trl/trainer/grpo_trainer.py:66 f"),
    ],
)  # fmt: skip
def test_place_is_the_innermost_frame_that_no_library_carries(file: str, place: str) -> None:
    head, *rest = raised(file, "f", "RuntimeError: shapes")
    cause = cause_of([head, '  File "/home/u/train.py", line 12, in main', "    f()", *rest])
    assert cause is not None and cause.place == place


def test_place_is_read_from_other_forms_of_tracebacks() -> None:
    loguru = [
        "Traceback (most recent call last):",
        "",
        '> File "/home/u/train.py", line 7, in main',
        "    x = 1",
        "",
    ]
    rich = ["╭─── Traceback (most recent call last) ───╮", "│ /home/u/train.py:7 in main   │", "╰──────────╯"]
    for form in (loguru, rich):
        cause = cause_of([*form, "LookupError: no answer"])
        assert cause is not None and cause.place == "/home/u/train.py:7 main"


# -- nodes ---------------------------------------------------------------------------------------------

HOOK = "nvidia-container-cli: mount error: failed to add device rules"


@pytest.mark.parametrize(
    "line", ["[rank10]: x", "rank0: x", "step1: loss", "gpu0: x", "[worker1] x", "python3: x"]
)
def test_rank_or_step_is_no_node(line: str) -> None:
    assert speaker(line.encode()) == ""


def test_node_of_an_nccl_line() -> None:
    """Its host stands before process, thread and device, also behind a time."""
    line = "alpha:71:90 [2] transport/nvls.cc:9 NCCL WARN Cuda failure 1 'x'"
    assert speaker(line.encode()) == speaker(f"[2026-03-01 10:20:01] {line}".encode()) == "alpha"


@pytest.mark.parametrize(
    ("lines", "fact"),
    [
        ([f"slurmstepd-n1: error: pyxis:     {HOOK}", f"slurmstepd-n2: error: pyxis:     {HOOK}"],
         "said by n1, n2: excluding one node does not help"),
        ([f"n7: {HOOK}", "n8: Killed"], "only n7 says it, of 2 nodes with lines that triage knows"),
        ([HOOK], None),
        ([f"(W pid=1, ip=10.0.0.2) {HOOK} [repeated 7x across cluster]", "n8: Killed"], None),
    ],
)  # fmt: skip
def test_nodes_that_say_it_are_told(lines: list[str], fact: str | None) -> None:
    cause = cause_of(lines)
    assert cause is not None and cause.signature == "container.gpu-hook"
    assert cause.facts == ((fact,) if fact else ())
    assert cause.node == ("n7" if fact and fact.startswith("only") else "")


# -- healthy runs with the same noise ------------------------------------------------------------------

NOISE = {
    "a tracker that came back": ["wandb: Network error (ConnectTimeout), entering retry loop."],
    "an engine that slept": [CLIENTS[6], "INFO 11-14 15:11:23 [worker.py:1] Sleep mode freed 35.43 GiB"],
    "Slurm's warnings": ["slurmstepd: error: Unable to set TASK affinity", "slurmstepd: error: cgroup: x"],
    "a refused connection": ["ConnectionRefusedError: [Errno 111] Connection refused"],
    "a caught exception": raised("/home/u/reward.py", "score", "LookupError: no answer"),
    "pyxis": ["pyxis: importing docker image: nvcr.io#nvidia/x", "pyxis: imported docker image: x"],
    "a store that fills": [
        "INFO:torch.distributed.distributed_c10d:Waiting in store based barrier to initialize process group"
        " for rank: 0, key: store_based_barrier_key:1 (world_size=8, worker_count=7, timeout=0:30:00)"
    ],
}  # fmt: skip


@pytest.mark.parametrize("name", NOISE)
def test_noise_of_a_healthy_run_is_no_cause(name: str) -> None:
    assert cause_of([ray_starts(0), *NOISE[name], *verl_steps(1, 2, 3)]) is None
