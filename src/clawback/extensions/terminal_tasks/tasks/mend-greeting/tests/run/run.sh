#!/bin/bash
# Runs what the policy wrote, in a box without the answers.
rm -rf told.txt
{ python3 greet.py Ada; python3 greet.py 'you two'; python3 greet.py; } > told.txt
