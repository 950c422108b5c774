"""Mounts a file system of an ordinary user, maps code from it, and then answers no request any more: no name, no size, no bytes.

usage: silent_mount.py [--answer | --overlay | --close] MOUNTPOINT [UID COMMAND…]

With --overlay, the user mounts it in a user namespace of his own, below an overlay, whose file is mapped: whoever opens that one asks
this program with the user's rights.  With COMMAND, that maps the file: it gets the file's path as its last argument, and says "ready" when it has done so.
Prints "ready" when code is mapped.  Ends when its standard input ends.  With --answer, it goes on answering, and prints
the program and the name of each process that asks.  With --close, nobody who closes a file gets an answer, from the beginning;
but all ends after two minutes, as who looks at a process that is closing one within execve, waits for it (ps).
"""
import ctypes, mmap, os, signal, struct, sys, threading

answers, overlay, unclosed = (sys.argv[1] == how for how in ('--answer', '--overlay', '--close'))
if answers or overlay or unclosed:
    sys.argv.pop(1)
mount_point, uid, command = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 4242, sys.argv[3:]
libc = ctypes.CDLL(None, use_errno=True)
device, lower, silent, telling = '/dev/fuse', mount_point, False, False


def become_user():
    os.setgroups([])
    os.setgid(uid)
    os.setuid(uid)


def succeed(result, what):
    if result:
        sys.exit(what + ': ' + os.strerror(ctypes.get_errno()))


if overlay:
    device, lower, empty = (os.path.join(mount_point, name) for name in ('fuse', 'lower', 'empty'))
    os.mknod(device, 0o20666, os.stat('/dev/fuse').st_rdev)  # as most systems have it
    os.chmod(device, 0o666)
    become_user()
    succeed(libc.prctl(4, 1, 0, 0, 0), 'prctl')  # PR_SET_DUMPABLE, to write these files
    succeed(libc.unshare(0x10000000 | 0x20000), 'unshare')  # CLONE_NEWUSER, CLONE_NEWNS
    for name, line in (('setgroups', 'deny'), ('uid_map', '0 %d 1' % uid), ('gid_map', '0 %d 1' % uid)):
        with open('/proc/self/' + name, 'w') as f:
            f.write(line)
    for name in lower, empty:
        os.mkdir(name)
    uid = 0
fuse = os.open(device, os.O_RDWR | os.O_CLOEXEC)
options = 'fd=%d,rootmode=40755,user_id=%d,group_id=%d,allow_other' % (fuse, uid, uid)
succeed(libc.mount(b'silent', lower.encode(), b'fuse', 6, options.encode()), 'mount')


def attributes(node):
    mode = 0o40755 if node == 1 else 0o100755
    return struct.pack('<6Q10I', node, 1 << 20, 2048, 0, 0, 0, 0, 0, 0, mode, 1, uid, uid, 0, 4096, 0)


def serve():
    while True:
        try:
            request = os.read(fuse, 1 << 17)
        except OSError:
            return
        _, what, unique, node, _, _, pid = struct.unpack_from('<IIQQIII', request)

        def answer(data=b'', error=0):
            os.write(fuse, struct.pack('<IiQ', 16 + len(data), error, unique) + data)

        if silent or (unclosed and what == 25):  # FLUSH
            continue
        if telling and pid:
            try:
                print(os.readlink('/proc/%d/exe' % pid), open('/proc/%d/comm' % pid).read().strip(), flush=True)
            except OSError:
                pass
        if what == 26:  # INIT
            answer(struct.pack('<IIIIHHIIHHIIIHH', 7, 31, 65536, 0, 10, 8, 65536, 1, 0, 0, 0, 0, 0, 0, 0) + bytes(16))
        elif what == 1:  # LOOKUP; nothing is remembered
            answer(struct.pack('<QQQQII', 2, 0, 0, 0, 0, 0) + attributes(2))
        elif what == 3:  # GETATTR
            answer(struct.pack('<QII', 0, 0, 0) + attributes(node))
        elif what == 17:  # STATFS
            answer(struct.pack('<5Q10I', 0, 0, 0, 0, 0, 4096, 255, 4096, 0, 0, 0, 0, 0, 0, 0))
        elif what in (14, 27):  # OPEN, OPENDIR
            answer(struct.pack('<QII', 1, 0, 0))
        elif what == 15:  # READ
            answer(bytes(struct.unpack_from('<I', request, 56)[0]))
        elif what not in (2, 42):  # FORGET, BATCH_FORGET
            answer(error=-38)


threading.Thread(target=serve, daemon=True).start()
if unclosed:
    signal.alarm(120)
if overlay:
    options = 'lowerdir=%s:%s' % (lower, empty)
    succeed(libc.mount(b'overlay', mount_point.encode(), b'overlay', 0, options.encode()), 'mount of the overlay')
mapped = os.pipe()
mapper = os.fork()
if not mapper:
    os.close(fuse)  # the file system ends with its server alone
    if not overlay:
        become_user()
    if command:
        os.dup2(mapped[1], 1)
        os.execv(command[0], command + [mount_point + '/code'])
    fd = os.open(mount_point + '/code', os.O_RDONLY)
    code = mmap.mmap(fd, 1 << 20, mmap.MAP_PRIVATE, mmap.PROT_READ | mmap.PROT_EXEC)
    os.write(mapped[1], b'1')
    while True:
        pass  # it is sampled
os.close(mapped[1])
ok = os.read(mapped[0], 1) in (b'1', b'r')
silent = not answers
if ok:
    print('ready', flush=True)
    telling = answers
    sys.stdin.read()
os.kill(mapper, signal.SIGKILL)
os.close(fuse)  # whoever waits for an answer gets an error now
os._exit(0)
