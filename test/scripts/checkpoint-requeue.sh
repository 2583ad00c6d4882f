#!/bin/bash
#SBATCH --job-name=long
#SBATCH --partition=gpu
#SBATCH --gres=gpu:1
#SBATCH --time=24:00:00
#SBATCH --signal=B:USR1@300
#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --output=long-%j.out
# Saves a checkpoint five minutes before the time limit and puts the job back into the queue, until
# the work is done.

requeue() {
  echo "$(date +%T) signal: saving a checkpoint"
  touch checkpoint
  kill -TERM "$child" 2>/dev/null
  wait "$child"
  scontrol requeue "$SLURM_JOB_ID"
}
trap requeue USR1

if [[ -e checkpoint ]]; then
  echo "run ${SLURM_RESTART_COUNT:-0}: resuming from the checkpoint"
  python train.py --resume checkpoint &
else
  echo "run ${SLURM_RESTART_COUNT:-0}: starting"
  python train.py --endless &
fi
child=$!
wait "$child"
