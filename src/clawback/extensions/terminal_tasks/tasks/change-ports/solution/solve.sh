#!/bin/bash
set -e
sed -i '/^\[server\]/,$ s/^port = 8080/port = 9090/' conf/*.ini
