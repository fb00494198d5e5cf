import argparse, os
from unsloth import FastLanguageModel, unsloth_train
from datasets import load_dataset
from trl import SFTConfig, SFTTrainer

p = argparse.ArgumentParser()
p.add_argument("--resume", action="store_true")
a = p.parse_args()
OUT = "outputs/llama31-8b-greek"
last = sorted(os.listdir(OUT), key=lambda d: int(d.split("-")[-1]))[-1] if a.resume else None
model, tokenizer = FastLanguageModel.from_pretrained(
    model_name=os.path.join(OUT, last) if a.resume else "meta-llama/Llama-3.1-8B-Instruct",
    load_in_4bit=True, max_seq_length=2048)
if not a.resume:
    model = FastLanguageModel.get_peft_model(
        model, r=16, lora_alpha=16, lora_dropout=0, use_gradient_checkpointing="unsloth", random_state=3407,
        target_modules=["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj", "lm_head", "embed_tokens"])
model.print_trainable_parameters()
ds = load_dataset("json", data_files="data/instruct_el.jsonl", split="train")
trainer = SFTTrainer(model=model, processing_class=tokenizer, train_dataset=ds, args=SFTConfig(
    output_dir=OUT, per_device_train_batch_size=8, gradient_accumulation_steps=4, num_train_epochs=2, learning_rate=1e-4,
    lr_scheduler_type="cosine", warmup_ratio=0.03, logging_steps=3, save_strategy="epoch", optim="adamw_8bit", report_to="none"))
unsloth_train(trainer, resume_from_checkpoint=True if a.resume else None)
