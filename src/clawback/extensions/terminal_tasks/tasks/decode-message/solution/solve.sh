#!/bin/bash
set -e
base64 -d message.b64 > message.txt
