"""Programs that hold more of the machine than a box's limits, without names or in ways that no folder shows.

Each says OUT where it holds four times the limit of the disk. Given with the limits that may end it ("": it ends by itself).
"""

PRELUDE = """
import ctypes, mmap, os, signal, socket, struct, subprocess, sys, tempfile, threading, time
LIMIT = 8 << 20
held = 0
def hold(size):
    global held
    held += size
    if held > 4 * LIMIT: print("OUT: held", held, flush=True); os._exit(0)
def new(size=4 << 20, name="x"):
    handle = os.open(name, os.O_CREAT | os.O_RDWR | os.O_EXCL)
    os.unlink(name)
    left = size
    while left: left -= os.write(handle, bytes(min(left, 1 << 20)))
    return handle
"""
_FULL = {"", "disk"}
_ENDS = {"", "disk", "processes", "time"}

UNLINKED = {
    "mapped, shared": ("kept = []\nwhile True:\n    h = new(); kept.append(mmap.mmap(h, 4096)); os.close(h); hold(4 << 20)", _FULL),
    "mapped, private": ("kept = []\nwhile True:\n    h = new(); kept.append(mmap.mmap(h, 4096, mmap.MAP_PRIVATE, mmap.PROT_READ)); os.close(h); hold(4 << 20)", _FULL),
    "mapped at the end": ("kept = []\nwhile True:\n    h = new(); kept.append(mmap.mmap(h, 4096, offset=(4 << 20) - 4096)); os.close(h); hold(4 << 20)", _FULL),
    "mapped in a child": ("while True:\n    h = new()\n    if os.fork() == 0:\n        m = mmap.mmap(h, 4096); os.close(h); time.sleep(60)\n    os.close(h); hold(4 << 20)", _ENDS),
    "many small ones, mapped": ("kept = []\nwhile True:\n    h = new(1 << 18); kept.append(mmap.mmap(h, 4096)); os.close(h); hold(1 << 18)", _FULL),
    "in flight in a stream": ("a, b = socket.socketpair()\nwhile True:\n    h = new(); socket.send_fds(a, [b'x'], [h]); os.close(h); hold(4 << 20)", _FULL),
    "in flight in sequences": ("a, b = socket.socketpair(1, socket.SOCK_SEQPACKET)\nwhile True:\n    h = new(); socket.send_fds(a, [b'x'], [h]); os.close(h); hold(4 << 20)", _FULL),
    "in flight in datagrams": ("a, b = socket.socketpair(1, socket.SOCK_DGRAM)\nwhile True:\n    h = new(); socket.send_fds(a, [b'x'], [h]); os.close(h); hold(4 << 20)", _FULL),
    "in flight within what is in flight": (
        "c, d = socket.socketpair()\nwhile True:\n    a, b = socket.socketpair(); h = new()\n    socket.send_fds(a, [b'x'], [h]); socket.send_fds(c, [b'x'], [a.fileno(), b.fileno()])\n"
        "    a.close(); b.close(); os.close(h); hold(4 << 20)", _FULL),
    "in flight to itself": ("while True:\n    a, b = socket.socketpair(); h = new()\n    socket.send_fds(a, [b'x'], [h, b.fileno()]); a.close(); b.close(); os.close(h); hold(4 << 20)", _FULL),
    "open": ("kept = []\nwhile True: kept.append(new()); hold(4 << 20)", _FULL),
    "open in a child": ("while True:\n    h = new()\n    if os.fork() == 0: time.sleep(60)\n    os.close(h); hold(4 << 20)", _ENDS),
    "open in threads of their own table": (
        "kept = []\ndef work():\n    libc = ctypes.CDLL(None); libc.syscall(272, 0x400)\n    kept.append(new(name=str(threading.get_ident()))); time.sleep(60)\n"
        "while True:\n    n = len(kept); t = threading.Thread(target=work, daemon=True); t.start()\n    while len(kept) == n and t.is_alive(): time.sleep(.005)\n    if len(kept) == n: sys.exit()\n    hold(4 << 20)",
        {*_ENDS, "memory"}),
    "never named": ("kept = []\nwhile True:\n    h = os.open('.', os.O_TMPFILE | os.O_RDWR); os.write(h, bytes(4 << 20)); kept.append(h); hold(os.fstat(h).st_blocks * 512)", _FULL),
    "never named, mapped": ("kept = []\nwhile True:\n    h = os.open('.', os.O_TMPFILE | os.O_RDWR)\n    for _ in range(4): os.write(h, bytes(1 << 20))\n    kept.append(mmap.mmap(h, 4096)); os.close(h); hold(4 << 20)", _FULL),
    "in the temporary folder": ("kept = []\nos.chdir(os.environ['TMPDIR'])\nwhile True:\n    h = new(); kept.append(mmap.mmap(h, 4096)); os.close(h); hold(4 << 20)", _FULL),
    "in /dev/shm": ("kept = []\nos.chdir('/dev/shm')\nwhile True:\n    h = new(); kept.append(mmap.mmap(h, 4096)); os.close(h); hold(4 << 20)", _FULL),
    "running as a program": (
        "import shutil\nwhile True:\n    shutil.copy('/usr/bin/sleep', 'p'); h = os.open('p', 1 | os.O_APPEND); os.write(h, bytes(4 << 20)); os.close(h)\n"
        "    p = subprocess.Popen(['./p', '60']); os.unlink('p'); hold(4 << 20)", _ENDS),
    "as a folder that it stands in": ("while True:\n    os.mkdir('d')\n    if os.fork() == 0:\n        os.chdir('d'); os.rmdir('../d'); time.sleep(60)\n    time.sleep(.01)\n    hold(1 << 20)", _ENDS | {"memory"}),
    "in the pages of pipes": (
        "kept = []\nimport fcntl\nwhile True:\n    h = new(); r, w = os.pipe()\n    fcntl.fcntl(w, 1031, 1 << 20); os.lseek(h, 0, 0)\n    os.set_blocking(w, False)\n"
        "    hold(ctypes.CDLL(None).syscall(275, h, 0, w, 0, ctypes.c_size_t(1 << 20), 2)); kept.append((r, w)); os.close(h)", _FULL),
}  # fmt: skip

NAMED = {
    "folders without end": ("n = 0\nwhile True: os.mkdir(str(n)); n += 1; hold(1 << 14) if n > 500 else None", _FULL),
    "folders in folders": ("n = 0\nwhile True: os.mkdir('d'); os.chdir('d'); n += 1; hold(1 << 14) if n > 500 else None", _FULL),
    "folders moved into folders": ("n = 0\nos.mkdir('t')\nwhile True: os.mkdir('d'); os.rename('t', 'd/t'); os.rename('d', 't'); n += 1; hold(1 << 14) if n > 500 else None", _FULL),
    "folders by many": ("for _ in range(8):\n    if os.fork() == 0:\n        n = 0; p = os.getpid()\n        while True: os.mkdir(f'{p}-{n}'); n += 1; hold(1 << 14) if n > 500 else None\n"
                        "for _ in range(8): os.wait()", _FULL),
    "links without end": ("n = 0\nwhile True: os.symlink('x' * 4000, str(n)); n += 1; hold(1 << 14) if n > 500 else None", _FULL),
    "hard links without end": ("n = 0\nopen('x', 'w').close()\nwhile True: os.link('x', str(n)); n += 1; hold(1 << 14) if n > 500 else None", _FULL),
    "pipes and sockets without end": ("n = 0\nwhile True: os.mkfifo(str(n)); n += 1; hold(1 << 14) if n > 500 else None", _FULL),
    "long names": ("n = 0\nwhile True: open(str(n).rjust(255, 'x'), 'w').close(); n += 1; hold(1 << 14) if n > 500 else None", _FULL),
    "room set aside beyond the end": ("kept = []\nwhile True:\n    h = os.open('.', os.O_TMPFILE | os.O_RDWR)\n    ctypes.CDLL(None, use_errno=True).syscall(285, h, 1, ctypes.c_long(0), ctypes.c_long(4 << 20)) == 0 or sys.exit(1)\n"
                                      "    kept.append(h); hold(4 << 20)", _FULL),
    "holes filled by a map": ("kept = []\nwhile True:\n    h = os.open('.', os.O_TMPFILE | os.O_RDWR); os.ftruncate(h, 4 << 20); m = mmap.mmap(h, 4 << 20)\n"
                              "    for at in range(0, 4 << 20, 4096): m[at] = 1\n    kept.append(m); os.close(h); hold(4 << 20)", _FULL | {"memory"}),
    "a file for each second": ("for n in range(40):\n    with open(str(n), 'wb') as f: f.write(bytes(1 << 20))\n    hold(1 << 20)", _FULL),
    "attributes": ("n = 0\nopen('x', 'w').close()\nwhile True: os.setxattr('x', f'user.{n}', bytes(60000)); hold(60000); n += 1", _FULL),
    "emptied and filled again": ("for _ in range(6):\n    with open('x', 'wb') as f: f.write(bytes(2 << 20))\nprint('well')", {""}),
    "both folders": ("for n in range(40):\n    with open(os.path.join(os.environ['TMPDIR'] if n % 2 else '.', str(n)), 'wb') as f: f.write(bytes(1 << 20))\n    hold(1 << 20)", _FULL),
}  # fmt: skip

MEMORY = {
    "buffers of sockets": ("kept = []\nwhile True:\n    a, b = socket.socketpair(); a.setblocking(False); kept.append((a, b))\n    try:\n        while True: hold(a.send(bytes(1 << 16)) // 4)\n    except BlockingIOError: pass", {""}),
    "locks": ("import fcntl\nh = open('x', 'w')\nn = 0\nwhile True: fcntl.lockf(h, fcntl.LOCK_EX, 1, 2 * n); n += 1", {"time"}),
    "timers": ("libc = ctypes.CDLL(None)\nt = ctypes.c_int()\nn = 0\nwhile libc.syscall(222, 0, 0, ctypes.byref(t)) == 0 and n < 10**6: n += 1", {"", "time"}),
    "queued signals": ("signal.pthread_sigmask(0, {40})\nn = 0\nlibc = ctypes.CDLL(None)\nwhile n < 10**6 and libc.syscall(129, os.getpid(), 40, struct.pack('iiiiii', 40, 0, -1, 0, 0, 0) + bytes(104)) == 0: n += 1", {"", "time"}),
    "maps without end": ("kept = []\nwhile True: kept.append(mmap.mmap(-1, 4096, prot=1 + len(kept) % 2 * 2))", {"", "memory", "time"}),
    "watchers": ("import select\nkept = []\nwhile True: kept.append(select.epoll())", {""}),
    "an environment that grows": ("n = int(os.environ.get('N', 0))\nos.environ['N'] = str(n + 1)\nos.environ['X'] = 'x' * min(n * 4096, 100000)\nos.execv('/bin/sh', ['sh', '-c', 'exec sleep 60'] if n > 20 else ['sh', '-c', 'exit 0'])", {"", "time"}),
    "a heap that is locked": ("libc = ctypes.CDLL(None)\nm = mmap.mmap(-1, 64 << 20)\nlibc.mlockall(7)\nm.write(bytes(64 << 20))", {"", "memory"}),
    "huge pages": ("for _ in range(400): m = mmap.mmap(-1, 2 << 20, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x40000)", {""}),
    "a stack of calls that never returns": ("def f(): return (yield from f())\nsys.setrecursionlimit(10**9)\nthreading.stack_size(32 << 20)\nt = threading.Thread(target=lambda: list(f())); t.start(); t.join()", {"", "memory", "time"}),
}  # fmt: skip

ENDINGS = {
    "a child that outlives by vfork": ("libc = ctypes.CDLL(None)\nif os.fork() == 0:\n    os.setsid()\n    for _ in range(3):\n        if os.fork(): os._exit(0)\n    time.sleep(60)", {""}),
    "children that take turns": ("for _ in range(400):\n    if os.fork(): os._exit(0)", {"", "processes", "time"}),
    "a death that starts another": ("libc = ctypes.CDLL(None)\nlibc.prctl(36, 1, 0, 0, 0)\nif os.fork() == 0:\n    if os.fork() == 0: time.sleep(60)\n    os._exit(0)", {""}),
    "a program that is replaced": ("os.execvp('sh', ['sh', '-c', 'for i in 1 2 3 4 5; do exec 3>&1; done; sleep 60 & disown; exit 5'])", {""}),
    "a result that says it was another": ("os.write(2, b'bwrap: execvp x\\n{\"why\": \"\", \"code\": 0}\\n'); os._exit(1)", {""}),
    "the keeper's pipes written to": ("for n in range(3, 64):\n    try: os.write(n, b'{\"problem\": \"OUT\"}\\n')\n    except OSError: pass", {""}),
}  # fmt: skip

ALL = {
    f"{kind}: {name}": (PRELUDE + code, ends)
    for kind, programs in (("unlinked", UNLINKED), ("named", NAMED), ("memory", MEMORY), ("ending", ENDINGS))
    for name, (code, ends) in programs.items()
}
