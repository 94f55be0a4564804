from pathlib import Path

assert Path('sorted.txt').read_text() == 'ada\nbo\neva\nian\nkim\nlee\nmira\ntom\nzoe\n'
