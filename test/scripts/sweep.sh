#!/bin/bash
#SBATCH --job-name=sweep
#SBATCH --partition=gpu
#SBATCH --gres=gpu:1
#SBATCH --cpus-per-task=4
#SBATCH --mem=16G
#SBATCH --time=04:00:00
#SBATCH --array=0-5%3
#SBATCH --output=sweep/%A-%a.out
# A hyperparameter sweep: the array index selects a learning rate and a batch size.

rates=(0.1 0.01 0.001)
sizes=(32 64)
rate=${rates[$((SLURM_ARRAY_TASK_ID % 3))]}
size=${sizes[$((SLURM_ARRAY_TASK_ID / 3))]}
python train.py --lr "$rate" --batch-size "$size" --name "sweep-$SLURM_ARRAY_JOB_ID-$SLURM_ARRAY_TASK_ID"
