"""A stand-in for a SkyRL checkout: settings as strict as the real ones, and what a run prints and writes.

It trains nothing. Keys, log lines, TensorBoard tags, checkpoint layout and its commit marker are those of
SkyRL at a9564572 (2026-08-21). FAKE_SKYRL makes it break: `crash`, `garbage` (weights mixed up), `nan`,
`unsaved` (no commit marker), `scratch` (a resume that starts anew).
"""

from __future__ import annotations

from pathlib import Path

from tests.kits.checkout_kit import write_checkout

CONFIG = '''\
"""Settings of the stand-in."""
from dataclasses import dataclass, field
from typing import Any, Dict, List, Optional

@dataclass
class BaseConfig:
    pass

@dataclass
class DataLoaderConfig(BaseConfig):
    num_workers: int = 8

@dataclass
class DataConfig(BaseConfig):
    dataloader: DataLoaderConfig = field(default_factory=DataLoaderConfig)
    train_data: List[str] = field(default_factory=list)
    val_data: List[str] = field(default_factory=list)

@dataclass
class LoraConfig(BaseConfig):
    rank: int = 0

@dataclass
class ModelConfig(BaseConfig):
    path: Optional[str] = None
    lora: LoraConfig = field(default_factory=LoraConfig)

@dataclass
class OptimizerConfig(BaseConfig):
    lr: float = 1e-6

@dataclass
class DDPConfig(BaseConfig):
    overlap_grad_reduce: bool = False
    grad_reduce_in_fp32: bool = True

@dataclass
class MegatronConfig(BaseConfig):
    tensor_model_parallel_size: int = 1
    pipeline_model_parallel_size: int = 1
    context_parallel_size: int = 1
    expert_model_parallel_size: int = 1
    expert_tensor_parallel_size: Optional[int] = None
    moe_token_dispatcher_type: str = "alltoall"
    moe_router_load_balancing_type: str = "none"
    moe_grouped_gemm: bool = True
    empty_cuda_cache: Optional[bool] = None
    moe_router_score_function: Optional[str] = None
    moe_router_enable_expert_bias: Optional[bool] = None
    ddp_config: DDPConfig = field(default_factory=DDPConfig)
    transformer_config_kwargs: Dict[str, Any] = field(default_factory=dict)
    optimizer_config_kwargs: Dict[str, Any] = field(default_factory=dict)
    dist_ckpt_optim_fully_reshardable: bool = False

@dataclass
class PolicyConfig(BaseConfig):
    model: ModelConfig = field(default_factory=ModelConfig)
    optimizer_config: OptimizerConfig = field(default_factory=OptimizerConfig)
    sequence_parallel_size: int = 1
    megatron_config: MegatronConfig = field(default_factory=MegatronConfig)

@dataclass
class RefConfig(BaseConfig):
    megatron_config: MegatronConfig = field(default_factory=MegatronConfig)

@dataclass
class PlacementConfig(BaseConfig):
    colocate_all: bool = True
    policy_num_nodes: int = 1
    policy_num_gpus_per_node: int = 1
    ref_num_nodes: int = 1
    ref_num_gpus_per_node: int = 1

@dataclass
class AlgorithmConfig(BaseConfig):
    advantage_estimator: str = "grpo"
    use_kl_loss: bool = True
    use_kl_in_reward: bool = False

@dataclass
class SamplingParams(BaseConfig):
    max_generate_length: int = 1024

@dataclass
class InferenceEngineConfig(BaseConfig):
    backend: str = "vllm"
    run_engines_locally: bool = True
    external_proxy_url: Optional[str] = None
    external_server_urls: Optional[List[str]] = None
    weight_sync_backend: str = "nccl"
    num_engines: int = 1
    tensor_parallel_size: int = 1
    pipeline_parallel_size: int = 1
    expert_parallel_size: int = 1
    data_parallel_size: int = 1
    enforce_eager: bool = False
    enable_ray_prometheus_stats: bool = True
    max_num_seqs: int = 1024
    distributed_executor_backend: str = "ray"
    use_expandable_segments: bool = False
    enable_return_routed_experts: bool = False
    gpu_memory_utilization: float = 0.8
    engine_init_kwargs: Dict[str, Any] = field(default_factory=dict)

@dataclass
class GeneratorConfig(BaseConfig):
    inference_engine: InferenceEngineConfig = field(default_factory=InferenceEngineConfig)
    n_samples_per_prompt: int = 5
    batched: bool = False
    sampling_params: SamplingParams = field(default_factory=SamplingParams)

@dataclass
class EnvironmentConfig(BaseConfig):
    env_class: str = "gsm8k"

@dataclass
class TrainerConfig(BaseConfig):
    placement: PlacementConfig = field(default_factory=PlacementConfig)
    strategy: str = "fsdp"
    policy: PolicyConfig = field(default_factory=PolicyConfig)
    ref: RefConfig = field(default_factory=RefConfig)
    algorithm: AlgorithmConfig = field(default_factory=AlgorithmConfig)
    seed: int = 42
    resume_mode: Optional[str] = "latest"
    log_path: str = "/tmp/skyrl-logs"
    ckpt_path: str = ""
    max_ckpts_to_keep: int = -1
    ckpt_interval: int = 10
    export_path: str = ""
    epochs: int = 1
    max_training_steps: Optional[int] = None
    update_epochs_per_batch: int = 1
    train_batch_size: int = 1024
    policy_mini_batch_size: int = 256
    micro_train_batch_size_per_gpu: int = 1
    micro_forward_batch_size_per_gpu: int = 1
    max_tokens_per_microbatch: int = -1
    remove_microbatch_padding: bool = True
    flash_attn: bool = True
    eval_batch_size: int = 1024
    eval_before_train: bool = True
    eval_interval: int = 5
    max_prompt_length: int = 512
    logger: str = "wandb"
    logprobs_chunk_size: Optional[int] = 1024
    fused_lm_head_logprob: bool = False

@dataclass
class SkyRLTrainConfig(BaseConfig):
    data: DataConfig = field(default_factory=DataConfig)
    trainer: TrainerConfig = field(default_factory=TrainerConfig)
    generator: GeneratorConfig = field(default_factory=GeneratorConfig)
    environment: EnvironmentConfig = field(default_factory=EnvironmentConfig)
'''

MAIN = '''\
"""The stand-in's entrypoint: parse strictly, then behave like a short run."""
import dataclasses, json, os, re, sys, time, urllib.request
from pathlib import Path
import yaml
from skyrl.train.config.config import SkyRLTrainConfig

BREAK = os.environ.get("FAKE_SKYRL", "")

def log(text):
    now = time.strftime("%Y-%m-%d %H:%M:%S.000")
    print(f"{now} | INFO     | skyrl.train.trainer:train:1 - {text}", flush=True)

def apply(config, key, value):
    at, parts = config, key.split(".")
    for place, part in enumerate(parts):
        if isinstance(at, dict):
            at[".".join(parts[place:])] = value
            return
        if not dataclasses.is_dataclass(at) or part not in {f.name for f in dataclasses.fields(at)}:
            raise ValueError(f"Invalid fields {{{part!r}}} for {type(at).__name__}. (in {key})")
        if place == len(parts) - 1:
            setattr(at, part, value)
        at = getattr(at, part)

def resolve(value):
    """The interpolations of OmegaConf that jobspec's examples have: `oc.env`, and `oc.decode` of a list."""
    if isinstance(value, list):
        return [resolve(item) for item in value]
    if not isinstance(value, str):
        return value
    value = re.sub("[$]{oc[.]env:([A-Z_]+)}", lambda found: os.environ[found.group(1)], value)
    left, right = "${oc.decode:'[", "]'}"
    decoded = value.startswith(left) and value.endswith(right)
    return value[len(left):-len(right)].split(",") if decoded else value

def ask(url, path, body):
    with urllib.request.urlopen(url + path, json.dumps(body).encode(), timeout=30) as answer:
        return json.load(answer)

def transfer(engine, step):
    """Weights of this step to all servers, and an answer of each; how far they differ from the trainer's."""
    if engine.external_server_urls is None:
        return 0.2
    for url in engine.external_server_urls:
        ask(url, "/collective_rpc", {"method": "update_weights_nccl", "version": step})
    answers = [ask(url, "/skyrl/v1/generate", {"prompt": "1 + 1"}) for url in engine.external_server_urls]
    log(f"step {step} was generated on " + ", ".join(answer["node"] for answer in answers))
    return 0.2 if {answer["version"] for answer in answers} == {step} else 2.1

def read(words):
    config = SkyRLTrainConfig()
    for word in words:
        key, _, text = word.partition("=")
        if key.startswith("+"):
            raise ValueError(f"The '+' prefix is not supported: {word}")
        apply(config, key, resolve(yaml.safe_load(text)))
    engine = config.generator.inference_engine
    if not engine.run_engines_locally and engine.external_server_urls is None:
        raise ValueError("run_engines_locally=false requires external_proxy_url or external_server_urls.")
    if config.trainer.placement.colocate_all and engine.external_server_urls is not None:
        raise ValueError("Cannot use external_server_urls with colocate_all=true.")
    return config

def write(writer, step, values):
    """As torch's SummaryWriter does with the same writer, which takes a second to import."""
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.compat.proto.summary_pb2 import Summary
    for tag, value in values.items():
        found = [Summary.Value(tag=tag, simple_value=value)]
        writer.add_event(Event(wall_time=time.time(), step=step, summary=Summary(value=found)))
    writer.flush()

def main():
    from tensorboard.summary.writer.event_file_writer import EventFileWriter
    config = read(sys.argv[1:])
    trainer, engine = config.trainer, config.generator.inference_engine
    for file in (*config.data.train_data, trainer.policy.model.path):
        if not os.path.exists(file):
            raise FileNotFoundError(file)
    for file in config.data.train_data:  # by the suffix the real one tells a file from a name on the hub
        if not file.endswith((".parquet", ".json", ".jsonl")):
            raise FileNotFoundError(f"Couldn't find any data file at {file}.")
    root, begun = Path(trainer.ckpt_path), 0
    marker = root / "latest_ckpt_global_step.txt"
    if trainer.resume_mode == "latest" and marker.is_file() and BREAK != "scratch":
        begun = int(marker.read_text())
        log(f"Loading checkpoint from: {root}/global_step_{begun}")
        log(f"Resuming from global_step: {begun}")
        log(f"Successfully loaded complete checkpoint state from global_step_{begun}")
    elif trainer.resume_mode == "latest":
        log("No checkpoint found, starting training from scratch")
    if BREAK == "crash":
        raise RuntimeError("Engine core initialization failed. See root cause above.")
    last = trainer.max_training_steps
    writer = EventFileWriter(os.environ["TENSORBOARD_DIR"])
    for step in range(begun + 1, trainer.max_training_steps + 1):
        good = BREAK != "garbage"
        reward = (0.3 + 0.6 * step / (step + 4) + 0.01 * (step % 3)) if good else 0.0
        values = {
            "reward/avg_raw_reward": reward,
            "policy/final_loss": float("nan") if BREAK == "nan" and step == last else 0.01,
            "policy/grad_norm": 0.2 + 0.001 * step,
            "policy/rollout_train_logprobs_abs_diff_mean": transfer(engine, step) if good else 2.1,
            "generate/avg_num_tokens": 220.0 + step,
            "trainer/tokens_per_second_per_gpu": 121.0,
            "trainer/global_step": step,
            "timing/step": 1.0,
            "eval/openai_gsm8k/avg_score": 0.94 if good else 0.0,
            "eval/all/avg_score": 0.94 if good else 0.0,
        }
        write(writer, step, values)
        if trainer.max_training_steps > 100:  # a long run: steps take time
            time.sleep(0.5)
        if trainer.ckpt_interval > 0 and (step % trainer.ckpt_interval == 0 or step == last):
            folder = root / f"global_step_{step}"
            (folder / "policy").mkdir(parents=True, exist_ok=True)
            (folder / "policy/metadata.json").write_text("{}")
            (folder / "trainer_state.pt").write_bytes(b"x")
            log(f"Saved trainer state to {folder}/trainer_state.pt")
            if BREAK != "unsaved":
                marker.write_text(str(step))
                log(f"Successfully saved checkpoint for global_step_{step} to: {folder}")
    writer.close()
    evals = Path(trainer.export_path) / f"dumped_evals/global_step_{trainer.max_training_steps}_evals"
    evals.mkdir(parents=True, exist_ok=True)
    (evals / "aggregated_results.jsonl").write_text('{"eval/openai_gsm8k/avg_score": 0.94}\\n')
    log("Training done!")

if __name__ == "__main__":
    main()
'''
ENGINE_SERVER = '''\
"""The stand-in's server of an engine: it answers with the version of the weights that it was sent."""
import argparse, json, os, socket
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

VERSION = [0]

class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        self.answer({}, 200 if self.path == "/health" else 404)

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.path == "/collective_rpc" and body["method"] == "update_weights_nccl":
            VERSION[0] = body["version"]
            self.answer({})
        elif self.path == "/skyrl/v1/generate":
            node = os.environ.get("SLURMD_NODENAME") or self.server.server_address[0]
            self.answer({"version": VERSION[0], "node": node})
        else:
            self.answer({}, 404)

    def answer(self, value, status=200):
        self.send_response(status)
        self.end_headers()
        self.wfile.write(json.dumps(value).encode())

def main():
    parser = argparse.ArgumentParser()
    for name in ("model", "host", "worker-extension-cls", "weight-transfer-config"):
        parser.add_argument("--" + name, required=True)
    for name in ("port", "tensor-parallel-size"):
        parser.add_argument("--" + name, type=int, required=True)
    options, _ = parser.parse_known_args()
    seen = os.environ.get("CUDA_VISIBLE_DEVICES", "")
    if len(seen.split(",")) < options.tensor_parallel_size or not os.path.exists(options.model):
        raise SystemExit(f"GPUs {seen} do not hold {options.model}")
    print(f"{os.environ['JOBSPEC_GROUP']} serves {options.model} on GPUs {seen}", flush=True)
    ThreadingHTTPServer((options.host, options.port), Handler).serve_forever()

if __name__ == "__main__":
    main()
'''
# What the weight-sync gate looks for, by file: with pull request 1816, and without.
BACKEND = "skyrl/backends/skyrl_train"
SOURCES = {
    f"{BACKEND}/weight_sync/cuda_ipc_strategy.py": "per_gpu_meta_pickled = {}\n",
    f"{BACKEND}/inference_servers/new_inference_worker_wrap.py": "meta = per_gpu_meta_pickled\n",
    f"{BACKEND}/workers/megatron/megatron_worker.py": "FP32 = ('gate.e_score_correction_bias',)\n",
    f"{BACKEND}/inference_servers/layerwise_reload.py": "loaded = min(numel, total)\n",
    "skyrl-gym/skyrl_gym/envs/gsm8k/env.py": "answer = action.split('</think>')[-1]\n",
    "skyrl/train/utils/tracking.py": "for backend in backends: pass\n",
}


FULL_CONTEXT = "examples/train_scripts/full_context"
# The settings that each harness adds, and a run of one: what it prints, and nothing else.
HARNESSES = {
    "main_ultra_sweep": """num_dummy_steps: int = 3
    sweep_results_file: str = ""
    sweep_tag: str = "run"
    sweep_mode: str = "uniform"
    sweep_num_seq: int = -1
    sweep_prompt_len: int = 512
    sweep_seq_len: int = 10240
    sweep_avg_len: int = 60000
    sweep_std_len: int = 30000
    sweep_min_len: int = 1024
    sweep_max_len: int = 131072
    sweep_seed: int = 1234
""",
    "main_full_ctx": """num_dummy_steps: int = 5
    dummy_variable_length: bool = False
    dummy_mean_len: int = 70000

class HarnessExp:
    def get_inference_client(self):
        return None
""",
}
HARNESS = """\
from dataclasses import dataclass
from skyrl.train.config.config import TrainerConfig

@dataclass
class HarnessTrainerConfig(TrainerConfig):
    FIELDS
"""


def make_fake_skyrl(root: Path, *, patched: bool = True, servers: bool = False) -> Path:
    """A checkout below `root`, with pull request 1816 or without it; a git repository.

    With `servers` an engine's server is there, and the look at the environment imports it.
    """
    files = {
        "skyrl/__init__.py": "",
        "skyrl/train/__init__.py": "",
        "skyrl/train/config/__init__.py": "",
        "skyrl/train/config/config.py": CONFIG,
        "skyrl/train/entrypoints/__init__.py": "",
        "skyrl/train/entrypoints/main_base.py": MAIN,
        **({f"{BACKEND}/inference_servers/vllm_server_actor.py": ENGINE_SERVER} if servers else {}),
        **{
            f"{FULL_CONTEXT}/{name}.py": HARNESS.replace("FIELDS", fields)
            for name, fields in HARNESSES.items()
            if patched or name != "main_ultra_sweep"
        },
        **{name: text if patched else "# " + text for name, text in SOURCES.items()},
    }
    return write_checkout(root, files)
