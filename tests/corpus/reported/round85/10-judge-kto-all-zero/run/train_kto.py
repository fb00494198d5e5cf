import torch
from datasets import load_dataset
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl import KTOConfig, KTOTrainer

MODEL = "meta-llama/Meta-Llama-3-8B-Instruct"
data = load_dataset("csv", data_files="data/feedback.csv", split="train")
data = data.class_encode_column("label")
data = data.train_test_split(test_size=0.2, seed=42, stratify_by_column="label")
tok = AutoTokenizer.from_pretrained(MODEL)
tok.pad_token = tok.eos_token
model = AutoModelForCausalLM.from_pretrained(MODEL, torch_dtype=torch.bfloat16, device_map="auto")
model = get_peft_model(model, LoraConfig(r=8, lora_alpha=16, target_modules="all-linear", task_type="CAUSAL_LM"))
model.print_trainable_parameters()
args = KTOConfig(output_dir="out/llama3-kto", num_train_epochs=5, per_device_train_batch_size=4, gradient_accumulation_steps=4,
                 learning_rate=5e-6, warmup_steps=25, lr_scheduler_type="linear", logging_steps=5, save_steps=125, bf16=True,
                 gradient_checkpointing=True, max_length=1024, max_prompt_length=512, beta=0.1, report_to="none")
trainer = KTOTrainer(model=model, args=args, train_dataset=data["train"], tokenizer=tok)
trainer.train()
trainer.save_model("out/llama3-kto")
print("saved adapter to out/llama3-kto")
