from pathlib import Path

assert Path('total.txt').read_text().split() == ['949']
