#!/bin/bash
# Runs what the policy wrote, in a box without the answers.
rm -rf told.txt
python3 fizz.py 23 > told.txt
