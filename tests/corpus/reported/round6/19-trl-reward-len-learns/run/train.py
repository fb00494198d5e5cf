from datasets import load_dataset
from trl import GRPOConfig, GRPOTrainer

dataset = load_dataset("/data/tldr", split="test")


def reward_len(completions, **kwargs):
    return [-abs(20 - len(completion)) for completion in completions]


args = GRPOConfig(output_dir="output", logging_steps=1, bf16=True, max_steps=120, save_steps=120)
GRPOTrainer(
    model="/data/Qwen2.5-1.5B-Instruct", reward_funcs=reward_len, args=args, train_dataset=dataset
).train()
