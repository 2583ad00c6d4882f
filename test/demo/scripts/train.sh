#!/bin/bash
#GSUB --job-name=train --nodes=1 --gpus-per-node=4 --mem=64M --time=10
#GSUB --checkpoint=ckpt/%j --output=train-%j.out --open-mode=append
# Saves its work every third step. A lost or repeated step would change the result. STOPS names the attempts and
# steps, such as 1.6, at which it waits to be interrupted.
step=0 result=1
if [ -n "$GREYLAG_RESUME_FROM" ]; then . "$GREYLAG_RESUME_FROM/state"; fi
echo "attempt $GREYLAG_ATTEMPT on $GREYLAG_NODENAME starts at step $step"
while [ $step -lt 12 ]; do
  step=$((step + 1)) result=$(((result * 31 + step) % 1000003))
  if [ $((step % 3)) = 0 ]; then
    dir=$(gctl checkpoint begin)
    echo "step=$step result=$result" >"$dir/state"
    gctl checkpoint commit "$dir" --step $step 2>&1
  fi
  if [[ " $STOPS " = *" $GREYLAG_ATTEMPT.$step "* ]]; then
    echo "attempt $GREYLAG_ATTEMPT waits at step $step"
    sleep 1000
  fi
done
echo "result $result"
