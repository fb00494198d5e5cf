#!/bin/bash
#SBATCH --partition=gpu-l40s
#SBATCH --qos=embers
#SBATCH --requeue
#SBATCH --gres=gpu:4
#SBATCH --time=08:00:00
srun accelerate launch --num_processes 4 sft.py --config cfg.yaml
