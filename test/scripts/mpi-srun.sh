#!/bin/bash
#SBATCH --job-name=solver
#SBATCH --partition=cpu
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=2
#SBATCH --mem-per-cpu=2G
#SBATCH --time=02:00:00
#SBATCH --output=solver-%j.out
# An MPI program (MPICH): srun starts the ranks.

module load mpich/4.0

mpicc -o solver solver.c
srun ./solver
