import os
from pathlib import Path

assert Path('current').is_symlink()
assert os.readlink('current').rstrip('/').endswith('releases/v1.10')
assert sorted(p.name for p in Path('releases').iterdir()) == ['v0.30', 'v1.10', 'v1.2', 'v1.9']
