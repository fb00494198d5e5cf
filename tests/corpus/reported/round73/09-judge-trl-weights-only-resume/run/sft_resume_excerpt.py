# the part of sft_resume.py that builds the trainer
model = AutoModelForCausalLM.from_pretrained(args.model, torch_dtype=torch.bfloat16)
tokenizer = AutoTokenizer.from_pretrained(args.model)
tokenizer.pad_token_id = tokenizer.eos_token_id
cfg = SFTConfig(output_dir=args.out, max_steps=args.max_steps, save_steps=args.save_steps, learning_rate=args.lr,
                warmup_steps=args.warmup_steps, lr_scheduler_type=args.lr_scheduler, per_device_train_batch_size=8,
                logging_steps=5, bf16=True, report_to="none")
trainer = SFTTrainer(model=model, args=cfg, train_dataset=data["train"], eval_dataset=data["validation"], processing_class=tokenizer)
trainer.train()
