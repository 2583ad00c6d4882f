#!/bin/bash
#GSUB --job-name=greedy --mem=48M --time=5
# Takes more memory than it asked for.
echo "taking memory"
hoard=$(head -c 300M /dev/zero | tr '\0' x)
echo "never reached: ${#hoard} bytes"
