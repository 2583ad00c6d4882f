#!/bin/bash
#SBATCH --job-name=cfd
#SBATCH --partition=cpu
#SBATCH -N 2
#SBATCH --tasks-per-node=2
#SBATCH --time=30
#SBATCH --output=cfd-%j.out
#SBATCH --error=cfd-%j.err
# An MPI program (Open MPI): mpirun reads nodes and ranks from the job.

module load openmpi/4.1

mpicc -o cfd cfd.c || exit 1
time mpirun ./cfd
