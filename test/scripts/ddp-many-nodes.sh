#!/bin/bash
#SBATCH -J ddp-multi
#SBATCH -p gpu
#SBATCH -N 2
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node=4
#SBATCH -c 16
#SBATCH -t 12:00:00
#SBATCH -o logs/%x-%j.out
# PyTorch on several nodes: srun starts one torchrun on each; the rendezvous is on the first node.

set -euo pipefail
nodes=($(scontrol show hostnames "$SLURM_JOB_NODELIST"))
head_node=${nodes[0]}
head_node_ip=$(srun --nodes=1 --ntasks=1 -w "$head_node" hostname --ip-address | awk '{print $1}')
echo "rendezvous on $head_node ($head_node_ip)"

export LOGLEVEL=INFO
srun torchrun \
  --nnodes "$SLURM_JOB_NUM_NODES" \
  --nproc_per_node 4 \
  --rdzv_id "$SLURM_JOB_ID" \
  --rdzv_backend c10d \
  --rdzv_endpoint "$head_node_ip:29500" \
  train.py --epochs 10
