#!/bin/bash
#GSUB --job-name=greedy --mem=48M --time=5
# Uses more memory than it requested.
echo "allocating memory"
hoard=$(head -c 300M /dev/zero | tr '\0' x)
echo "never reached: ${#hoard} bytes"
