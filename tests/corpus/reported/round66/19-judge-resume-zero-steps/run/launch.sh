#!/bin/bash
# usage: launch.sh [extra arguments of sft.py]
set -x
export TOKENIZERS_PARALLELISM=false
exec accelerate launch --num_processes 2 --mixed_precision bf16 sft.py \
  --model_name_or_path /models/Llama-3.2-1B --dataset_name /data/sql_pairs --output_dir runs/sql-sft \
  --per_device_train_batch_size 8 --gradient_accumulation_steps 2 --learning_rate 2e-5 --warmup_ratio 0.03 \
  --max_steps ${MAX_STEPS:-300} --logging_steps 10 --save_steps 100 --save_total_limit 1 --max_length 1024 --seed 7 --log_level info --report_to none "$@"
