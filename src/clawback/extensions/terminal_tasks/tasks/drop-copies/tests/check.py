from pathlib import Path

want = {'a.txt': 'one\n', 'b.txt': 'two\n', 'd.txt': 'three\n'}
assert {path.name: path.read_text() for path in Path('inbox').iterdir()} == want
