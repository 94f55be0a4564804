#!/bin/bash
set -e
cat > greet.py <<'END'
import sys


def greeting(name):
    return 'Hello, ' + name + '!'


if __name__ == '__main__':
    print(greeting(sys.argv[1] if len(sys.argv) > 1 else 'stranger'))
END
