"""Programs that take too much, or will not end. Each is given with the limits that may end it ("": it ends by itself)."""

PRELUDE = "import ctypes, mmap, os, signal, socket, subprocess, sys, threading, time\n"
_FORK = "def spread(work):\n    for _ in range(12):\n        if os.fork() == 0:\n            work(); os._exit(0)\n    time.sleep(30)\n"

MEMORY = {
    "one block": ("x = bytearray(1 << 30); print('OUT')", {""}),
    "block by block": ("x = []\nwhile True: x.append(bytearray(1 << 20))", {"", "memory"}),
    "many children": (_FORK + "spread(lambda: (bytearray(b'x') * (40 << 20), time.sleep(30)))", {"memory"}),
    "shared memory": (_FORK + "m = mmap.mmap(-1, 60 << 20)\nm.write(b'x' * (60 << 20))\n"
                      "spread(lambda: (mmap.mmap(-1, 40 << 20).write(b'x' * (40 << 20)), time.sleep(30)))", {"memory", ""}),
    "a stack": ("import threading\nthreading.stack_size(60 << 20)\ndef f(n): return f(n + 1)\nf(0)", {""}),
    "/dev/shm": ("with open('/dev/shm/x', 'wb') as f:\n    while True: f.write(bytes(1 << 20))", {""}),
    "/dev": ("with open('/dev/x', 'wb') as f:\n    while True: f.write(bytes(1 << 20))", {""}),
    "the root": ("with open('/x', 'wb') as f:\n    while True: f.write(bytes(1 << 20))", {""}),
    "pipes": ("import fcntl\np = [os.pipe() for _ in range(50)]\nfor a, b in p:\n    os.set_blocking(b, False)\n"
              "    try: fcntl.fcntl(b, 1031, 1 << 20)\n    except OSError: pass\n    os.write(b, bytes(1 << 16))", {""}),
}  # fmt: skip

DISK = {
    "one file": ("with open('x', 'wb') as f:\n    while True: f.write(bytes(1 << 20))", {"", "disk"}),
    "many files": ("for n in range(10**6):\n    with open(f'{n}', 'wb') as f: f.write(bytes(1 << 16))", {"disk"}),
    "many empty files": ("for n in range(10**6): open(f'{n}', 'w').close()", {"disk"}),
    "many folders": ("for n in range(10**6): os.mkdir(f'{n}')", {"disk"}),
    "files without names": ("k = []\nwhile True:\n    f = open('x', 'wb'); os.unlink('x'); f.write(bytes(4 << 20)); f.flush(); k.append(f)", {"disk", ""}),
    "a temporary folder": ("with open(os.environ['TMPDIR'] + '/x', 'wb') as f:\n    while True: f.write(bytes(1 << 20))", {"", "disk"}),
    "a sparse giant": ("os.truncate(os.open('x', os.O_CREAT | os.O_RDWR), 1 << 40); print('OUT')", {""}),
    "room set aside": ("os.posix_fallocate(os.open('x', os.O_CREAT | os.O_RDWR), 0, 1 << 40); print('OUT')", {""}),
    "a deep tree": ("for n in range(3000): os.mkdir('d'); os.chdir('d')", {"", "disk", "time"}),
    "a closed folder": ("os.mkdir('a'); os.mkdir('a/b'); open('a/b/c', 'w').close(); os.chmod('a/b', 0); os.chmod('a', 0)", {""}),
    "odd names": ("open(b'\\xff\\n', 'w').close(); os.symlink('loop', 'loop'); os.mkfifo('pipe'); os.chmod('pipe', 0o6777)", {""}),
    "a core": ("open('c', 'w').close(); os.abort()", {""}),
}  # fmt: skip

PROCESSES = {
    "fork bomb": ("while True:\n    try: os.fork()\n    except OSError: pass", {"processes", "time"}),
    "fork bomb that ends its parents": ("while True:\n    try:\n        if os.fork(): os._exit(0)\n    except OSError: pass", {"", "processes", "time"}),
    "fork bomb in bash": ("os.execvp('bash', ['bash', '-c', 'b() { b | b & }; b; wait'])", {"", "processes", "time"}),
    "threads": ("while True:\n    try: threading.Thread(target=time.sleep, args=(30,)).start()\n    except RuntimeError: break\nos._exit(0)", {"", "processes", "time", "memory"}),
    "zombies": ("for _ in range(5000):\n    try:\n        if os.fork() == 0: os._exit(0)\n    except OSError: time.sleep(.001)", {"", "processes", "time"}),
    "open files": ("k = []\nwhile True: k.append(open('/dev/null'))", {""}),
    "a daemon": ("if os.fork() == 0:\n    os.setsid()\n    if os.fork() == 0: time.sleep(60)", {""}),
    "a daemon that holds the output": ("subprocess.Popen(['sleep', '60'], start_new_session=True)\nprint('done')", {""}),
    "a daemon without pipes": ("if os.fork() == 0:\n    os.setsid(); os.closerange(0, 99)\n    os.fork() or time.sleep(60)", {""}),
    "a deaf one": ("for n in range(1, 65):\n    try: signal.signal(n, signal.SIG_IGN)\n    except (OSError, ValueError): pass\ntime.sleep(60)", {"time"}),
    "a stopped one": ("os.kill(os.getpid(), signal.SIGSTOP)\nprint('OUT')", {"time"}),
    "a stopped child": ("if os.fork() == 0: os.kill(os.getpid(), signal.SIGSTOP)", {""}),
    "no end": ("while True: pass", {"time"}),
    "no end in children": (_FORK + "def work():\n    while True: pass\nspread(work)", {"time"}),
    "no end in short children": ("while True:\n    subprocess.run(['true'])", {"time"}),
    "a long sleep": ("time.sleep(60)", {"time"}),
    "waits for input": ("sys.stdin.read(); time.sleep(60)", {"time"}),
}  # fmt: skip

OUTPUT = {
    "a flood": ("while True: os.write(1, b'x' * 65536)", {"output"}),
    "a flood of errors": ("while True: os.write(2, b'x' * 65536)", {"output"}),
    "a flood of both": ("while True: os.write(1, b'x' * 65536); os.write(2, b'y' * 65536)", {"output"}),
    "a flood of children": (_FORK + "def work():\n    while True: os.write(1, b'x' * 65536)\nspread(work)", {"output"}),
    "yes": ("os.execvp('yes', ['yes'])", {"output"}),
    "bytes that are no text": ("os.write(1, bytes(range(256)) * 9)", {""}),
    "no output at all": ("os.close(1); os.close(2)", {""}),
    "/dev/zero": ("os.execvp('cat', ['cat', '/dev/zero'])", {"output"}),
}  # fmt: skip

ALL = {
    f"{kind}: {name}": (PRELUDE + code, ends)
    for kind, programs in (("memory", MEMORY), ("disk", DISK), ("processes", PROCESSES), ("output", OUTPUT))
    for name, (code, ends) in programs.items()
}
