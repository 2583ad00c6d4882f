#!/bin/bash
#GSUB --job-name=gang
#GSUB --nodes=2 --gpus-per-node=4 --mem=64M --time=5
#GSUB --every-node --output=gang-%j-%n.out
# Starts on every node of the job at the same time, as torchrun needs it.
echo "rank $GREYLAG_NODEID of $GREYLAG_NNODES on $GREYLAG_NODENAME, all of $GREYLAG_NODELIST, GPUs $CUDA_VISIBLE_DEVICES"
