#!/bin/bash
set -e
low=1; high=500
while [ $low -lt $high ]; do
  middle=$(( (low + high) / 2 ))
  if [ "$(python3 probe.py $middle)" = bad ]; then high=$middle; else low=$((middle + 1)); fi
done
echo $low > first.txt
