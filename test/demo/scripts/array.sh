#!/bin/bash
#GSUB --job-name=sweep --array=1-6%3
#GSUB --gpus=1 --mem=32M --time=5
echo "element $GREYLAG_ARRAY_TASK_ID of $GREYLAG_ARRAY_TASK_COUNT: learning rate 0.$GREYLAG_ARRAY_TASK_ID"
