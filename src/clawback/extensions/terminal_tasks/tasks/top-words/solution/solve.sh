#!/bin/bash
set -e
tr -s ' ' '\n' < poem.txt | sort | uniq -c | sort -rn | head -3 | awk '{ print $2, $1 }' > top.txt
