#!/bin/bash
set -e
printf '42\n21\n200\n' | python3 ask.py
