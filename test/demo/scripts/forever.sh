#!/bin/bash
#GSUB --job-name=forever --mem=32M
echo "this job does not end"
sleep 1000000
