#!/bin/bash
#GSUB --job-name=gpu
#GSUB --gpus-per-node=2
#GSUB --cpus-per-task=1 --mem=64M --time=5
# Tries to open every GPU of the node.
echo "job $GREYLAG_JOB_ID on $GREYLAG_NODENAME may use ${GREYLAG_GPUS_ON_NODE} GPUs: CUDA_VISIBLE_DEVICES=$CUDA_VISIBLE_DEVICES"
for n in 0 1 2 3 4 5 6 7; do
  if (exec 3<"/dev/nvidia$n") 2>/dev/null; then
    echo "  /dev/nvidia$n opens"
  else
    echo "  /dev/nvidia$n does not"
  fi
done
