"""Holds the daemon's server to its bounds while clients misuse it: others are answered all the same.
  usage: daemon_clients.py SOCKET PORT PID      (PORT of 127.0.0.1; PID of the process that serves)
"""
import concurrent.futures, resource, select, socket, sys, time

path, port, pid = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
WAIT = 60  # seconds after which a client gives up, on a machine however busy
MEMORY = 512 << 10  # KiB
resource.setrlimit(resource.RLIMIT_NOFILE, (4096, max(4096, resource.getrlimit(resource.RLIMIT_NOFILE)[1])))
failures = 0


def fail(what):
    global failures
    failures += 1
    print('FAIL:', what)


def connect(local=False):
    s = socket.socket(socket.AF_UNIX if local else socket.AF_INET)
    s.settimeout(WAIT)
    s.connect(path if local else ('127.0.0.1', port))
    return s


def request(what, more=''):
    return f'GET {what} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{more}\r\n'.encode()


def status(s):
    """Read a reply to its end; return its status, 0 if there is none."""
    parts = []
    try:
        while part := s.recv(1 << 16):
            parts.append(part)
    except ConnectionError:
        pass
    words = b''.join(parts).split(b' ', 2)
    return int(words[1]) if len(words) > 1 else 0


def ask(what, local=False):
    s = connect(local)
    s.sendall(request(what))
    answer = status(s)
    s.close()
    return answer


def until(condition, what):
    end = time.monotonic() + WAIT
    while not condition():
        if time.monotonic() > end:
            return fail(what)
        time.sleep(0.05)


def memory():
    return int(next(line for line in open(f'/proc/{pid}/status') if line.startswith('VmRSS')).split()[1])


def served(what):
    """Both listeners answer, and the process that serves is the one that it was."""
    for local in False, True:
        if (got := ask('/healthz', local)) != 200:
            fail(f'{what}: {got} from {"the socket" if local else "TCP"}')
    if memory() > MEMORY:
        fail(f'{what}: {memory()} KiB of memory')


served('at the beginning')

# Clients that never end their requests.
slow = [connect() for _ in range(900)]
for i, s in enumerate(slow):
    s.sendall(request('/healthz')[: i % 40])
served('900 half requests')
for s in slow:
    s.close()

# More connections than there may be: of the other listener, nothing is felt.
many = [connect() for _ in range(1100)]
if ask('/healthz', True) != 200:
    fail('1,100 connections: the socket is not served')
for s in many:
    s.close()
until(lambda: ask('/healthz') == 200, 'after 1,100 connections, TCP is not served')

# Clients that never read what they asked for.
deaf = [connect(i % 2 == 0) for i in range(30)]
for s in deaf:
    s.sendall(request('/api/v1/flamegraph?from=-1m'))
served('30 clients that do not read')
for s in deaf:
    s.close()

# Replies that nobody reads may have 256 MiB together.
sql = b'SELECT hex(zeroblob(7500000))'
post = b'POST /api/v1/query HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n%s' % (len(sql), sql)


def ask_much(s):
    s.sendall(post)
    return int(s.recv(12).split()[1])


def read_some(s):
    """Read more than the socket's buffers hold, so that the server goes on: it closes who reads nothing for 30 s."""
    left = 1 << 18
    while left > 0 and (part := s.recv(min(left, 1 << 16))):
        left -= len(part)


deaf, got = [], []
for _ in range(20):  # each at once: a connection without a request does not wait for long
    deaf.append(connect(True))
    got.append(ask_much(deaf[-1]))
    for s, answer in zip(deaf, got):
        if answer == 200:
            read_some(s)
if got.count(200) != 17 or got.count(503) != 3:
    fail(f'20 replies of 15 MB that are not read to their end: {got}')
served('20 replies of 15 MB')
for s in deaf:
    s.close()
one = []


def much_is_given():
    one[:] = [connect(True)]
    answer = ask_much(one[0])
    one[0].close()
    return answer == 200


until(much_is_given, 'what the clients left is not given back')

# Bodies without end, and lines without end.
for head, want in ((f'POST /api/v1/query HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: {1 << 40}\r\n\r\n', (0, 413)),
                   ('POST /api/v1/query HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n', (0, 413)),
                   ('GET /', (0, 414)), ('GET / HTTP/1.1\r\nX: ', (0, 431)), ('GET / HTTP/1.1\r\n', (0, 431))):
    s = connect()
    part = b'1000\r\n' + b'x' * 0x1000 + b'\r\n' if 'chunked' in head else b'a: b\r\n' * 700 if head.endswith('1.1\r\n') else b'x' * 0x1000
    try:
        s.sendall(head.encode())
        for _ in range(500):
            s.sendall(part)
        s.shutdown(socket.SHUT_WR)
    except OSError:
        pass  # it was closed: that is what is wanted
    try:
        if (got := status(s)) not in want:
            fail(f'{head[:40]!r} and 2 MB more: {got}')
    except OSError as e:
        fail(f'{head[:40]!r} and 2 MB more: {e}')
    s.close()
served('requests without end')

# What waits for samples is bounded, and those who went away wait no longer.
waiting = [connect(True) for _ in range(70)]
for s in waiting:
    s.sendall(request('/debug/pprof/profile?seconds=3000'))
until(lambda: len(select.select(waiting, [], [], 0)[0]) == 6, '70 requests wait at the same time')
if (got := ask('/debug/pprof/profile?seconds=1', True)) != 429:
    fail(f'one more than 64 waits: {got}')
served('64 requests that wait')
for s in waiting:
    s.close()
until(lambda: ask('/debug/pprof/profile?seconds=1', True) == 200, 'those who went away still wait')

# All at once.
with concurrent.futures.ThreadPoolExecutor(50) as pool:
    got = list(pool.map(lambda i: ask('/api/v1/top?from=-10s', i % 2 == 0), range(60)))
if got != [200] * 60:
    fail(f'60 at once: {sorted(set(got))}')
served('at the end')
print(f'{memory() >> 10} MiB')
sys.exit(failures > 0)
