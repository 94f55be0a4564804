#!/bin/bash
set -e
ls -S data | head -1 > largest.txt
