from pathlib import Path

want = 'id,name,town\n1,Ada,Graz\n2,Bo,Ulm\n4,Dan,Linz\n5,Eve,Bern\n'
assert Path('joined.csv').read_text().replace('\r', '') == want
