#!/bin/bash
set -e
sed -i -E 's/([0-9]{2})\.([0-9]{2})\.([0-9]{4})/\3-\2-\1/' dates.txt
