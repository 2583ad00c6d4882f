#!/bin/bash -l
#SBATCH --job-name=conda
#SBATCH --partition=gpu
#SBATCH --gpus-per-task=1
#SBATCH --ntasks=1
#SBATCH --cpus-per-task=4
#SBATCH --mem=16G
#SBATCH --time=60
#SBATCH --output=conda-%j.out
# A conda environment. The shell of a job is not interactive, so the script runs conda's hook first.

eval "$(conda shell.bash hook)"
conda activate research
python train.py
conda deactivate
