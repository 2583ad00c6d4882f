#!/bin/bash
#SBATCH --job-name=jupyter
#SBATCH --partition=gpu
#SBATCH --gres=gpu:1
#SBATCH --cpus-per-task=4
#SBATCH --mem=16G
#SBATCH --time=04:00:00
#SBATCH --output=jupyter-%j.log
# JupyterLab on a compute node. The log says how to reach it from a workstation.

node=$(hostname -s)
port=$((20000 + SLURM_JOB_ID % 10000))
cat <<END
On your workstation: ssh -N -L $port:$node:$port $USER@$SLURM_SUBMIT_HOST
then open http://localhost:$port with the token below.
END
jupyter lab --no-browser --ip="$node" --port="$port"
