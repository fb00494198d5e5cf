import sys
from datasets import load_dataset
from trl import GRPOConfig, GRPOTrainer

max_steps = int(sys.argv[sys.argv.index("--max_steps") + 1])
save_steps = int(sys.argv[sys.argv.index("--save_steps") + 1])
dataset = load_dataset("trl-lib/tldr", split="train")
args = GRPOConfig(output_dir="Qwen2-0.5B-GRPO", learning_rate=1e-5, logging_steps=2, max_steps=max_steps,
                  save_steps=save_steps, num_generations=8, max_completion_length=128, report_to="none")
trainer = GRPOTrainer(model="Qwen/Qwen2-0.5B-Instruct", reward_funcs="trl-lib/Qwen2-0.5B-Reward", args=args, train_dataset=dataset)
trainer.train()
trainer.save_model()
