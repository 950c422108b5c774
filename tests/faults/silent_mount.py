"""Mounts a file system of an ordinary user, maps code from it, and then answers no request any more: no name, no size, no bytes.

usage: silent_mount.py [--answer] MOUNTPOINT [UID COMMAND…]

With COMMAND, that maps the file: it gets the file's path as its last argument, and says "ready" when it has done so.
Prints "ready" when code is mapped.  Ends when its standard input ends.  With --answer, it goes on answering, and prints
the program and the name of each process that asks.
"""
import ctypes, mmap, os, signal, struct, sys, threading

answers = sys.argv[1] == '--answer'
if answers:
    sys.argv.pop(1)
mount_point, uid, command = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 4242, sys.argv[3:]
fuse = os.open('/dev/fuse', os.O_RDWR | os.O_CLOEXEC)
libc = ctypes.CDLL(None, use_errno=True)
options = 'fd=%d,rootmode=40000,user_id=%d,group_id=%d,allow_other' % (fuse, uid, uid)
if libc.mount(b'silent', mount_point.encode(), b'fuse', 6, options.encode()):
    sys.exit('mount: ' + os.strerror(ctypes.get_errno()))
silent = telling = False


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

        if silent:
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
        elif what in (14, 27):  # OPEN, OPENDIR
            answer(struct.pack('<QII', 1, 0, 0))
        elif what == 15:  # READ
            answer(bytes(struct.unpack_from('<I', request, 56)[0]))
        elif what not in (2, 42):  # FORGET, BATCH_FORGET
            answer(error=-38)


threading.Thread(target=serve, daemon=True).start()
mapped = os.pipe()
mapper = os.fork()
if not mapper:
    os.close(fuse)  # the file system ends with its server alone
    os.setgroups([])
    os.setgid(uid)
    os.setuid(uid)
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
