import argparse
from datasets import load_dataset
from trl import GRPOConfig, GRPOTrainer
from trl.rewards import accuracy_reward

p = argparse.ArgumentParser()
p.add_argument("--max_completion_length", type=int, default=256)
a = p.parse_args()
data = load_dataset("trl-lib/DeepMath-103K", split="train").shuffle(seed=42).select(range(3200))
cfg = GRPOConfig(output_dir="output/Qwen2.5-0.5B-GRPO", max_steps=400, per_device_train_batch_size=8, gradient_accumulation_steps=8,
                 num_generations=8, max_completion_length=a.max_completion_length, learning_rate=1e-6, logging_steps=2, save_steps=200,
                 bf16=True, gradient_checkpointing=True, report_to="none", seed=42)
trainer = GRPOTrainer(model="Qwen/Qwen2.5-0.5B-Instruct", reward_funcs=accuracy_reward, args=cfg, train_dataset=data)
trainer.train()
trainer.save_model()
