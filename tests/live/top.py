"""Tests offwind top in a pseudo-terminal: its output, its keys, and the terminal's state after every way to quit.

usage: top.py OFFWIND
"""
import fcntl, os, pty, re, resource, select, signal, struct, subprocess, sys, termios, time

OFFWIND = sys.argv[1]
ENTER, LEAVE = b'\x1b[?1049h', b'\x1b[?1049l'
failures = 0


def check(ok, what):
    global failures
    if not ok:
        failures += 1
        print('FAIL: ' + what)


class Terminal:
    def __init__(self, args, rows=24, columns=100):
        self.master, self.slave = pty.openpty()
        self.resize(rows, columns)
        self.before = termios.tcgetattr(self.slave)
        self.out = b''
        self.errors = open(os.environ['WORK'] + '/stderr', 'w+b')
        self.child = subprocess.Popen([OFFWIND, 'top'] + args, stdin=self.slave, stdout=self.slave,
                                      stderr=self.errors, start_new_session=True,
                                      preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0))

    def resize(self, rows, columns):
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack('HHHH', rows, columns, 0, 0))

    def pump(self, seconds):
        end = time.time() + seconds
        while seconds < 0.1 or time.time() < end:  # a short one reads all that there is, however late
            if select.select([self.master], [], [], 0.05)[0]:
                try:
                    self.out += os.read(self.master, 65536)
                except OSError:
                    return
            elif seconds < 0.1:
                return

    def wait_for(self, pattern, since=0, seconds=60):
        """Wait until the output since then matches; machines may be busy."""
        end = time.time() + seconds
        while time.time() < end:
            if re.search(pattern, self.out[since:], re.S):
                return True
            self.pump(0.2)
        return False

    def wait_until(self, condition, seconds=60):
        """Wait until the condition holds for what is drawn: in one interval a busy machine may not have run the program."""
        end = time.time() + seconds
        while not condition():
            if time.time() > end:
                return False
            self.pump(0.2)
        return True

    def press(self, keys, pattern, what):
        since = len(self.out)
        os.write(self.master, keys)
        check(self.wait_for(pattern, since), what + ': ' + repr(self.out[since:][:300]))

    def picture(self):
        """Return the lines of the last whole screen, without escape sequences."""
        text = self.out[:self.out.rindex(b'\x1b[J')]
        text = text[text.rindex(b'\x1b[H') + 3:]
        return re.sub(rb'\x1b\[[0-9;?]*[A-Za-z]', b'', text).split(b'\r\n')

    def worker(self):
        """Return the pid of the process that draws."""
        for pid in open('/proc/%d/task/%d/children' % (self.child.pid, self.child.pid)).read().split():
            if open('/proc/%s/comm' % pid).read() == 'offwind-worker\n':
                return int(pid)
        return self.child.pid

    def ended(self, what, code):
        try:
            rc = self.child.wait(60)
        except subprocess.TimeoutExpired:
            self.child.kill()
            rc = 'none: it went on'
        self.pump(0.05)
        check(rc == code, '%s: exit code %s, not %s' % (what, rc, code))
        self.restored(what)
        os.close(self.master)
        os.close(self.slave)

    def restored(self, what):
        check(self.out.count(LEAVE) == self.out.count(ENTER) > 0 and
              self.out.rindex(LEAVE) > self.out.rindex(ENTER), what + ': the screen is given back')
        check(self.out.count(b'\x1b[?25h') > 0, what + ': the cursor is seen again')
        check(termios.tcgetattr(self.slave) == self.before, what + ': the terminal is as it was')


# A program to show: a function of its own that uses all of a CPU.
spin = subprocess.Popen([os.environ['WORK'] + '/spin_here'])
try:
    t = Terminal(['--delay', '300ms', '-F', '499'])
    check(t.wait_for(rb'SELF.*TOTAL.*MODULE.*FUNCTION'), 'a table')
    check(t.wait_for(rb'spin_here\s.*spin_in_top'), 'the function that runs')
    check(termios.tcgetattr(t.slave) != t.before, 'keys come one by one')
    check(len(t.picture()) <= 24, 'no more lines than there are rows')
    t.press(b's', rb'sorted by total', 's sorts by total')
    t.press(b's', rb'sorted by name', 's sorts by name')
    t.press(b's', rb'sorted by self', 's sorts by self')
    t.press(b'b', rb'by module', 'b shows modules')
    t.press(b'bb', rb'by comm.*spin_here', 'b shows processes')
    t.press(b'bbb', rb'by symbol', 'b comes back')
    t.press(b'f%d\r' % spin.pid, b'only process %d' % spin.pid, 'f: one process')

    def mostly_spins():
        first = [l for l in t.picture() if b'%' in l][:1]
        return first and b'spin_in_top' in first[0] and float(first[0].split(b'%')[0]) > 60
    check(t.wait_until(mostly_spins), 'f: of one process nearly all is its function: %r' % t.picture())
    t.press(b'f\r', rb's sort', 'f: all again')
    t.press(b'/spin_in_t\r', rb'only names that contain spin_in_t', '/: by name')
    check(t.wait_until(lambda: [b'spin_in_top' in l for l in t.picture()[3:] if b'%' in l] == [True]), '/: one row')
    t.press(b'/\r', rb's sort', '/: all again')
    t.press(b'?', rb'start again', '? tells the keys')
    t.press(b'?', rb'FUNCTION', '? once more: the table')
    t.press(b'\x1b[B', rb'FUNCTION', 'arrows scroll')
    t.press(b'k', rb'FUNCTION', 'k scrolls back')
    t.press(b' ', rb'PAUSED', 'space pauses')
    n = t.out.count(b'\x1b[H')
    t.pump(1)
    check(t.out.count(b'\x1b[H') == n, 'paused: nothing is drawn')
    t.press(b'p', rb'FUNCTION', 'p goes on')
    since = len(t.out)
    t.resize(8, 80)
    check(t.wait_for(rb'FUNCTION.*\x1b\[J', since), 'drawn anew in the new size')
    check(t.wait_until(lambda: len(t.picture()) <= 8), 'a small one: %d lines' % len(t.picture()))
    check(all(len(l.decode().rstrip('\r')) <= 80 for l in t.picture()[1:]), 'and narrow: %r' % t.picture())
    os.write(t.master, b'q')
    t.ended('q', 0)

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
        t = Terminal(['--delay', '300ms'])
        check(t.wait_for(rb'FUNCTION'), number.name + ': begins')
        if number == signal.SIGINT:
            os.write(t.master, b'\x03')  # as Ctrl-C comes
        else:
            t.child.send_signal(number)
        t.ended(number.name, 0)

    # Another worker draws after one that died, and the terminal is as it was at the end.
    for number in (signal.SIGSEGV, signal.SIGKILL):
        t = Terminal(['--delay', '300ms'])
        check(t.wait_for(rb'FUNCTION'), number.name + ': begins')
        since = len(t.out)
        os.kill(t.worker(), number)
        check(t.wait_for(re.escape(ENTER) + rb'.*FUNCTION', since), number.name + ': goes on')
        os.write(t.master, b'q')
        t.ended(number.name, 0)

    t = Terminal(['--delay', '300ms'])
    check(t.wait_for(rb'FUNCTION'), 'stop: begins')
    t.child.send_signal(signal.SIGTSTP)
    end = time.time() + 60
    while time.time() < end and open('/proc/%d/stat' % t.child.pid).read().split(') ')[1][0] != 'T':
        t.pump(0.1)
    t.pump(0.3)
    t.restored('stopped')
    since = len(t.out)
    t.child.send_signal(signal.SIGCONT)
    check(t.wait_for(re.escape(ENTER) + rb'.*FUNCTION', since), 'goes on')
    os.write(t.master, b'q')
    t.ended('after a stop', 0)

    none = subprocess.run([OFFWIND, 'top'], stdin=subprocess.DEVNULL, capture_output=True)
    check(none.returncode == 2 and b'must be a terminal' in none.stderr and not none.stdout,
          'without a terminal')
    # A process that ends, after four seconds of CPU time, before the first table is due.
    ended = subprocess.Popen([os.environ['WORK'] + '/spin_here'],
                             preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_CPU, (4, 4)))
    batch = subprocess.run([OFFWIND, 'top', '-b', '-p', str(ended.pid), '--delay', '1000', '-F', '499', '--by', 'comm'],
                           stdout=subprocess.PIPE, timeout=500, check=False)
    ended.wait()
    check(batch.returncode == 0 and batch.stdout.count(b'offwind top') == 1 and b'spin_here' in batch.stdout,
          'batch of ended processes: %r' % batch.stdout)
    for delay in '500ms', '2', '8':  # on a busy machine it takes longer until the program has samples
        batch = subprocess.run([OFFWIND, 'top', '-b', '-n', '2', '--delay', delay, '-F', '499', '--by', 'comm'],
                               stdin=subprocess.DEVNULL, capture_output=True)
        if b'spin_here' in batch.stdout:
            break
    check(batch.returncode == 0 and batch.stdout.count(b'offwind top') == 2 and
          b'spin_here' in batch.stdout and b'\x1b' not in batch.stdout, 'batch: %r' % batch.stdout)
finally:
    spin.kill()
sys.exit(failures != 0)
