from pathlib import Path

assert Path('only.txt').read_text().split('\n') == ['item-02', 'item-07', 'item-12', 'item-14', 'item-17', 'item-19', 'item-27', 'item-29', 'item-32', 'item-34', '']
