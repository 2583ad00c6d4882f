#!/bin/bash
#SBATCH --job-name=packed
#SBATCH --partition=gpu
#SBATCH --nodes=1
#SBATCH --ntasks=4
#SBATCH --gres=gpu:4
#SBATCH --cpus-per-task=2
#SBATCH --time=00:20:00
#SBATCH --output=packed-%j.out
# Many small tasks in one allocation: each step uses one GPU exclusively, and further steps wait.

for seed in 1 2 3 4 5 6; do
  srun --exact -N1 -n1 --gpus-per-task=1 --output="seed-$seed.out" python train.py --seed "$seed" &
done
wait
echo "all seeds done"
