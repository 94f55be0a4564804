from pathlib import Path

assert Path('told.txt').read_text() == 'Hello, Ada!\nHello, you two!\nHello, stranger!\n'
