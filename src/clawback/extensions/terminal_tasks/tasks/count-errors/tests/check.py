from pathlib import Path

assert Path('count.txt').read_text().split() == ['20']
