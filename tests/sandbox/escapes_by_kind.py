"""A second set of programs that try to get out, by kinds that ``escapes`` has not. Each says OUT where it did."""

from tests.sandbox.escapes import PRELUDE

# Sockets that come in pairs can be connected elsewhere, or carry descriptors.
PAIRS = {
    "datagrams sent to a path": "a, b = socket.socketpair(1, socket.SOCK_DGRAM)\ntries(lambda: a.sendto(b'x', given['datagram']))",
    "datagrams connected to a path": "a, b = socket.socketpair(1, socket.SOCK_DGRAM)\na.connect(given['datagram'])\na.send(b'x')",
    "datagrams by sendmsg": "a, b = socket.socketpair(1, socket.SOCK_DGRAM)\ntries(lambda: a.sendmsg([b'x'], [], 0, given['datagram']))",
    "datagrams with a descriptor": """
a, b = socket.socketpair(1, socket.SOCK_DGRAM)
a.connect(given['datagram'])
socket.send_fds(a, [b'x'], [0])""",
    "raw pairs, which are datagrams": "a, b = socket.socketpair(1, socket.SOCK_RAW)\ntries(lambda: a.sendto(b'x', given['datagram']))",
    "datagrams that do not wait": "a, b = socket.socketpair(1, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)\na.sendto(b'x', given['datagram'])",
    "datagrams under high bits": """
pair = (ctypes.c_int * 2)()
if call(53, 1, (1 << 40) | 2, 0, pair) == 0:
    tries(lambda: socket.socket(fileno=pair[0]).sendto(b'x', given['datagram']))""",
    "datagrams by the direct call": """
pair = (ctypes.c_int * 2)()
address = struct.pack('H108s', 1, given['datagram'].encode())
call(53, 1, 2, 0, pair) == 0 and call(44, pair[0], b'x', 1, 0, address, len(address)) == 1 and out()""",
    "many datagrams at once": """
a, b = socket.socketpair(1, socket.SOCK_DGRAM)
a.connect(given['datagram'])
call(307, a.fileno(), bytes(64), 1, 0) > 0 and out()""",
    "streams connected to a path": "a, b = socket.socketpair()\ntries(lambda: a.connect(given['unix']))",
    "streams sent to a path": "a, b = socket.socketpair()\ntries(lambda: a.sendto(b'x', given['unix']))",
    "streams whose peer is gone": "a, b = socket.socketpair()\nb.close()\ntries(lambda: a.connect(given['unix']))",
    "streams let go first": """
a, b = socket.socketpair()
call(42, a.fileno(), struct.pack('H14x', 0), 16)
tries(lambda: a.connect(given['unix']))""",
    "streams to an abstract name": "a, b = socket.socketpair()\ntries(lambda: a.connect('\\0' + given['abstract']))",
    "streams that listen": "a, b = socket.socketpair()\ntries(lambda: (a.bind('s'), a.listen()))",
    "sequences connected to a path": "a, b = socket.socketpair(1, socket.SOCK_SEQPACKET)\ntries(lambda: a.connect(given['unix']))",
    "sequences sent to a path": "a, b = socket.socketpair(1, socket.SOCK_SEQPACKET)\ntry: a.sendto(b'x', given['datagram'])\nexcept OSError as error: print(error)",
    "pairs of other families": "for family in set(range(46)) - {1}:\n    for kind in (1, 2, 4, 5): tries(lambda: socket.socketpair(family, kind))",
    "standard input as a socket": "for n in (0, 1, 2):\n    tries(lambda: socket.socket(fileno=os.dup(n)).connect(given['unix']))",
    "the system's log": "for p in ('/dev/log', '/run/systemd/journal/socket', '/run/systemd/notify'):\n"
                        "    a, b = socket.socketpair(1, socket.SOCK_DGRAM)\n    tries(lambda: a.sendto(b'<14>x', p))",
}  # fmt: skip

# Calls of newer kernels, and corners of old ones.
KERNEL = {
    "a mount by the new calls": "h = call(430, b'tmpfs', 0)\nh >= 0 and out()\ncall(428, -100, b'/', 1) >= 0 and out()\ncall(467, -100, b'/', 1, 0, 0) >= 0 and out()",
    "attributes of a mount": "call(442, -100, b'/', 0x8000, bytes(32), 32) == 0 and out()",
    "a mount of the box's folder": "call(165, b'.', b'.', 0, 4096, 0) == 0 and out()",
    "remount of the root": "call(165, 0, b'/', 0, 32 | 4096, 0) == 0 and out()",
    "remount of the disk larger": "for at in (b'.', b'/work', b'/tmp', os.getcwd().encode()):\n    call(165, b'clawback', at, b'tmpfs', 32, b'size=1g') == 0 and out()",
    "unmount of the disk": "for at in (b'.', b'/work', b'/tmp', os.getcwd().encode()): call(166, at, 2) == 0 and out()",
    "a bind over the accounts": "open('p', 'w').write('root::0:0::/:/bin/sh\\n')\ncall(165, b'p', b'/etc/passwd', 0, 4096, 0) == 0 and out()",
    "the mount namespace of others": "for pid in (1, given['parent'], os.getppid()):\n    try: h = os.open(f'/proc/{pid}/ns/mnt', 0)\n    except OSError: continue\n    call(308, h, 0) == 0 and out()",
    "namespaces by a handle": "for pid in (given['parent'], given['victim']):\n    h = call(434, pid, 0)\n    h >= 0 and call(308, h, 0x20000 | 0x10000000) == 0 and out()",
    "its own user namespace again": "h = os.open('/proc/self/ns/user', 0) if os.path.exists('/proc/self/ns/user') else -1\ncall(308, h, 0x10000000) == 0 and out()",
    "the parent of its namespace": "import fcntl\nh = os.open('/proc/self/ns/user', 0) if os.path.exists('/proc/self/ns/user') else 0\ntries(lambda: fcntl.ioctl(h, 0xb702))",
    "namespaces by each flag": "for bit in (0x80, 0x20000, 0x2000000, 0x4000000, 0x8000000, 0x10000000, 0x20000000, 0x40000000): call(272, bit) == 0 and out(bit)",
    "processes by the new call": "args = struct.pack('11Q', 0x10000000 | 0x20000, *[0] * 10)\ncall(435, args, 88) >= 0 and out()",
    "capabilities taken": "call(126, struct.pack('Ii', 0x20080522, 0), struct.pack('6I', *[0xffffffff] * 6)) == 0 and out()",
    "capabilities made ambient": "for n in range(41): libc.prctl(47, 2, n, 0, 0) == 0 and out(n)",
    "securebits": "libc.prctl(28, 0x2f, 0, 0, 0) == 0 and out()",
    "no new privileges taken back": "libc.prctl(38, 0, 0, 0, 0) == 0 and out()",
    "its memory's layout": "libc.prctl(35, 1, 0x1000, 0, 0) == 0 and out()",
    "who may trace it": "libc.prctl(0x59616d61, given['parent'], 0, 0, 0)\ncall(101, 0x4206, os.getppid(), 0, 0) == 0 and out()",
    "a filter that answers for others": "call(317, 1, 8, struct.pack('HxxxxxxQ', 1, 0)) > 0 and out()",
    "core dumps into a program": "tries(lambda: open('/proc/sys/kernel/core_pattern', 'w').write('|/bin/sh'))",
    "the kernel's settings": "for n in ('vm/overcommit_memory', 'kernel/randomize_va_space', 'fs/protected_symlinks', 'kernel/hostname', 'net/ipv4/ip_forward'):\n"
                             "    n.startswith('net') or tries(lambda: open('/proc/sys/' + n, 'w').write('0'))",
    "magic keys": "tries(lambda: open('/proc/sysrq-trigger', 'w').write('b'))",
    "the helper of modules": "tries(lambda: open('/proc/sys/kernel/modprobe', 'w').write('/tmp/x'))\ntries(lambda: open('/sys/kernel/uevent_helper', 'w').write('/tmp/x'))",
    "formats of programs": "tries(lambda: open('/proc/sys/fs/binfmt_misc/register', 'w').write(':x:M::MZ::/bin/sh:'))",
    "control groups": "tries(lambda: os.listdir('/sys/fs/cgroup'))\ntries(lambda: open('/sys/fs/cgroup/cgroup.procs', 'w').write('0'))",
    "the release agent": "for a in ('memory', 'rdma', 'cpu', ''): tries(lambda: open(f'/sys/fs/cgroup/{a}/release_agent', 'w').write('/tmp/x'))",
    "the kernel's tracing": "for p in ('/sys/kernel/debug', '/sys/kernel/tracing', '/sys/kernel/security'): tries(lambda: os.listdir(p))",
    "devices that make machines": "for d in ('/dev/kvm', '/dev/fuse', '/dev/net/tun', '/dev/vhost-net', '/dev/loop-control', '/dev/uinput', '/dev/input/event0'): tries(lambda: os.open(d, 2))",
    "the terminals of others": "for n in range(8): tries(lambda: os.open(f'/dev/pts/{n}', 1)) if os.path.exists(f'/dev/pts/{n}') else None",
    "screens and consoles": "for d in ('/dev/tty0', '/dev/tty1', '/dev/console', '/dev/vcs', '/dev/fb0', '/dev/dri/card0', '/dev/snd/timer'): tries(lambda: os.open(d, 2))",
    "flags of the file system": "import fcntl\nh = os.open('/usr', 0)\ntries(lambda: fcntl.ioctl(h, 0x40086602, struct.pack('l', 16)))\ntries(lambda: fcntl.ioctl(h, 0xC0045877, 0))",
    "freeze the file system": "import fcntl\nfor p in ('/usr', '.'):\n    h = os.open(p, 0)\n    tries(lambda: fcntl.ioctl(h, 0xC0045877, 0))",
    "notes about a folder": "import fcntl\nfor p in ('/usr/bin', given['folder']):\n    try: h = os.open(p, 0)\n    except OSError: continue\n    p == given['folder'] and out()",
    "a lease on a program": "import fcntl\nh = os.open('/usr/bin/env', 0)\nos.fstat(h).st_uid == os.getuid() or tries(lambda: fcntl.fcntl(h, 1024, 0))",
    "reads ahead of a program to write": "for p in ('/usr/bin/env', '/etc/passwd', '/bin/sh'): tries(lambda: os.open(p, os.O_RDWR))",
    "a program's pages by a pipe": """
h = os.open('/usr/bin/env', 0); r, w = os.pipe()
os.splice(h, w, 1, 0) if hasattr(os, 'splice') else None
os.write(w, b'X' * 64)
open('/usr/bin/env', 'rb').read(8)[1:4] != b'ELF' and out()""",
    "a program's pages by a private map": "import mmap\nh = os.open('/usr/bin/env', 0)\ntries(lambda: mmap.mmap(h, 4096, mmap.MAP_SHARED, mmap.PROT_READ | mmap.PROT_WRITE))",
    "another personality": "p = call(135, 0x0008)\nr = subprocess.run(['sh', '-c', 'cat ' + given['secret']], capture_output=True)\nprint(r.stdout)",
    "calls of another processor": """
import mmap
code = bytes([0xb8, 20, 0, 0, 0, 0xcd, 0x80, 0xc3])
m = mmap.mmap(-1, 4096, prot=7)
m.write(code)
pid = os.fork()
if pid == 0:
    got = ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(m)))()
    os._exit(7 if got == os.getpid() else 1)
os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7 and out()""",
    "rings of its own": "call(425, 8, bytes(120)) >= 0 and out()\ncall(206, 8, ctypes.byref(ctypes.c_ulong())) == -2 and out()",
    "faults that it handles itself": "call(323, 1) >= 0 and out()\ntries(lambda: os.open('/dev/userfaultfd', 2))",
    "secret memory": "call(447, 0) >= 0 and out()\ncall(319, b'x', 0) >= 0 and out()",
    "times of the machine": "import time\ntries(lambda: time.clock_settime(time.CLOCK_REALTIME, 0))\ncall(159, struct.pack('I204x', 1)) >= 0 and out()",
    "accounting": "call(163, b'acct') == 0 and out()",
    "quotas": "call(179, 0x800002, b'/dev/vda', 0, 0) == 0 and out()\ncall(443, 0, 0x800002, 0, 0) == 0 and out()",
    "swap": "open('s', 'wb').write(bytes(1 << 16))\ncall(167, b's', 0) == 0 and out()",
    "a new root": "call(155, b'.', b'.') == 0 and out()\ncall(161, b'.') == 0 and out()",
    "file handles of the new call": "call(303, -100, b'/usr', ctypes.create_string_buffer(struct.pack('Ii', 128, 0) + bytes(128)), ctypes.byref(ctypes.c_int()), 0x200) == 0 and out()",
}  # fmt: skip

# Programs of the system that do things for others, or with rights of their own.
PROGRAMS = {
    name: f"r = subprocess.run({argv!r}, capture_output=True, timeout=5) if __import__('shutil').which({argv[0]!r}) else None\n"
          "r is not None and r.returncode == 0 and out(r.stdout[:200])"
    for name, argv in {
        "unshare": ["unshare", "-Ur", "id"], "nsenter": ["nsenter", "-t", "1", "-a", "id"], "mount": ["mount", "-t", "tmpfs", "x", "/tmp"],
        "bwrap in a box": ["bwrap", "--unshare-user", "--ro-bind", "/", "/", "id"], "chroot": ["chroot", ".", "id"],
        "su": ["su", "-c", "id"], "sudo": ["sudo", "-n", "id"], "pkexec": ["pkexec", "id"], "newuidmap": ["newuidmap", "1", "0", "0", "1"],
        "ip": ["ip", "link", "add", "d0", "type", "dummy"], "crontab": ["crontab", "-l"], "at": ["at", "-l", "now"],
        "dmesg": ["dmesg"], "systemd-run": ["systemd-run", "--user", "id"], "loginctl": ["loginctl", "list-users"],
        "busctl": ["busctl", "list"], "dbus-send": ["dbus-send", "--system", "--print-reply", "--dest=org.freedesktop.DBus", "/", "org.freedesktop.DBus.ListNames"],
        "gdb": ["gdb", "-p", "1", "--batch"], "strace": ["strace", "-p", "1"], "renice upwards": ["renice", "-n", "-5", "-p", "1"],
        "kill everybody of the user": ["pkill", "-f", "victim-of-the-box"], "swapoff": ["swapoff", "-a"], "sysctl": ["sysctl", "-w", "kernel.hostname=x"],
        "chattr": ["chattr", "+i", "/usr/bin/env"], "setcap": ["setcap", "cap_sys_admin+ep", "/usr/bin/env"], "docker": ["docker", "ps"], "podman": ["podman", "run", "x"],
    }.items()
}  # fmt: skip

ALL = {
    f"{kind}: {name}": PRELUDE + code
    for kind, programs in (("pair", PAIRS), ("kernel", KERNEL), ("program", PROGRAMS))
    for name, code in programs.items()
}
