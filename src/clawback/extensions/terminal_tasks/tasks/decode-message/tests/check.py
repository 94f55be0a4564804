from pathlib import Path

assert Path('message.txt').read_text() == 'The ferry leaves at nine.\nBring the red umbrella.\n'
