#!/bin/bash
#GSUB --job-name=forever --mem=32M
echo "this one does not end by itself"
sleep 1000000
