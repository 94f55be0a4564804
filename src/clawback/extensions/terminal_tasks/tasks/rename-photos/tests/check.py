from pathlib import Path

want = {'sea.jpg': 'sea.jpeg', 'hill.jpg': 'hill.jpeg', 'my dog.jpg': 'my dog.jpeg'}
want |= {name: name for name in ('jpeg.txt', 'old.jpg', 'a.jpeg.bak')}
assert {path.name: path.read_text() for path in Path('photos').iterdir()} == want
