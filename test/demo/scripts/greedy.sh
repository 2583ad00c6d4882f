#!/bin/bash
#GSUB --job-name=greedy --mem=48M --time=5
# Takes more memory than it asked for.
echo "taking memory"
head -c 500M /dev/zero | tail -c 400M >/dev/null
echo "never reached"
