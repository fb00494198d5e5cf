set -x
# Qwen3-0.6B, GSM8K, 4 GPUs, colocated, 5 epochs of 14 batches
uv run --isolated --extra fsdp -m skyrl.train.entrypoints.main_base data.train_data="['/data/gsm8k/train.parquet']" data.val_data="['/data/gsm8k/validation.parquet']" trainer.policy.model.path=Qwen/Qwen3-0.6B trainer.strategy=fsdp2 trainer.epochs=5 trainer.train_batch_size=512 trainer.logger=$LOGGER $@
