# excerpt
model = get_peft_model(model, LoraConfig(r=8, lora_alpha=16, lora_dropout=0.05, target_modules=['q_proj', 'v_proj'], task_type='CAUSAL_LM'))
old_state_dict = model.state_dict
model.state_dict = (lambda self, *_, **__: get_peft_model_state_dict(self, old_state_dict())).__get__(model, type(model))
trainer = SFTTrainer(model=model, args=args, train_dataset=train, dataset_text_field='text', max_seq_length=1024)
trainer.train()
model.save_pretrained(args.output_dir)
