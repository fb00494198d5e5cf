"""The first-error catalogues of verl and NeMo-RL, what runs survive, and where the boundaries lie."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from jobspec.triage import first_cause, scan_lines
from tests.corpus.corpus_kit import FIXTURES, HEALTHY, Log, after_a_start_before_effects, scan

Record = Callable[[str, str, str, str], None]

VERL_START = [
    "(TaskRunnerV1 pid=41207) dataset len: 7473",
    "2026-08-22 14:01:11,402\tINFO worker.py:2004 -- Ray",
]
VERL_BUILDING = [*VERL_START, "(WorkerDict pid=41990) TF config: TransformerConfig(num_layers=2)"]
VERL_BUILT = [*VERL_BUILDING, "(TaskRunnerV1 pid=41207) INFO:actor and ref model engine initialized"]
NEMO_START = ["INFO:nemo_rl.utils.venvs:venvs.py:64: NEMO_RL_VENV_DIR is set to /opt/ray_venvs."]
NEMO_BUILDING = [
    *NEMO_START,
    "(MegatronPolicyWorker pid=40112) Using default megatron checkpoint dir: /hf/nemo_rl",
]

# Line of the failure, signature, verdict before the model's construction.
VERL = [
    ("ModuleNotFoundError: No module named 'megatron.bridge'", "image.bridge-missing", "Blocked"),
    ("Megatron-Bridge package not found. Please install", "image.bridge-missing", "Blocked"),
    ("ModuleNotFoundError: No module named 'modelopt'", "image.modelopt-missing", "Blocked"),
    ("ModuleNotFoundError: No module named 'transfer_queue'", "image.module-missing", "Blocked"),
    ("ModuleNotFoundError: No module named 'transformer_engine'", "image.module-missing", "Blocked"),
    ("ImportError: mbridge package not found", "image.module-missing", "Blocked"),
    ("RuntimeError: nvtx is not available in CUDA platform", "image.profiler", "Blocked"),
    ("RuntimeError: nsys profile failed to run with the following error", "image.profiler", "Blocked"),
    ("ValueError: Please don't set ROCR_VISIBLE_DEVICES when", "gpu.visible-devices", "Blocked"),
    ("Could not override 'reward.reward_model.enable'.", "config.hydra-key", "Blocked"),
    ("Key 'reward' is not in struct", "config.hydra-key", "Blocked"),
    ("Could not append to config. An item is already at 'a.b'.", "config.hydra-key", "Blocked"),
    ("ValueError: Unknown device: WARNING cpu", "image.device", "Blocked"),
    ("run_ppo.sh: line 12: MODEL_ID: unbound variable", "env.unbound", "Blocked"),
    ("DUMMY_MODEL_CONFIG_PATH not set", "env.unbound", "Blocked"),
    ("HFValidationError: Repo id must be in the form 'repo_name'", "hub.name-form", "Blocked"),
    ("OSError: /m does not appear to have a file named config.json", "hub.config-missing", "Blocked"),
    ("LocalEntryNotFoundError: outgoing traffic has been disabled", "hub.not-cached", "Blocked"),
    ("OSError: [Errno 28] No space left on device", "disk.full", "Blocked"),
    ("FileNotFoundError: Unable to find '/data/gsm8k/train.parquet'", "data.missing", "Blocked"),
    ("AssertionError: Train dataloader is empty!", "data.empty", "Blocked"),
    ("filter dataset len: 0", "data.empty", "Blocked"),
    ("ValueError: Total available GPUs 4.0 is less than total desired GPUs 8", "ray.gpus-missing", "Blocked"),
    ("Unable to register worker with raylet. No such file", "ray.worker-register", "Blocked"),
    ("RuntimeError: world_size (6) is not divisible by 4", "config.world-size", "Blocked"),
    ("RuntimeError: world_size (8) is not divisible by expert_tensor_model_pipeline_parallel size (6)",
     "config.world-size", "Blocked"),
    ("RuntimeError: pipeline-model-parallel size should be greater than 1 with interleaved schedule",
     "config.interleaved", "Blocked"),
    ("AssertionError: num_layers must be divisible by virtual pipeline size", "config.world-size", "Blocked"),
    ("AssertionError: Got mini_batch_size=32 and self.engine.get_data_parallel_size()=6",
     "config.mini-batch-dp", "Blocked"),
    ("AssertionError: real_train_batch_size (6) must be divisible by minimal possible batch size (4)",
     "config.batch-rules", "Blocked"),
    ("AssertionError: use_mbridge must be True", "config.backend", "Blocked"),
    ("NotImplementedError: LoRA/PEFT only supported via Megatron-Bridge", "config.backend", "Blocked"),
    ("ValueError: Invalid router_replay mode: R4", "config.router-replay", "Blocked"),
    ("ValueError: Rollout vllmm with mode async not found", "config.rollout", "Blocked"),
    ("AssertionError: Not enough GPUs to run the reward model", "config.reward-model", "Blocked"),
    ("RuntimeError: Max retries (3) reached for request to http://n1:8000/classify", "config.model-request",
     "Blocked"),
    ("ValueError: No available memory for the cache blocks. Try increasing", "gpu.vllm-memory", "Blocked"),
    ("ValueError: Free memory on device (3/79 GiB) is less than desired GPU memory utilization",
     "gpu.vllm-memory", "Blocked"),
    ("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB", "gpu.out-of-memory", "Blocked"),
    ("RuntimeError: Megatron optimizer step failed", "provider.optimizer", "Fail"),
    ("ValueError: Found legacy PEFT checkpoint at /ckpt/adapter_checkpoint", "config.stale-checkpoint",
     "Blocked"),
    ("RuntimeError: Sync replay buffer selected terminal groups with no materializable trajectories",
     "provider.rollouts-lost", "Blocked"),
    ("slurmstepd: error: *** JOB 7 ON n1 CANCELLED AT 2026-08-22T15:00:00 DUE TO TIME LIMIT ***",
     "slurm.time-limit", "Blocked"),
    ("TypeError: path_or_uri must be a string, got NoneType", "ray.uv-hook", "Blocked"),
    ("AssertionError: something that nobody has a name for", "effect.exception", "Blocked"),
]  # fmt: skip
NEMO = [
    ("AssertionError: a known batch-variant accuracy issue with TP>=4", "config.tp-accuracy", "Blocked"),
    ("ValueError: World size (2) is insufficient for the parallelism", "config.world-size", "Blocked"),
    ("AssertionError: Configure either Megatron (policy.megatron_cfg.enabled=true) or DTensor",
     "config.backend", "Blocked"),
    ("OverridesError: Failed to parse Hydra overrides", "config.hydra-key", "Blocked"),
    ("ValueError: model_overrides is only for Megatron Bridge model fields", "config.backend", "Blocked"),
    ("CUDA error: an illegal memory access was encountered", "gpu.illegal-access", "Fail"),
    ("HfHubHTTPError: 429 Client Error: Too Many Requests for url", "hub.rate-limit", "Blocked"),
    ("GatedRepoError: 403 Client Error. Access to model x is restricted", "hub.credentials", "Blocked"),
    ("OSError: [Errno 28] No space left on device", "disk.full", "Blocked"),
    ("collect2: error: ld returned 1: final link failed: Read-only file system", "disk.read-only", "Blocked"),
    ("Failed to compile the C++ dataset helper functions", "build.megatron-helpers", "Blocked"),
    ("make: python3-config: No such file or directory", "build.python3-config", "Blocked"),
    ("ModuleNotFoundError: No module named pybind11", "build.pybind11", "Blocked"),
    ("ImportError: vLLM is not installed. Please check", "image.vllm-missing", "Blocked"),
    ("RuntimeError: TORCH_CUDA_ARCH_LIST is not set", "gpu.arch-list", "Blocked"),
    ("error: Failed to spawn: `coverage`", "image.cli-missing", "Blocked"),
    ("error: Failed to fetch: `https://index/simple/`", "image.uv", "Blocked"),
    ("FileNotFoundError: Pretrained run config not found at / on rank=3", "config.convert-shared",
     "Blocked"),
    ("The converted checkpoint was created with an older version of megatron-bridge", "config.stale-convert",
     "Blocked"),
    ("ResourceInsufficientError: Maximum number of retries reached (6)", "ray.resources-insufficient",
     "Blocked"),
    ("RuntimeError: Version mismatch: The cluster was started with:", "ray.version-mismatch", "Blocked"),
    ("Watchdog caught collective operation timeout: WorkNCCL(SeqNum=1)", "effect.nccl-watchdog", "Blocked"),
    ("ray.exceptions.OutOfMemoryError: Task was killed due to the node running low on memory",
     "ray.memory-pressure", "Blocked"),
    ("RuntimeError: Updating weights for the generation policy failed during refit", "provider.refit",
     "Fail"),
    ("RuntimeError: Failed to save checkpoint to /ckpt/step_2: KeyError", "provider.checkpoint-save", "Fail"),
    ("RuntimeError: Failed to save checkpoint to /ckpt: [Errno 28] No space left on device", "disk.full",
     "Blocked"),
    ("ValueError: Metric val:acc not found in val metrics", "config.metric-name", "Blocked"),
    ("AssertionError: Sequence Packing must be enabled to use Context Parallelism", "config.cp-packing",
     "Blocked"),
    ("│ FAIL   │ max(data['train/x']) < 1.05 │ 3.2 │ (condition evaluated to False) │",
     "provider.metric-check", "Fail"),
    ("    • Loss: nan", "provider.nan", "Fail"),
]  # fmt: skip


@pytest.mark.parametrize(("line", "signature", "verdict"), VERL, ids=lambda value: str(value)[:40])
def test_verl_catalogue(line: str, signature: str, verdict: str, tmp_path: Path, record: Record) -> None:
    judged(
        "verl's catalogue",
        [*VERL_START, f"(WorkerDict pid=41990) {line}"],
        signature,
        verdict,
        tmp_path,
        record,
    )


@pytest.mark.parametrize(("line", "signature", "verdict"), NEMO, ids=lambda value: str(value)[:40])
def test_nemo_rl_catalogue(line: str, signature: str, verdict: str, tmp_path: Path, record: Record) -> None:
    judged("NeMo-RL's catalogue", [*NEMO_START, line], signature, verdict, tmp_path, record)


def judged(group: str, lines: list[str], signature: str, verdict: str, folder: Path, record: Record) -> None:
    wrapper = signature == "effect.nccl-watchdog"
    cause = first_cause(scan([Log("n1", "t", "\n".join(lines))] if wrapper else
                             after_a_start_before_effects(tuple(lines)), folder))  # fmt: skip
    got = f"{cause.signature} {cause.verdict}" if cause is not None else ""
    record(group, lines[-1][:50], f"{signature} {verdict}", got)
    assert got == f"{signature} {verdict}"


def cause_of(*lines: str) -> tuple[str, str]:
    cause = first_cause(scan_lines(lines))
    return (cause.signature, cause.verdict) if cause is not None else ("", "")


BRIDGE_TRACEBACK = [
    "(WorkerDict pid=41990) Traceback (most recent call last):",
    '(WorkerDict pid=41990)   File "/verl/workers/engine/megatron/transformer_impl.py", line 402, in init',
    "(WorkerDict pid=777)   another worker's line in between",
    '(WorkerDict pid=41990)   File "/src/megatron/bridge/models/x.py", line 7, in load_hf_weights',
    "(WorkerDict pid=41990)     raise KeyError(name)",
    "(WorkerDict pid=41990) KeyError: 'decoder.layers.0.weight'",
]
EXCEPTION = "ValueError: a message that no signature knows"
SYNC_FRAME = '  File "/w/x.py", line 4, in update_weights'
ROLLOUT_TRACEBACK = [
    "Traceback (most recent call last):",
    '  File "/w/verl/workers/rollout/vllm_rollout/server.py", line 4, in launch',
    EXCEPTION,
]


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ([EXCEPTION], ("effect.exception", "Fail")),
        ([*VERL_START, EXCEPTION], ("effect.exception", "Blocked")),
        ([*VERL_BUILDING, EXCEPTION], ("effect.exception", "Fail")),
        ([*NEMO_START, EXCEPTION], ("effect.exception", "Blocked")),
        ([*NEMO_BUILDING, EXCEPTION], ("effect.exception", "Fail")),
        ([*VERL_START, *BRIDGE_TRACEBACK], ("provider.traceback", "Fail")),
        ([*VERL_BUILT, *ROLLOUT_TRACEBACK], ("effect.rollout", "Blocked")),
        ([*VERL_BUILT, SYNC_FRAME, EXCEPTION], ("provider.weight-sync", "Fail")),
        ([*VERL_START, "torch.OutOfMemoryError: CUDA out of memory."], ("gpu.out-of-memory", "Blocked")),
        ([*HEALTHY, "torch.OutOfMemoryError: CUDA out of memory."], ("gpu.out-of-memory", "Blocked")),
    ],
    ids=str,
)  # fmt: skip
def test_boundary_decides_the_verdict(lines: list[str], expected: tuple[str, str]) -> None:
    assert cause_of(*lines) == expected


def test_rollout_failure_says_that_the_trainer_was_built() -> None:
    cause = first_cause(scan_lines([*VERL_BUILT, *ROLLOUT_TRACEBACK]))
    assert cause is not None and "it came after the trainer was built (<lines>:4)" in cause.facts


def test_exception_inside_rays_wrapper_is_the_cause() -> None:
    lines = [
        "Error executing job with overrides: ['a=b']",
        "ray.exceptions.RayTaskError(ActorDiedError): ray::TaskRunnerV1.run() (pid=1, ip=10.0.0.1)",
        "ray.exceptions.ActorDiedError: The actor died because of an error raised in its creation task",
        '  File "/w/verl/base/worker.py", line 267, in f',
        EXCEPTION,
    ]
    assert cause_of(*lines)[0] == "effect.exception"


STEP = "(TaskRunnerV1 pid=1) step:{} - actor/grad_norm:{} - training/global_step:{}"


def steps(*norms: object) -> list[str]:
    return [STEP.format(number, norm, number) for number, norm in enumerate(norms, 1)]


@pytest.mark.parametrize(
    "survived",
    [
        "HTTP Error 429 thrown while requesting HEAD https://hub/x",
        "make: python3-config: Command not found",
        "(raylet) worker_pool.cc:586: workers not registered within the timeout",
        "still waiting to acquire lock on /c/.locks/a.lock",
        "OSError: [Errno 98] Address already in use",
        EXCEPTION,
    ],
)
def test_what_training_went_on_after_is_a_note(survived: str) -> None:
    assert cause_of(*VERL_START, survived, *steps(0.2, 0.3)) == ("", "")
    assert cause_of(*VERL_START, survived, *steps(0.2, 0.3), "AssertionError: later")[0] == "effect.exception"


def test_failure_that_comes_again_after_the_last_step_is_the_cause() -> None:
    disk = "OSError: [Errno 28] No space left on device"
    cause = first_cause(scan_lines([disk, *steps(0.2), "x", disk]))
    assert cause is not None and (cause.signature, cause.line) == ("disk.full", 4)


def test_survivor_on_another_node_is_told_by_time(tmp_path: Path) -> None:
    worker = "2026-08-22 10:00:00 make: python3-config: Command not found\n2026-08-22 10:40:00 KeyError: 'a'"
    driver = "\n".join(["2026-08-22 10:30:00 x", *steps(0.2, 0.1)])
    cause = first_cause(scan([Log("n1", "a", worker), Log("n2", "b", driver)], tmp_path))
    assert cause is not None and cause.signature == "effect.exception"


@pytest.mark.parametrize(
    ("norms", "found"),
    [((0.0, 0.0, 0.0), True), ((0.0,), True), ((0.1, 0.0, 0.2), False), ((0.2, 0.1, 0.0), False),
     ((0.2, "np.float64(0.0)", 0.0), True), ((0.0, 0.1, 0.2), False)],
)  # fmt: skip
def test_metric_is_judged_by_its_last_values(norms: tuple[object, ...], found: bool) -> None:
    assert (cause_of(*steps(*norms))[0] == "provider.zero-gradient") is found


def test_workers_that_were_not_killed_are_no_memory_pressure() -> None:
    line = "(raylet) 0 Workers (tasks / actors) killed due to memory pressure (OOM), 1 Workers crashed"
    assert cause_of(line) == ("", "")


SHUTDOWN = [
    "resource_tracker: There appear to be 4 leaked semaphore objects",
    "Exception ignored in: <function Tracking.__del__ at 0x7f>",
    "Traceback (most recent call last):",
    '  File "/w/tracking.py", line 1, in __del__',
    "TypeError: 'NoneType' object is not callable",
    "RuntimeError: DataLoader worker (pid 7) is killed by signal: Terminated.",
    "*** SIGTERM received at time=1 on cpu 3 ***",
    "(raylet) The node with node id: abc has been marked dead because the detector has missed too many",
    "Error shutting down generation: ConnectionError: gone",
    "BrokenPipeError: [Errno 32] Broken pipe",
    "FutureWarning: vanilla_mbridge is deprecated, RuntimeError: see x",
]
NEMO_HEALTHY = (
    (FIXTURES / "nemo_rl_log_example.txt").read_text("utf-8").split("### SECTION D3")[0].splitlines()
)


@pytest.mark.parametrize(
    "log",
    [
        HEALTHY,
        [*HEALTHY, *SHUTDOWN],
        (FIXTURES / "verl_log_example_legacy.txt").read_text("utf-8").splitlines(),
        NEMO_HEALTHY,
        [*NEMO_HEALTHY, "Max number of steps has been reached, stopping training early", *SHUTDOWN],
        (FIXTURES / "skyrl_fsdp/attempts/1/logs/vm/resume.log").read_text("utf-8").split("\n"),
        ["{'loss': 0.5, 'reward': 1.0}", "{'train_runtime': 3.1, 'train_loss': 0.5}", *SHUTDOWN],
        [],
    ],
    ids=[
        "verl",
        "verl, shutdown",
        "older verl",
        "NeMo-RL",
        "NeMo-RL, shutdown",
        "SkyRL",
        "TRL, shutdown",
        "empty",
    ],
)
def test_healthy_log_has_no_cause(log: list[str], record: Record) -> None:
    cause = first_cause(scan_lines(log))
    record("healthy logs", str(log[:1])[:50], "", cause.signature if cause is not None else "")
    assert cause is None


# Failures beyond both catalogues and the public cases: what schedulers, containers and libraries say.
FURTHER = [
    ("srun: error: Invalid account or account/partition combination specified", "slurm.account"),
    ("sbatch: error: Memory specification can not be satisfied", "slurm.never-starts"),
    ("srun: error: Node failure on n3", "slurm.node-fail"),
    ("srun: error: Unable to confirm allocation for job 5: Zero Bytes were received", "slurm.controller"),
    ("srun: error: Task launch for 6.0 failed on node n4: Job credential expired", "slurm.task-launch"),
    ("srun: unrecognized option '--container-image=x.sqsh'", "slurm.no-pyxis"),
    ("slurmstepd: error: execve(): python3: No such file or directory", "image.command"),
    ("/bin/bash: line 1: python: command not found", "image.command"),
    ("slurmstepd: error: pyxis: container start failed with error code: 1", "container.start"),
    ("FATAL:   could not open image /x.sif: failed to retrieve path", "container.image-file"),
    ("enroot-nsenter: failed to create user namespace: Operation not permitted", "container.namespace"),
    ("OSError: [Errno 37] No locks available", "disk.locks"),
    ("OSError: [Errno 28] No space left on device: '/dev/shm/torch_1'", "disk.shared-memory"),
    ("OSError: [Errno 24] Too many open files", "limits.open-files"),
    ("RuntimeError: Device string must not be empty", "gpu.none"),
    ("AttributeError: 'RouterArgs' object has no attribute 'pd_disaggregation'", "image.router-version"),
    ("PermissionError: [Errno 13] Permission denied: '/cache/x'", "disk.permission"),
    ("OSError: [Errno 116] Stale file handle", "disk.stale-file"),
    ("ray.exceptions.ObjectStoreFullError: Failed to put object", "ray.object-store"),
    ("ValueError: Ran out of ports: No available ports. Please specify a wider range", "network.ports-out"),
    ("socket.gaierror: [Errno -3] Temporary failure in name resolution", "network.names"),
    ("OSError: We couldn't connect to 'https://hub.example.org' to load the files", "network.outside"),
    ("Failed to initialize NVML: Driver/library version mismatch", "gpu.driver-reload"),
    ("RuntimeError: CUDA error: device-side assert triggered", "gpu.device-assert"),
    ("RuntimeError: FlashAttention only supports Ampere GPUs or newer.", "gpu.no-kernel"),
    ("ValueError: 4.38 GiB is needed, which is larger than the available KV cache memory", "gpu.vllm-memory"),
    ("RuntimeError: Failed to find C compiler. Please specify via CC", "build.compiler"),
    ("ImportError: cannot import name 'helpers_cpp' from 'megatron.core.datasets'", "build.megatron-helpers"),
    ("OSError: Can't load tokenizer for 'x'.", "hub.config-missing"),
    ("RuntimeError: PytorchStreamReader failed reading zip archive", "model.checkpoint-file"),
    ("RuntimeError: Error(s) in loading state_dict for X: size mismatch", "provider.state-dict"),
    ("ValueError: The decoder prompt (length 5000) is longer than the maximum model length of 4096.",
     "config.length"),
    ("wandb.errors.UsageError: api_key not configured (no-tty)", "hub.tracker"),
]  # fmt: skip


@pytest.mark.parametrize(("line", "signature"), FURTHER, ids=lambda value: str(value)[:40])
def test_further_failure(line: str, signature: str, tmp_path: Path, record: Record) -> None:
    cause = first_cause(scan(after_a_start_before_effects((line,)), tmp_path))
    record("further failures", line[:50], signature, cause.signature if cause is not None else "")
    assert cause is not None and cause.signature == signature
