#!/bin/bash
#SBATCH --job-name=apptainer
#SBATCH --partition=gpu
#SBATCH --gpus=1
#SBATCH --cpus-per-task=8
#SBATCH --mem=24G
#SBATCH --time=2:00:00
#SBATCH --output=apptainer-%j.out
# A program in an Apptainer image, with the GPU driver of the node.

module load apptainer
export APPTAINER_BIND="$PWD:/project,$TMPDIR:/scratch"
srun apptainer exec --nv pytorch.sif python /project/train.py
