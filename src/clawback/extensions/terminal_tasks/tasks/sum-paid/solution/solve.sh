#!/bin/bash
set -e
awk -F, '$2 == "paid" { s += $3 } END { print s }' orders.csv > total.txt
