#!/bin/bash
# Submits a chain of jobs from the login node: prepare, train three seeds, evaluate, and clean up in
# any case.

set -e
prepare=$(sbatch --parsable --job-name=prepare --time=10 --wrap='echo data > data.txt')
train=$(sbatch --parsable --job-name=train --dependency=afterok:$prepare --array=1-3 --time=1:00:00 \
  --wrap='cat data.txt > model-$SLURM_ARRAY_TASK_ID.txt')
evaluate=$(sbatch --parsable --job-name=evaluate --dependency=afterok:$train --time=20 \
  --wrap='cat model-*.txt | wc -l > score.txt')
sbatch --job-name=cleanup --dependency=afterany:$evaluate --time=5 --wrap='rm -f data.txt; touch cleaned'
squeue -u "$USER" -o "%.10i %.12j %.8T %.20E"
