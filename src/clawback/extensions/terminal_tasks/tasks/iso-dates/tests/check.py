from pathlib import Path

assert Path('dates.txt').read_text() == 'meeting 0: 2021-11-03 at 10.30\nmeeting 1: 1999-02-17 at 10.30\nmeeting 2: 2024-06-30 at 10.30\nmeeting 3: 2000-01-01 at 10.30\n'
