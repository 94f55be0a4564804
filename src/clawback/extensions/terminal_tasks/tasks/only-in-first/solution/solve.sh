#!/bin/bash
set -e
comm -23 <(sort first.txt) <(sort second.txt) > only.txt
