#!/bin/bash
set -e
cat > fizz.py <<'END'
import sys

for n in range(1, int(sys.argv[1]) + 1):
    print(('Fizz' if n % 3 == 0 else '') + ('Buzz' if n % 5 == 0 else '') or n)
END
