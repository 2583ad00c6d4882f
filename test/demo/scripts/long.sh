#!/bin/bash
#GSUB --job-name=long --gpus=1 --mem=32M --time=10
# Runs while the leader is killed.
for i in $(seq 1 30); do
  echo "step $i"
  sleep 0.5
done
