from pathlib import Path

for name in ('north', 'south', 'west'):
    want = f'[client]\nport = 8080\nname = {name}\n\n[server]\nport = 9090\nhost = {name}\n'
    assert Path(f'conf/{name}.ini').read_text() == want
assert Path('conf/notes.txt').read_text() == '[server]\nport = 8080\n'
