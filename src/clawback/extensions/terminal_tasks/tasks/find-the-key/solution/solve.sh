#!/bin/bash
set -e
grep -rh '^KEY=' tree | cut -d= -f2 > key.txt
