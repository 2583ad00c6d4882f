#!/bin/bash
#SBATCH --job-name=staging
#SBATCH --time=01:00:00
#SBATCH --mem=4G
#SBATCH --output=staging-%j.out
# Copies data to the local disk of the node, works there, and copies results back even after an
# error.

set -eu
results=$SLURM_SUBMIT_DIR/results-$SLURM_JOB_ID
save() {
  mkdir -p "$results"
  cp -r "$TMPDIR"/out "$results"/
}
trap save EXIT

cp -r "$SLURM_SUBMIT_DIR"/input "$TMPDIR"/
cd "$TMPDIR"
mkdir out
sort input/numbers.txt > out/sorted.txt
