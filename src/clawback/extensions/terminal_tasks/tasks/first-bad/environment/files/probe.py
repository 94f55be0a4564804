import hashlib
import sys

build = int(sys.argv[1])
limit = int(hashlib.sha256(b'mill').hexdigest(), 16) % 500 + 1
print('bad' if build >= limit else 'good')
