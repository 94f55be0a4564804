from pathlib import Path

assert Path('ids.txt').read_text().split() == ['17', '18', '19', '20', '21', '68', '69', '70', '71', '72']
