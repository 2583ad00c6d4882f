#!/bin/bash
#SBATCH --job-name=assembly
#SBATCH --partition=cpu
#SBATCH --nodes=1
#SBATCH --ntasks=1
#SBATCH --cpus-per-task=32
#SBATCH --mem=200G
#SBATCH --time=3-00:00:00
#SBATCH --output=assembly-%j.out
#SBATCH --hint=nomultithread
# A program with 32 threads and 200 GB of memory, on one node.

export OMP_NUM_THREADS=${SLURM_CPUS_PER_TASK:-1}
export OMP_PLACES=cores
echo "$OMP_NUM_THREADS threads, $SLURM_MEM_PER_NODE MiB"
srun --cpus-per-task="$SLURM_CPUS_PER_TASK" ./assemble --threads "$OMP_NUM_THREADS" reads.fa
