"""Programs that try to get out of a box. Each says OUT where it did; what it is after is told in ``given``."""

PRELUDE = """
import ctypes, errno, json, os, signal, socket, struct, subprocess, sys
given = json.loads(sys.argv[1])
libc = ctypes.CDLL(None, use_errno=True)
def out(what="it worked"): print("OUT:", what)
def call(number, *arguments):
    return libc.syscall(number, *[ctypes.c_long(a) if isinstance(a, int) else a for a in arguments])
def sends(family, kind, address, protocol=0):
    try:
        with socket.socket(family, kind, protocol) as s:
            s.settimeout(1)
            s.connect(address)
            s.send(b"hello")
            if kind == socket.SOCK_STREAM: out()
    except OSError as error:
        print("refused:", error)
def tries(action):
    try:
        it = action()
    except (OSError, subprocess.SubprocessError, ValueError) as error:
        print("refused:", error)
    else:
        out(repr(it)[:300])
"""

NETWORK = {
    "tcp": "sends(socket.AF_INET, socket.SOCK_STREAM, ('127.0.0.1', given['tcp']))",
    "tcp over IPv6": "sends(socket.AF_INET6, socket.SOCK_STREAM, ('::1', given['tcp']))",
    "tcp mapped into IPv6": "sends(socket.AF_INET6, socket.SOCK_STREAM, ('::ffff:127.0.0.1', given['tcp']))",
    "multipath tcp": "sends(socket.AF_INET, socket.SOCK_STREAM, ('127.0.0.1', given['tcp']), 262)",
    "udp": "sends(socket.AF_INET, socket.SOCK_DGRAM, ('127.0.0.1', given['udp']))",
    "udp over IPv6": "sends(socket.AF_INET6, socket.SOCK_DGRAM, ('::ffff:127.0.0.1', given['udp']))",
    "udp lite": "sends(socket.AF_INET, socket.SOCK_DGRAM, ('127.0.0.1', given['udp']), 136)",
    "unix stream": "sends(socket.AF_UNIX, socket.SOCK_STREAM, given['unix'])",
    "unix datagram": "sends(socket.AF_UNIX, socket.SOCK_DGRAM, given['datagram'])",
    "unix abstract": "sends(socket.AF_UNIX, socket.SOCK_STREAM, '\\0' + given['abstract'])",
    "unix by a link": "os.symlink(given['unix'], 's')\nsends(socket.AF_UNIX, socket.SOCK_STREAM, 's')",
    "vsock": "sends(socket.AF_VSOCK, socket.SOCK_STREAM, (2, 5001))",
    "raw": "tries(lambda: socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP))",
    "packets": "tries(lambda: socket.socket(socket.AF_PACKET, socket.SOCK_RAW))",
    "netlink": "tries(lambda: socket.socket(socket.AF_NETLINK, socket.SOCK_RAW))",
    "odd families": "for family in range(3, 46):\n    if family != 10: tries(lambda: socket.socket(family, socket.SOCK_DGRAM))",
    "names": "tries(lambda: socket.getaddrinfo('example.com', 80))",
    "http": "import urllib.request\ntries(lambda: urllib.request.urlopen('http://1.1.1.1/', timeout=1))",
    "bash's tcp": "r = subprocess.run(['bash', '-c', f'echo hi > /dev/tcp/127.0.0.1/{given[\"tcp\"]}'])\nr.returncode or out()",
    "io_uring": "call(425, 8, ctypes.create_string_buffer(120)) >= 0 and out()",
    "docker": "sends(socket.AF_UNIX, socket.SOCK_STREAM, '/var/run/docker.sock')",
    "message bus": "sends(socket.AF_UNIX, socket.SOCK_STREAM, '/run/dbus/system_bus_socket')",
}

READING = {
    "a file": "tries(lambda: open(given['secret']).read())",
    "a file by a link": "os.symlink(given['secret'], 'l')\ntries(lambda: open('l').read())",
    "a file by a hard link": "tries(lambda: (os.link(given['secret'], 'h'), open('h').read()))",
    "a file by dots": "tries(lambda: open('../' * 20 + given['secret']).read())",
    "a file by moving it": "tries(lambda: (os.rename(given['secret'], 'm'), open('m').read()))",
    "a file by /proc/self/root": "tries(lambda: open('/proc/self/root' + given['secret']).read())",
    "a file by init's root": "tries(lambda: open('/proc/1/root' + given['secret']).read())",
    "a file by the parent's root": "tries(lambda: open(f'/proc/{given[\"parent\"]}/root' + given['secret']).read())",
    "a file by the parent's folder": "tries(lambda: os.listdir(f'/proc/{given[\"parent\"]}/cwd/'))",
    "a file by a handle": """
handle = ctypes.create_string_buffer(struct.pack("Ii", 128, 0) + bytes(128))
mount = ctypes.c_int()
call(303, -100, given['secret'].encode(), handle, ctypes.byref(mount), 0) == 0 and out()
call(304, -100, handle, 0) >= 0 and out()""",
    "a shell's redirect": "r = subprocess.run(['sh', '-c', 'cat < ' + given['secret']], capture_output=True)\nprint(r.stdout)",
    "a program outside": "tries(lambda: subprocess.run([given['program']], check=True))",
    "a program by the loader": "tries(lambda: subprocess.run(['/lib64/ld-linux-x86-64.so.2', given['program']], check=True))",
    "the home": "tries(lambda: os.listdir(given['home']))",
    "root's home": "tries(lambda: os.listdir('/root/.ssh'))",
    "another box": "tries(lambda: open(given['neighbour']).read())",
    "the shared temporary folder": "given['mark'] in ' '.join(os.listdir('/tmp') if os.access('/tmp', 4) else []) and out()",
    "passwords": "tries(lambda: open('/etc/shadow').read())",
    "keys in the environment": "'s3cr3t' in str(dict(os.environ)) and out()",
    "the parent's environment": "tries(lambda: open(f'/proc/{given[\"parent\"]}/environ').read())",
    "everybody's environment": """
for pid in range(1, 30000):
    try: text = open(f'/proc/{pid}/environ', 'rb').read()
    except OSError: continue
    b's3cr3t' in text and out()""",
    "everybody's command line": """
for pid in range(1, 30000):
    try: text = open(f'/proc/{pid}/cmdline', 'rb').read()
    except OSError: continue
    b'sleep\\0' + b'10000' in text and out()""",
    "the parent's memory": "tries(lambda: open(f'/proc/{given[\"parent\"]}/mem', 'rb').read(1))",
    "the parent's memory by a call": """
class V(ctypes.Structure): _fields_ = [("base", ctypes.c_void_p), ("len", ctypes.c_size_t)]
mine, theirs = V(ctypes.addressof(ctypes.create_string_buffer(8)), 8), V(0x400000, 8)
for pid in (given['parent'], os.getppid()):
    call(310, pid, ctypes.byref(mine), 1, ctypes.byref(theirs), 1, 0) > 0 and out()""",
    "the parent's files": """
for pid in (given['parent'], os.getppid()):
    handle = call(434, pid, 0)
    for number in range(10):
        handle >= 0 and call(438, handle, number, 0) >= 0 and out()""",
    "files left open": """
import stat
for number in range(3, 1024):
    try: status = os.fstat(number)
    except OSError: continue
    out(f"{number}: {status}")""",
    "the kernel's memory": "for name in ('/dev/mem', '/proc/kcore', '/dev/kmem', '/dev/port'): tries(lambda: open(name, 'rb').read(1))",
    "the kernel's log": "tries(lambda: open('/dev/kmsg').read(1))\ncall(103, 3, ctypes.create_string_buffer(99), 99) > 0 and out()",
    "the disk": "for name in ('/dev/vda', '/dev/sda', '/dev/nvme0n1', '/dev/loop0'): tries(lambda: open(name, 'rb').read(1))",
    "a disk of its own": "tries(lambda: os.mknod('disk', 0o60666, os.makedev(254, 0)))\ntries(lambda: open('disk', 'rb').read(1))",
    "keys of the kernel": "call(250, 0, -4, 1) >= 0 and out()\ncall(248, b'user', b'x', b'y', 1, -3) >= 0 and out()",
    "watching files": """
handle = call(294, 0)
handle >= 0 and call(254, handle, given['secret'].encode(), 0xfff) >= 0 and out()
handle = call(300, 0, 0)
handle >= 0 and out()""",
}  # fmt: skip

WRITING = {
    "a file": "tries(lambda: open(given['secret'], 'w').write('x'))",
    "a file's end": "tries(lambda: os.truncate(given['secret'], 0))",
    "a file's name": "tries(lambda: os.rename(given['secret'], given['secret'] + '.x'))",
    "a file's life": "tries(lambda: os.unlink(given['secret']))",
    "a file's mode": "tries(lambda: os.chmod(given['secret'], 0o777))",
    "a file's owner": "tries(lambda: os.chown(given['secret'], os.getuid(), -1))\ntries(lambda: os.chown(given['secret'], 12, 12))",
    "a file's times": "tries(lambda: os.utime(given['secret'], (1, 1)))",
    "a file's attributes": "tries(lambda: os.setxattr(given['secret'], 'user.x', b'x'))",
    "a file over it": "open('n', 'w').close()\ntries(lambda: os.rename('n', given['secret']))",
    "a file by a link": "os.symlink(given['secret'], 'l')\ntries(lambda: open('l', 'w').write('x'))",
    "a folder": "tries(lambda: os.mkdir(given['folder'] + '/new'))",
    "a link": "tries(lambda: os.symlink('/', given['folder'] + '/new'))",
    "the home": "tries(lambda: open(given['home'] + '/.bashrc', 'a').write('x'))",
    "the system": "for place in ('/usr/bin/x', '/usr/local/bin/x', '/lib/x', '/bin/x'): tries(lambda: open(place, 'w'))",
    "settings": "for place in ('/etc/cron.d/x', '/etc/ld.so.preload', '/etc/passwd', '/etc/hosts'): tries(lambda: open(place, 'w'))",
    "this Python": "tries(lambda: open(os.__file__, 'a'))\ntries(lambda: os.chmod(os.__file__, 0o666))",
    "the kernel": """
for place in ('/proc/sys/kernel/core_pattern', '/proc/sysrq-trigger', '/sys/kernel/uevent_helper', '/proc/sys/vm/drop_caches'):
    tries(lambda: open(place, 'w').write('x'))""",
    "control groups": "tries(lambda: os.mkdir('/sys/fs/cgroup/memory/clawback-x'))\ntries(lambda: os.mkdir('/sys/fs/cgroup/clawback-x'))",
    "mounts": "call(165, b'none', b'/usr', b'tmpfs', 0, 0) == 0 and out()\ncall(166, b'/usr', 2) == 0 and out()",
    "new mounts": "call(430, b'tmpfs', 0) >= 0 and out()\ncall(428, -100, b'/', 1) >= 0 and out()",
    "another root": "tries(lambda: os.chroot('.'))\ncall(155, b'.', b'.') == 0 and out()",
    "a user namespace": "call(272, 0x10000000) == 0 and out()",
    "a namespace by clone": "r = call(56, 0x10000000 | 17, 0, 0, 0, 0)\nif r == 0: os._exit(0)\nr > 0 and out()",
    "a namespace by unshare": "r = subprocess.run(['unshare', '-r', 'true'], capture_output=True)\nr.returncode == 0 and out()",
    "init's namespace": "tries(lambda: call(308, os.open(f'/proc/{given[\"parent\"]}/ns/mnt', 0), 0))",
    "another user": "tries(lambda: os.setuid(0))\nos.getuid() == 0 and not given['root'] and out()",
    "a program with rights": "r = subprocess.run(['su', '-c', 'id'], capture_output=True, stdin=subprocess.DEVNULL)\nb'uid=0' in r.stdout and out()",
    "the clock": "import time\nnow = struct.pack('qq', int(time.time()), 0)\ncall(164, now, 0) == 0 and out()\ncall(227, 0, now) == 0 and out()",
    "the machine's name": "tries(lambda: socket.sethostname('x'))",
    "a program for the kernel": "call(321, 0, ctypes.create_string_buffer(128), 128) >= 0 and out()\ncall(323, 0) >= 0 and out()",
    "a module": "call(175, b'x', 1, b'') == 0 and out()\ncall(176, b'dummy', 0) == 0 and out()",
    "a reboot": "call(169, 0xfee1dead, 672274793, 0x89abcdef, 0) == 0 and out()",
    "another kind of call": "call(0x40000000 + 39) > 0 and out()",
}  # fmt: skip

PROCESSES = {
    "signal the parent": "for pid in (given['parent'], os.getppid()): pid > 1 and tries(lambda: os.kill(pid, signal.SIGTERM))",
    "stop its keeper": "os.getppid() > 1 and tries(lambda: os.kill(os.getppid(), signal.SIGSTOP))",
    "signal another": "tries(lambda: os.kill(given['victim'], signal.SIGKILL))",
    "signal a thread": "call(234, given['victim'], given['victim'], 9) == 0 and out()",
    "signal by a handle": "handle = call(434, given['victim'], 0)\nhandle >= 0 and call(424, handle, 9, 0, 0) == 0 and out()",
    "queue a signal": "call(129, given['victim'], 9, struct.pack('iiiiii', 9, 0, -1, 0, 0, 0) + bytes(104)) == 0 and out()",
    "signal a group": "tries(lambda: os.killpg(given['group'], signal.SIGKILL))",
    "signal by an owner": """
import fcntl
a, b = socket.socketpair()
try:
    fcntl.fcntl(a, fcntl.F_SETOWN, given['victim']); fcntl.fcntl(a, 10, 9)
    fcntl.fcntl(a, fcntl.F_SETFL, os.O_ASYNC | os.O_NONBLOCK); b.send(b'x')
except OSError as error: print(error)""",
    "signal everybody": "signal.signal(15, signal.SIG_IGN)\ntry: os.kill(-1, signal.SIGTERM)\nexcept OSError as error: print(error)",
    "kill everybody": "try: os.kill(-1, signal.SIGKILL)\nexcept OSError as error: print(error)",
    "kill by number": """
for pid in range(2, 33000):
    if pid != os.getpid():
        try: os.kill(pid, signal.SIGKILL)
        except OSError: pass""",
    "trace the parent": "for pid in (given['parent'], os.getppid(), given['victim']): call(101, 16, pid, 0, 0) == 0 and out()",
    "seize the parent": "for pid in (given['parent'], os.getppid()): call(101, 0x4206, pid, 0, 0) == 0 and out()",
    "trace a child": "pid = os.fork()\nif pid == 0: os._exit(call(101, 0, 0, 0, 0) == 0)\nos.waitpid(pid, 0)[1] and out()",
    "the parent's limits": """
import resource
for pid in (given['parent'], given['victim'], os.getppid()):
    pid > 1 and tries(lambda: resource.prlimit(pid, resource.RLIMIT_CPU, (0, 0)))""",
    "the parent's priority": "for pid in (given['parent'], given['victim']): tries(lambda: os.setpriority(os.PRIO_PROCESS, pid, 19))",
    "the user's priority": "os.setpriority(os.PRIO_PROCESS, 0, 19)\ncall(141, 2, 0, 19)",
    "the parent's cores": "for pid in (given['parent'], given['victim']): tries(lambda: os.sched_setaffinity(pid, {0}))",
    "the parent's disk priority": "for pid in (given['parent'], given['victim']): call(251, 1, pid, (3 << 13) | 7) == 0 and out()",
    "a higher priority": "tries(lambda: os.setpriority(os.PRIO_PROCESS, 0, -10))",
    "real time": "tries(lambda: os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(50)))",
    "hide from the watch": "libc.prctl(4, 0, 0, 0, 0) == 0 and out()",
    "raise its limits": "import resource\nfor w in (resource.RLIMIT_AS, resource.RLIMIT_FSIZE, resource.RLIMIT_NPROC): tries(lambda: resource.setrlimit(w, (-1, -1)))",
    "type into the terminal": "import fcntl\nfor handle in (0, 1, 2): tries(lambda: fcntl.ioctl(handle, 0x5412, b'x'))\ntries(lambda: os.open('/dev/tty', 2))",
    "memory of nobody's": "tries(lambda: os.memfd_create('x'))\ncall(29, 0, 4096, 0o1600) >= 0 and out()\ncall(68, 1, 0o1600) >= 0 and out()",
    "the status pipe": """
for number in range(3, 64):
    try: os.write(number, b'{"why": "", "code": 0, "left": 0, "wraps": false}\\n')
    except OSError: pass
    else: out(number)""",
    "the report of a box": "print('{ \"child-pid\": 1 }', '{ \"exit-code\": 0 }')\nsys.exit(3)",
}  # fmt: skip

ALL = {
    f"{kind}: {name}": PRELUDE + code
    for kind, programs in (
        ("network", NETWORK),
        ("read", READING),
        ("write", WRITING),
        ("process", PROCESSES),
    )
    for name, code in programs.items()
}
