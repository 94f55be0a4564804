import hashlib
from pathlib import Path

assert int(Path('first.txt').read_text()) == int(hashlib.sha256(b'mill').hexdigest(), 16) % 500 + 1
