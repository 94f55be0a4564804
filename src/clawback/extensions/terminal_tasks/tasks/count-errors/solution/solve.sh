#!/bin/bash
set -e
grep -cw ERROR server.log > count.txt
