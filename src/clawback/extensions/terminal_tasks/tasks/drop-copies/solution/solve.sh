#!/bin/bash
set -e
rm inbox/c.txt inbox/e.txt inbox/f.txt
