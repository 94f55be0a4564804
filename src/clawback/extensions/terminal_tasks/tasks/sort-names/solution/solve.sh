#!/bin/bash
set -e
sort -u names.txt > sorted.txt
