from pathlib import Path

words = Path('poem.txt').read_text().split()
lines = Path('top.txt').read_text().splitlines()
assert lines[0] == 'the 6'
assert sorted(lines[1:]) == ['mill 3', 'turns 3']
assert len(words) == 19
