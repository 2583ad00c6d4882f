#!/bin/bash
#SBATCH --job-name=mixed
#SBATCH --partition=cpu --ntasks=1 --mem=64G
#SBATCH hetjob
#SBATCH --partition=gpu --ntasks=2 --gpus-per-task=1
# A heterogeneous job: a server with 64 GB of memory, and workers with GPUs.

srun --het-group=0 ./server : --het-group=1 ./worker
