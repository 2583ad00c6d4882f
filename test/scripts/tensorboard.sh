#!/bin/bash
#SBATCH -J tensorboard
#SBATCH -p cpu
#SBATCH -n 1
#SBATCH --mem=4G
#SBATCH -t 2:00:00
#SBATCH -o tensorboard-%j.log
# TensorBoard next to the logs of a training run.

port=$(shuf -i 30000-39999 -n 1)
echo "TensorBoard of $SLURM_JOB_USER on $(hostname -s):$port"
tensorboard --logdir runs --host 127.0.0.1 --port "$port"
