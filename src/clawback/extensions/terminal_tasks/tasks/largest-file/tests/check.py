from pathlib import Path

want = max(Path('data').iterdir(), key=lambda path: path.stat().st_size).name
assert want == 'part-i.txt'
assert Path('largest.txt').read_text().strip() == want
