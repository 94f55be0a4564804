#!/bin/bash
# Judges the working folder: 1 or 0, and nothing between.
mkdir -p /logs/verifier
if python3 -I -S /tests/check.py; then echo 1; else echo 0; fi > /logs/verifier/reward.txt
