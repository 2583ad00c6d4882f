#!/bin/bash
#SBATCH --job-name=params
#SBATCH --array=1-4%2
#SBATCH --ntasks=1
#SBATCH --mem=2G
#SBATCH --time=00:30:00
#SBATCH --output=params_%A_%a.out
# One array task for each line of a parameter file.

params=$(sed -n "${SLURM_ARRAY_TASK_ID}p" params.txt)
echo "task $SLURM_ARRAY_TASK_ID of array $SLURM_ARRAY_JOB_ID ($SLURM_ARRAY_TASK_COUNT tasks): $params"
./simulate $params > "result-$SLURM_ARRAY_TASK_ID.txt"
