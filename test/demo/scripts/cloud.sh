#!/bin/sh
#GSUB --job-name=cloud --burst=allow --requeue --nodes=1 --gpus-per-node=4 --mem=64M --time=10
#GSUB --output=cloud-%j.out --open-mode=append
# Saves its work after each step, with the gctl of SHARED, which stands for storage that the cloud sees. The first
# attempt waits after step 3 to be interrupted.
step=0
if [ -n "$GREYLAG_RESUME_FROM" ]; then . "$GREYLAG_RESUME_FROM/state"; fi
echo "attempt $GREYLAG_ATTEMPT on $GREYLAG_NODENAME starts at step $step"
while [ $step -lt 6 ]; do
  step=$((step + 1))
  dir=$($SHARED/gctl checkpoint begin)
  echo "step=$step" >"$dir/state"
  $SHARED/gctl checkpoint commit "$dir" --step $step
  if [ $GREYLAG_ATTEMPT.$step = 1.3 ]; then
    echo "attempt 1 waits at step 3"
    sleep 1000
  fi
done
echo "done at step $step"
