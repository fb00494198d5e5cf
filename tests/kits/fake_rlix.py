"""Stand-ins for a checkout of RLix and for its fork of NeMo-RL: real Ray actors that take turns, no training.

What is printed, read, written and refused is that of rlops/rlix `nemo` at f77d913 (2026-05-12) and of a fork
that has the hooks which it calls; the published fork lacks three. FAKE_RLIX makes one pipeline break, as
`FAULT:NAME`: `crash` (its actor raises), `loop` (its training loop breaks, which NeMo-RL hides), `stale`
(weights keep their version), `asleep` (engines are not woken), `nan`; `shutdown:` is RLix's scheduler
stopping Ray, and `serial:` a driver that starts the second pipeline after the first.
"""

# ruff: noqa: E501 - lines as the real ones print them

from __future__ import annotations

from pathlib import Path

from tests.kits.checkout_kit import write_checkout

DRIVER = '''\
"""The stand-in's driver: arguments, order of calls and printed lines of RLix's own."""
import argparse, os, re, sys, threading
from pathlib import Path
import ray, yaml

def load(path):
    """OmegaConf.load and resolve, as far as wrappers need it."""
    text = path.read_text()
    return yaml.safe_load(re.sub(r"\\$\\{oc\\.env:(\\w+)\\}", lambda found: os.environ[found[1]], text))

def main():
    from nemo_rl.utils.config import load_config, parse_hydra_overrides
    from rlix.orchestrator import Orchestrator
    from rlix.pipeline.nemo_rl_pipeline import NemoRLFullFinetunePipeline
    parser = argparse.ArgumentParser()
    parser.add_argument("--config_path", default="nemo_rl_test")
    parser.add_argument("--config_name", default="nemo_rl_pipeline1_2gpu")
    parser.add_argument("--admit-delay-s", type=float, default=0.0)
    args = parser.parse_args()
    wrappers = []
    for index, name in enumerate(args.config_name.split(","), 1):
        path = Path(__file__).parent / args.config_path / f"{name}.yaml"
        if not path.exists():
            raise FileNotFoundError(f"Wrapper config not found: {path}")
        wrapper = load(path)
        wrapper["exp_name"] += f"-mp{index}"
        if not wrapper.get("nemo_config_path"):
            raise RuntimeError(f"{path}: missing nemo_config_path")
        parse_hydra_overrides(load_config(wrapper["nemo_config_path"]), wrapper["nemo_config_overrides"])
        wrappers.append(wrapper)
    fault = os.environ.get("FAKE_RLIX", "")
    ray.init(namespace="rlix", log_to_driver=True, runtime_env={"env_vars": {"RLIX_CONTROL_PLANE": "rlix"}})
    orchestrator = ray.remote(Orchestrator).options(name="rlix:orchestrator", max_concurrency=64).remote()
    actors, ids, refs = [], [], []
    for index, wrapper in enumerate(wrappers):
        pid = ray.get(orchestrator.allocate_pipeline_id.remote("ft"))
        ray.get(orchestrator.register_pipeline.remote(pid, wrapper))
        cache = {"HF_HOME": "/tmp/rlix/shared/hf", "HF_HUB_CACHE": "/tmp/rlix/shared/hf/hub",
                 "VLLM_CACHE_ROOT": f"/tmp/rlix/{pid}/{ray.get_runtime_context().get_job_id()}/vllm"}
        actor = ray.remote(NemoRLFullFinetunePipeline).options(
            name=f"rlix:pipeline:{pid}", num_cpus=0, max_concurrency=32, runtime_env={"env_vars": cache}
        ).remote(pid, wrapper, orchestrator)
        ray.get(orchestrator.admit_pipeline.remote(pid, actor))
        last = index == len(wrappers) - 1
        if not last and fault != "serial:":
            ray.get(actor.arm_pair_setup_barrier.remote())
            print(f"pair-init barrier armed on {pid} before run.remote()", flush=True)
        refs.append(actor.run.remote())
        actors.append(actor)
        ids.append(pid)
        if fault == "serial:":
            ray.wait(refs[-1:])
        if not last:
            wait = max(args.admit_delay_s, 30.0)
            print(f"step-boundary admission: waiting for {pid} first after_training (timeout={wait}s)", flush=True)
            ok = ray.get(actor.wait_for_first_after_training.remote(wait))
            print(f"step-boundary admission: {pid} reached first after_training (signaled={ok}) "
                  "\\u2014 admitting next pipeline", flush=True)
    for leading, trailing in zip(actors, actors[1:]):
        def release(leading=leading, trailing=trailing):
            ray.get(trailing.wait_for_setup_complete.remote(600.0))
            ray.get(leading.signal_pair_setup_complete.remote())
        threading.Thread(target=release, daemon=True).start()
    pending, successes, failures = list(refs), 0, 0
    while pending:
        ready, pending = ray.wait(pending, num_returns=1)
        for ref in ready:
            pid = ids[refs.index(ref)]
            try:
                ray.get(ref)
                print(f"pipeline {pid} run() returned successfully", flush=True)
                successes += 1
            except Exception as e:
                print(f"pipeline {pid} run() raised: {type(e).__name__}: {e}", flush=True)
                failures += 1
            ray.get(orchestrator.unregister_pipeline.remote(pid))
            print(f"pipeline {pid} unregistered", flush=True)
    print(f"done!!! successes={successes} failures={failures}")
    if failures and not successes:
        sys.exit(1)

if __name__ == "__main__":
    main()
'''
ORCHESTRATOR = '''\
"""Control plane of the stand-in: ids, registration in order, and turns on the GPUs."""
import logging, os, threading, uuid
import ray

class Orchestrator:
    def __init__(self):
        self.pipelines, self.actors, self.lock, self.turns, self.holder = {}, {}, threading.Lock(), 0, ""

    def allocate_pipeline_id(self, kind):
        return f"{kind}_{uuid.uuid4().hex[:12]}"

    def register_pipeline(self, pid, wrapper):
        for cluster in ("actor_train", "actor_infer"):
            if wrapper[cluster]["offload_nccl"] is not True:
                raise RuntimeError(f"offload_nccl=True is required on all GPU-active clusters. "
                                   f"Explicitly set to False on: {[cluster]}.")
        self.pipelines[pid] = wrapper

    def admit_pipeline(self, pid, actor):
        if pid not in self.pipelines:
            raise RuntimeError(f"Pipeline {pid!r} must be registered before admission")
        self.actors[pid] = actor

    def request_train(self, pid):
        self.lock.acquire()
        self.holder = pid
        self.turns += 1
        if os.environ.get("FAKE_RLIX") == "shutdown:" and self.turns == 3:
            self.shutdown()
        self._resize(self.pipelines[pid]["train_device_mapping"], "shrink")

    def release_train(self, pid):
        self._resize(self.pipelines[pid]["train_device_mapping"], "expand")
        self._free()

    def _free(self):
        self.holder = ""
        self.lock.release()

    def _resize(self, gpus, how):
        for pid, actor in list(self.actors.items()):
            infer = self.pipelines[pid]["infer_device_mapping"]
            ranks = [rank for rank, gpu in enumerate(infer) if gpu in gpus]
            try:
                ray.get(actor.resize_infer.remote(how, ranks))
            except ray.exceptions.RayError:
                pass

    def unregister_pipeline(self, pid):
        self.actors.pop(pid, None)
        if self.holder == pid:  # its loop broke while it had the GPUs
            self._free()

    def shutdown(self):
        logging.basicConfig()
        logging.error("orchestrator.shutdown called: force=True reason=%r source=%r", "scheduler_cycle_failed: "
                      "ValidationError: gpu universe not conserved", "scheduler")
        import time
        time.sleep(1)
        for actor in self.actors.values():
            ray.kill(actor)
        os._exit(1)
'''
PIPELINE = '''\
"""One pipeline of the stand-in: the hooks and the lines of RLix's NemoRLFullFinetunePipeline."""
import os, threading
import ray

class Hooks:
    def __init__(self, pipeline):
        self.p = pipeline

    def before_training(self, step):
        p = self.p
        print(f"[RLIX_HOOK {p.id}] before_training step={step} \\u2014 requesting actor_train GPUs", flush=True)
        ray.get(p.orchestrator.request_train.remote(p.id))
        print(f"[RLIX_HOOK {p.id}] before_training step={step} \\u2014 actor_train GPUs granted", flush=True)

    def before_weight_sync(self, step):
        print(f"[RLIX_HOOK {self.p.id}] before_weight_sync step={step} \\u2014 building CPU bucket cache", flush=True)
        self.p._policy.build_cpu_bucket_cache(step)
        if self.p.fault != "stale" or step == 0:
            self.p.version = step + 1

    def after_training(self, step):
        p = self.p
        print(f"[RLIX_HOOK {p.id}] after_training step={step} \\u2014 syncing active base weights", flush=True)
        p.first.set()
        p.paired.wait(600.0)  # the next pipeline's engines start up meanwhile
        ray.get(p.orchestrator.release_train.remote(p.id))
        print(f"[RLIX_HOOK {p.id}] after_training step={step} \\u2014 version={p.version}, actor_train released",
              flush=True)
        return p.version

class Collector:
    """What routes requests; the real one calls `.set_active_dp_ranks` on an actor."""

class NemoRLFullFinetunePipeline:
    def __init__(self, pid, wrapper, orchestrator):
        self.id, self.wrapper, self.orchestrator, self.version = pid, wrapper, orchestrator, 0
        self.first, self.ready, self.paired = threading.Event(), threading.Event(), threading.Event()
        self.paired.set()
        self.active = set()
        kind, _, name = os.environ.get("FAKE_RLIX", "").partition(":")
        self.fault = kind if name and wrapper["exp_name"].startswith(f"{name}-mp") else ""

    def wait_for_first_after_training(self, timeout_s):
        return self.first.wait(timeout_s)

    def wait_for_setup_complete(self, timeout_s):
        return self.ready.wait(timeout_s)

    def arm_pair_setup_barrier(self):
        self.paired.clear()

    def signal_pair_setup_complete(self):
        self.paired.set()

    def resize_infer(self, how, ranks):
        if how == "shrink":
            print(f"[RLIX_PPL {self.id}] _shrink_workers START dp_ranks={ranks} active_before={sorted(self.active)}",
                  flush=True)
            self.active -= set(ranks)
        elif self.fault != "asleep":
            self._generation.wake_up_partial(ranks, skip_activate=True)
            self.active |= set(ranks)
            print(f"[RLIX_PPL {self.id}] _expand_workers DONE dp_ranks={ranks} now active; "
                  f"active_dp_ranks={sorted(self.active)} weight_version={self.version}", flush=True)

    def run(self):
        from nemo_rl.algorithms.grpo import async_grpo_train, setup
        from nemo_rl.utils.config import load_config, parse_hydra_overrides
        config = parse_hydra_overrides(
            load_config(self.wrapper["nemo_config_path"]), self.wrapper["nemo_config_overrides"]
        )
        if self.wrapper["nemo_increment_log_dir"]:
            raise NotImplementedError("the stand-in never counts folders up")
        for place in (config["data"]["default"]["prompt_file"], config["policy"]["model_name"]):
            if not os.path.exists(place):
                raise FileNotFoundError(place)
        if not os.path.isdir(os.environ["HF_HOME"]):
            raise OSError(f"there is no cache at {os.environ['HF_HOME']}")
        group = ray.util.placement_group(
            [{"GPU": 1, "CPU": 4}] * self.wrapper["num_gpus_per_node"], name=f"rlix-shared-gpu-pg-{self.id}"
        ) if self.wrapper["exp_name"].endswith("-mp1") else None
        if group is not None:
            ray.get(group.ready())
        os.makedirs(os.environ["VLLM_CACHE_ROOT"])
        self._policy, self._generation = setup(config, external_train_cluster=[], external_inference_cluster=[])
        self.resize_infer("expand", list(range(len(self.wrapper["infer_device_mapping"]))))
        self.ready.set()
        if self.fault == "crash":
            raise RuntimeError("CUDA error: out of memory in sleep_partial")
        async_grpo_train(config, rlix_hooks=Hooks(self), fault=self.fault)

# The pipeline calls these of the fork: self._policy.build_cpu_bucket_cache(step),
# self._trajectory_collector.set_active_dp_ranks.remote(ranks), .get_model_update_receiver().
'''
CONFIG = '''\
"""Configuration of the stand-in: `key=value` on a structure without new keys, as Hydra reads it."""
import copy, yaml

def load_config(path):
    with open(path) as file:
        return yaml.safe_load(file)

def parse_hydra_overrides(config, overrides):
    config = copy.deepcopy(config)
    for text in overrides:
        key, _, value = text.partition("=")
        bare = key.lstrip("+")
        at, parts = config, bare.split(".")
        for part in parts[:-1]:
            if part not in at:
                if key == bare:
                    raise ValueError(f"Failed to parse Hydra overrides: Key {part!r} is not in struct")
                at[part] = {}
            at = at[part]
        if parts[-1] not in at and key == bare:
            raise ValueError(f"Failed to parse Hydra overrides: Key {parts[-1]!r} is not in struct")
        at[parts[-1]] = yaml.safe_load(value)
    return config
'''
GRPO = '''\
"""The training loop of the stand-in: the order of hooks, the metrics and the hidden errors of NeMo-RL's."""
import json, os, time, traceback

class Policy:
    def __init__(self, config):
        self.config = config

    def build_cpu_bucket_cache(self, step):
        if "RLIX_BUCKET_SIZE_BYTES" not in os.environ:
            raise RuntimeError("[rlix] bucket_size_bytes is not configured. Set worker.cfg['rlix']"
                               "['bucket_size_bytes'] or env RLIX_BUCKET_SIZE_BYTES. No implicit default is "
                               "permitted")

class Generation:
    def wake_up_partial(self, ranks, skip_activate=False):
        pass

def setup(config, external_train_cluster=None, external_inference_cluster=None):
    return Policy(config), Generation()

def write(writer, step, values):
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.compat.proto.summary_pb2 import Summary
    found = [Summary.Value(tag=tag, simple_value=value) for tag, value in values.items()]
    writer.add_event(Event(wall_time=time.time(), step=step, summary=Summary(value=found)))
    writer.flush()

def async_grpo_train(config, rlix_hooks=None, fault=""):
    from tensorboard.summary.writer.event_file_writer import EventFileWriter
    assert config["policy"]["generation"]["vllm_cfg"]["async_engine"], "Async GRPO requires vLLM backend"
    assert config["loss_fn"]["use_importance_sampling_correction"] is True
    hooks, log_dir = rlix_hooks, config["logger"]["log_dir"]
    os.makedirs(os.path.join(log_dir, "tensorboard"), exist_ok=True)
    writer = EventFileWriter(os.path.join(log_dir, "tensorboard"))
    last = config["grpo"]["max_num_steps"]
    try:
        for step in range(last):
            print(f"{'=' * 25} Step {step + 1}/{last} {'=' * 25}")
            hooks.before_training(step)
            if fault == "loop" and step == 1:
                raise ValueError("Metric accuracy not found in val metrics")
            time.sleep(0.3)
            hooks.before_weight_sync(step)
            hooks.after_training(step)
            with open(os.path.join(log_dir, f"train_data_step{step + 1}.jsonl"), "w") as file:
                file.write(json.dumps({"rewards": 0.5, "token_ids": [1, 2]}) + "\\n")
            loss = float("nan") if fault == "nan" and step == last - 1 else 0.01
            write(writer, step + 1, {
                "train/reward": 0.3 + 0.02 * step, "train/loss": loss, "train/grad_norm": 0.2,
                "timing/train/total_step_time": 0.3,
            })
    except Exception as e:
        print(f"\\u274c Error in async loop: {e}")
        traceback.print_exc()
    finally:
        writer.close()
        print("Async GRPO training complete!")
'''
RECIPE = """\
grpo:
  max_num_steps: 1000000
  seed: 42
  num_prompts_per_step: 32
  num_generations_per_prompt: 16
  val_period: 10
  val_at_start: false
  async_grpo: {enabled: false, max_trajectory_age_steps: 1}
loss_fn: {use_importance_sampling_correction: false, reference_policy_kl_penalty: 0.01}
checkpointing: {enabled: true, checkpoint_dir: results/grpo, keep_top_k: 3, save_period: 10}
policy:
  model_name: Qwen/Qwen2.5-1.5B
  train_global_batch_size: 512
  train_micro_batch_size: 4
  max_total_sequence_length: 512
  precision: bfloat16
  dtensor_cfg: {enabled: true}
  megatron_cfg:
    enabled: false
    tensor_model_parallel_size: 1
    expert_tensor_parallel_size: 1
    expert_model_parallel_size: 1
    pipeline_model_parallel_size: 1
    context_parallel_size: 1
    sequence_parallel: false
  sequence_packing: {enabled: true}
  generation:
    backend: vllm
    max_new_tokens: 512
    vllm_cfg:
      async_engine: false
      tensor_parallel_size: 1
      pipeline_parallel_size: 1
      expert_parallel_size: 1
      gpu_memory_utilization: 0.6
      enforce_eager: false
    colocated: {enabled: true, resources: {gpus_per_node: null, num_nodes: null}}
data: {default: {prompt_file: examples/prompts/cot.txt}}
logger: {log_dir: logs, tensorboard_enabled: false, wandb_enabled: false, monitor_gpus: true}
cluster: {gpus_per_node: 1, num_nodes: 1}
"""
RLIX_FILES = {
    "examples/start_nemo_rl_multi_pipeline.py": DRIVER,
    "examples/start_multi_pipeline_test.py": "# ROLL\n",
    "rlix/__init__.py": "",
    "rlix/orchestrator/__init__.py": ORCHESTRATOR,
    "rlix/pipeline/__init__.py": "",
    "rlix/pipeline/nemo_rl_pipeline.py": PIPELINE,
    **{
        f"tests/integration/test_gate2_5_{name}.py": ""
        for name in ("nccl_destroy", "selective_sync", "qwen_train_sync")
    },
}
NEMO_FILES = {
    "nemo_rl/__init__.py": "",
    "nemo_rl/utils/__init__.py": "",
    "nemo_rl/utils/config.py": CONFIG,
    "nemo_rl/algorithms/__init__.py": "",
    "nemo_rl/algorithms/grpo.py": GRPO,
    "nemo_rl/algorithms/async_utils.py": "def set_active_dp_ranks(ranks):\n    pass\n",
    "nemo_rl/models/policy/lm_policy.py": "def build_cpu_bucket_cache(step):\n    pass\n",
    "nemo_rl/models/generation/vllm/vllm_generation.py": (
        "def wake_up_partial(ranks, skip_activate=False):\n    pass\n\n\n"
        "def get_model_update_receiver():\n    pass\n"
    ),
    "examples/configs/grpo_math_1B.yaml": RECIPE,
    "examples/prompts/cot.txt": "Think step by step: {}\n",
}
# The published fork has none of these.
NEWER = ("before_weight_sync", "build_cpu_bucket_cache", "set_active_dp_ranks")


def make_fake_rlix(root: Path) -> Path:
    """A checkout of RLix below `root`; a git repository."""
    return write_checkout(root, RLIX_FILES)


def make_fake_nemo_fork(root: Path, *, published: bool = False) -> Path:
    """A checkout of the fork below `root`, with all hooks or, as published, without three of them."""
    files = dict(NEMO_FILES)
    if published:
        for name, text in files.items():
            for hook in NEWER:
                text = text.replace(hook, f"absent_{len(hook)}")
            files[name] = text
    return write_checkout(root, files)
