#!/bin/sh
#SBATCH --job-name=container
#SBATCH --partition=gpu
#SBATCH --gpus-per-node=1
#SBATCH --mem=16G
#SBATCH --time=1:00:00
#SBATCH --output=container-%j.out
#SBATCH --container-image=nvcr.io\#nvidia/pytorch:24.05-py3
#SBATCH --container-env=EXPERIMENT
#SBATCH --no-container-remap-root
# The whole script runs in an OCI image, requested with the options of pyxis.

cat /etc/greylag-image
echo "experiment $EXPERIMENT"
