from pathlib import Path

assert Path('key.txt').read_text().split() == ['blue-heron-42']
