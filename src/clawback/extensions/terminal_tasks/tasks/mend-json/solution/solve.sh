#!/bin/bash
set -e
sed -i 's/,]/]/; s/},$/}/' config.json
