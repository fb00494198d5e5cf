"""The commented specs that `jobspec init` writes: one for each framework that ships with jobspec."""

from __future__ import annotations

from jobspec.finding import fail

_HEAD = """\
# yaml-language-server: $schema=./job.schema.json
# `jobspec schema job > job.schema.json` beside this file lets an editor complete and check it.
version: 1
name: {name}
framework: {framework}
# cluster: slurm-generic        # site profile; `jobspec cluster list` shows them; the default is this machine

"""

_COMMAND = """\
resources:
  nodes: 1
  # gpus_per_node: 8            # default: what the site profile says
  # time: "01:00:00"            # D-HH:MM:SS; quoted, since YAML reads 1:00:00 as a number

launch:
  mode: srun                    # srun: tasks without Ray; ray: a Ray cluster around the command

train:
  # One process on every node (mode `ray`: on the first alone). Paths it may use: JOBSPEC_ARTIFACTS_DIR,
  # JOBSPEC_METRICS_DIR, JOBSPEC_CHECKPOINT_DIR, JOBSPEC_MODEL_PATH, JOBSPEC_DATA_<NAME>.
  command:
    - python3
    - -c
    - |
      import json, os, pathlib
      metrics = pathlib.Path(os.environ["JOBSPEC_METRICS_DIR"]) / "metrics.jsonl"
      with metrics.open("a") as file:
          for step in range(1, 6):
              print("step", step, flush=True)
              file.write(json.dumps({"step": step, "score": step / 5}) + "\\n")
      (pathlib.Path(os.environ["JOBSPEC_ARTIFACTS_DIR"]) / "result.txt").write_text("done\\n")

# What must hold for the verdict `Pass`, besides exit code 0.
metrics:
  require: ["max(score) >= 1"]
artifacts:
  require: [result.txt]

# secrets: [HF_TOKEN]           # names only; values come from the shell that submits
# sweep: {grid: {train.seed: [1, 2, 3]}}
"""

_TRL = """\
coverage:
  level: smoke                  # smoke, checkpoint or learning: `jobspec framework show trl`

resources:
  nodes: 1
  # gpus_per_node: 8            # default: what the site profile says; 0 trains on the CPU
  # time: "04:00:00"            # D-HH:MM:SS; quoted, since YAML reads 4:00:00 as a number

model:
  id: Qwen/Qwen2.5-0.5B-Instruct   # in the shared Hugging Face cache: `jobspec stage SPEC` puts it there
  # revision: <commit>          # pin it; the lock of every run does
  stage: node_local             # node_local: copied to each node's disk first; shared: read in place

data:
  - name: train
    source: openai/gsm8k
    stage: node_local

train:
  algorithm: grpo
  steps: 100
  workers: 2                    # data-parallel trainers over all nodes
  reward: digits                # a named rule, or FILE.py:FUNCTION
  # overrides: {per_device_train_batch_size: 8}   # TRL's own GRPOConfig keys

checkpoint:
  every: 50
  keep: 2

# metrics:
#   learning: {metric: reward, direction: up}     # for level `learning`
#   require: ["max(reward) > 0.5"]
# secrets: [HF_TOKEN, WANDB_API_KEY]              # names only; values come from the shell that submits
"""

_NEMO_RL = """\
coverage:
  level: smoke                  # smoke, lora, refit, generation, parallel, features, learning, or 0 to 6
  variants: [colocated]         # default: the level's first; `jobspec framework show nemo_rl` lists them
  # checks: [{repo: bridge}, {repo: nemo_rl}]   # their unit tests first; training only when they pass

resources:
  nodes: 1
  gpus_per_node: 2              # what the variant needs, or more
  # time: "01:00:00"            # D-HH:MM:SS; quoted, since YAML reads 1:00:00 as a number

launch:
  mode: ray                     # ray: jobspec starts Ray; upstream: the checkout's ray.sub; srun: the script

container:
  # image: /images/nemo-rl.sqsh # built from the same NeMo-RL revision as the checkout
  # `prove` imports the Bridge by this interpreter; the image's default one has no Megatron.
  # python: /opt/ray_venvs/nemo_rl.models.policy.workers.megatron_policy_worker.MegatronPolicyWorker/bin/python
  env:
    NCCL_DEBUG: WARN

repos:                          # PYTHONPATH in this order: the Bridge before the copy inside NeMo-RL
  - name: bridge
    path: ~/src/Megatron-Bridge
    pythonpath: [src, 3rdparty/Megatron-LM]
    prove: {import: megatron.bridge}
  - name: nemo_rl
    path: ~/src/RL              # with its submodules; the scripts write below tests/functional
    pythonpath: [.]

# Default: the model that the maintained script names, from the Hugging Face cache; it needs the data set too.
# model: {id: Qwen/Qwen2.5-0.5B, stage: shared}
hf_cache:
  offline: true

# train:
#   steps: 2                    # where the variant leaves it to you
#   parallel: {tp: 2, pp: 2}    # for variant `sizes` of level `parallel`
#   overrides: {policy.megatron_cfg.apply_rope_fusion: false}   # NeMo-RL's own keys; looked up in the recipe

# secrets: [HF_TOKEN]           # names only; values come from the shell that submits
"""  # noqa: E501 - one path

_VERL = """\
coverage:
  level: smoke                  # smoke … learning (0 to 5) and variants: `jobspec framework show verl`
  checks: [{repo: bridge}]      # the guide's tests of the Bridge, as far as the checkout has them

resources:
  nodes: 1
  gpus_per_node: 1
  cpus_per_node: 8              # 3 a GPU and one more, or verl's workers wait for ever
  # time: "00:30:00"            # D-HH:MM:SS; quoted, since YAML reads 1:00:00 as a number

launch:
  mode: ray                     # ray: jobspec starts Ray; srun: verl starts its own, on one node

container:
  # image: verlai/verl:vllm024.dev2   # pin tag and digest
  env:
    NCCL_DEBUG: WARN

repos:                          # PYTHONPATH in this order
  - name: bridge
    path: ~/src/Megatron-Bridge # with its submodules
    pythonpath: [src, 3rdparty/Megatron-LM]
    prove: {import: megatron.bridge}
  - name: verl
    path: ~/src/verl            # a git checkout: the package on PyPI has no scripts
    prove: {import: verl}

model:
  id: Qwen/Qwen3-0.6B           # in the shared Hugging Face cache: `jobspec stage SPEC` puts it there
  stage: shared

data:                           # a folder with train.parquet and test.parquet: examples/make_tiny_gsm8k.py
  - {name: gsm8k, source: ~/data/gsm8k, stage: shared}
  # - {name: gsm8k, source: openai/gsm8k, prepare: gsm8k}   # the real one, by the checkout's own script

train:
  algorithm: ppo                # ppo: with a critic; grpo and the like: without
  # steps: 1                    # default: what the level needs
  # parallel: {tp: 2, pp: 2}    # for level `parallel`
  # reward: model:ORG/NAME      # default: verl's rule for GSM8K
  # overrides:                  # capitals: variables of the script, others: Hydra keys
  #   LORA_RANK: 8
  #   actor_rollout_ref.rollout.enforce_eager: true

# secrets: [HF_TOKEN]           # names only; values come from the shell that submits
"""

_SKYRL = """\
coverage:
  level: smoke                  # smoke | checkpoint | learning: `jobspec framework show skyrl`

resources:
  nodes: 1
  gpus_per_node: 8
  # time: "04:00:00"            # D-HH:MM:SS; quoted

launch:
  mode: ray                     # jobspec starts Ray on all nodes

container:
  # image: novaskyai/skyrl-train-ray-2.57.0-py3.12-cu13.0-megatron   # pin tag and digest
  env: {NCCL_DEBUG: WARN}

repos:
  - name: skyrl
    path: ~/src/SkyRL           # a git checkout; pp > 2 or ep > 16 need pull request 1816
    pythonpath: [.]
    prove: {import: skyrl}

model:
  id: Qwen/Qwen3-4B             # in the hub cache on shared storage, or `path: DIR`
  # Without a chat template rewards stay 0; some models keep it in chat_template.jinja instead.
  require: [config.json, tokenizer.json, "tokenizer_config.json:chat_template"]

data:
  - name: gsm8k                 # a folder with train.parquet and validation.parquet
    source: /shared/data/gsm8k

train:
  algorithm: grpo
  steps: 2
  parallel: {tp: 4, pp: 2}      # Megatron's; what is left of the GPUs is data parallel
  rollout: {engines: 4, tp: 2}  # on the same GPUs: engines x tp x pp must be all of them
  overrides:                    # any setting of SkyRL; the checkout says which there are
    trainer.algorithm.use_kl_loss: false
    trainer.train_batch_size: 64
    trainer.policy_mini_batch_size: 32
    trainer.max_prompt_length: 512
    generator.n_samples_per_prompt: 5
    generator.sampling_params.max_generate_length: 1024
    environment.env_class: gsm8k

# checkpoint: {dir: /shared/ckpt, every: 20, keep: 3}
# metrics: {abort_when: ["last(policy/grad_norm) > 1000"]}
"""

_RLIX = """\
coverage:
  level: smoke                  # smoke | multi | learning: `jobspec framework show rlix`
  # variants: [trace]           # RLix's time line of the GPUs, for ui.perfetto.dev

resources:
  nodes: 1                      # RLix places pipelines of NeMo-RL on one node
  gpus_per_node: 2
  cpus_per_node: 16             # 4 for each GPU and 1 for each pipeline, or RLix waits for ever
  # time: "01:00:00"            # D-HH:MM:SS; quoted, since YAML reads 1:00:00 as a number

container:
  # image: /images/nemo-rl.sqsh # NeMo-RL's own, with RLix's requirements
  env: {NCCL_DEBUG: WARN}

repos:                          # a pair: `validate` looks for the hooks that RLix calls in the fork
  - {name: rlix, path: ~/src/rlix, prove: {import: rlix}}   # branch `nemo`
  - {name: nemo_rl, path: ~/src/RL}

model:
  id: Qwen/Qwen2.5-0.5B-Instruct   # of every pipeline that does not override policy.model_name

train:                          # what the pipelines have in common
  steps: 6
  # command: [/opt/nemo_rl_venv/bin/python]   # what runs RLix's driver; default: python3
  overrides:                    # NeMo-RL's settings, and RLix's own such as verify_model_after_sync
    policy.generation.vllm_cfg.gpu_memory_utilization: 0.10
    policy.generation.vllm_cfg.enforce_eager: true
    policy.train_global_batch_size: 1
    policy.train_micro_batch_size: 1
    grpo.num_prompts_per_step: 1
    grpo.num_generations_per_prompt: 1

pipelines:
  - name: math
    config: examples/configs/grpo_math_1B.yaml   # below the NeMo-RL checkout, or absolute
    train_gpus: [0]             # counted over all nodes; a part of infer_gpus
    # infer_gpus: [0, 1]        # default: all; at least one whole engine must lie beside the trainer
    # train: {steps: 20, overrides: {grpo.num_prompts_per_step: 4}}
    # metrics: {require: ["finite(train/loss)"], learning: {metric: train/reward}}
  # - {name: code, config: examples/configs/grpo_math_1B.yaml, train_gpus: [1]}

# secrets: [HF_TOKEN]           # names only; values come from the shell that submits
"""

_BODIES = {
    "command": _COMMAND,
    "nemo_rl": _NEMO_RL,
    "rlix": _RLIX,
    "skyrl": _SKYRL,
    "trl": _TRL,
    "verl": _VERL,
}


def starter(framework: str, name: str) -> str:
    """The commented spec for a framework. Raises: JobspecError for one that has none."""
    if framework not in _BODIES:
        from difflib import get_close_matches

        close = get_close_matches(framework, _BODIES, n=1)
        raise fail(
            "init.framework",
            f"there is no starting spec for the framework `{framework}`",
            why=f"did you mean `{close[0]}`?" if close else "",
            fix="use one of " + ", ".join(f"`{item}`" for item in sorted(_BODIES)),
        )
    # Braces are YAML here, so only the head is a format text.
    return _HEAD.format(name=name, framework=framework) + _BODIES[framework]
