import hashlib
from pathlib import Path

assert Path('ticket.txt').read_text() == hashlib.sha256(b'three right').hexdigest()[:12] + '\n'
