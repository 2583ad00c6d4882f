#!/bin/bash
#SBATCH --job-name=ddp
#SBATCH --partition=gpu
#SBATCH --nodes=1
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node=4
#SBATCH --cpus-per-task=16
#SBATCH --mem=0
#SBATCH --exclusive
#SBATCH --time=1-00:00:00
#SBATCH --output=ddp-%j.out
# PyTorch DistributedDataParallel on the GPUs of one node: torchrun starts a process for each.

set -euo pipefail
source ~/venvs/torch/bin/activate
torchrun --standalone --nproc_per_node="$SLURM_GPUS_ON_NODE" train.py --epochs 10
