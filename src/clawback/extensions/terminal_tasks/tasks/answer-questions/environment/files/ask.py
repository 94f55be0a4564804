import hashlib

right = 0
for a, b in ((17, 25), (8, 13), (104, 96)):
    right += input(f'{a} + {b} = ').strip() == str(a + b)
if right == 3:
    with open('ticket.txt', 'w') as file:
        file.write(hashlib.sha256(b'three right').hexdigest()[:12] + '\n')
    print('Your ticket is in ticket.txt.')
else:
    print('That was not right.')
