import json
from pathlib import Path

want = {'name': 'mill', 'ports': [8001, 8002], 'deep': {'on': True, 'rate': 0.25}}
assert json.loads(Path('config.json').read_text()) == want
