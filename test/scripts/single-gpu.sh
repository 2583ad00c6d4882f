#!/bin/bash
#SBATCH --job-name=train
#SBATCH --partition=gpu
#SBATCH --account=vision
#SBATCH --nodes=1
#SBATCH --ntasks=1
#SBATCH --cpus-per-task=8
#SBATCH --gres=gpu:1
#SBATCH --mem=32G
#SBATCH --time=08:00:00
#SBATCH --output=%x-%j.out
#SBATCH --mail-type=END,FAIL
# One GPU, with software from modules.

set -euo pipefail

module purge
module load python/3.11 cuda/12.4

echo "job $SLURM_JOB_ID on $SLURM_JOB_NODELIST with GPU $CUDA_VISIBLE_DEVICES"
export OMP_NUM_THREADS=$SLURM_CPUS_PER_TASK
python train.py --workers "$SLURM_CPUS_PER_TASK"
