"""The hostile cases: what each runs beside the honest program, and what it may cost.

Each function of a Case gets the Place where it may write, and starts its programs there.
"""
import os, shutil, signal, subprocess, sys, time

import objects

HERE = os.path.dirname(os.path.abspath(__file__))
MEMORY = 400  # MiB, of all processes of a recording together
CPU = 0.5     # of the time that the recording takes, and CPU_ENDS s
CPU_ENDS = 5


class Case:
    """
    group: the cases that share a recording in the reduced run; None: none.  memory: MiB.  options: of record.
    before: a command in front of record's.  during(place, child, capture): runs while child records.  loses: the case makes
    that samples are lost, which must be told.  alone: not compared with other tools, which have nothing to do with it.
    late: seconds after its time in which the recording may end, if the machine has a CPU for it.
    """

    def __init__(self, name, what, start, group=None, memory=MEMORY, options=(), before=(), during=None, loses=False, code=0, says='',
                 alone=False, env=None, late=10):
        self.name, self.what, self.start, self.group, self.memory = name, what, start, group, memory
        self.options, self.before, self.during, self.loses, self.code, self.says = options, before, during, loses, code, says
        self.alone, self.env, self.late = alone, env or {}, late


def share(child, nice):
    """Set the share of the CPUs that a session has, whatever the nice values of its processes, if the kernel divides them among sessions."""
    try:
        with open('/proc/%d/autogroup' % child.pid, 'w') as f:
            f.write(str(nice))
    except OSError:  # none, or its first process has ended
        pass


class Place:
    """Where the programs of one recording run: as an ordinary user, in a directory of his, until the end."""

    def __init__(self, directory, programs, uid, honest):
        self.directory, self.programs, self.uid, self.honest = directory, programs, uid, honest
        self.started, self.servers, self.objects = [], [], []
        os.mkdir(directory)
        os.chown(directory, uid, uid)

    def file(self, name, data=b''):
        path = os.path.join(self.directory, name)
        with open(path, 'wb') as f:
            f.write(data)
        os.chown(path, self.uid, self.uid)
        return path

    def folder(self, name):
        path = os.path.join(self.directory, name)
        os.mkdir(path)
        os.chown(path, self.uid, self.uid)
        return path

    def as_user(self):
        return ['nice', '-n', '10', 'prlimit', '--nproc=3000', 'setpriv', '--reuid', str(self.uid), '--regid', str(self.uid), '--clear-groups']

    def run(self, *command, wait=True):
        """Start a program; with wait, until it says that it is ready."""
        child = subprocess.Popen([*self.as_user(), *command], stdout=subprocess.PIPE if wait else subprocess.DEVNULL,
                                 stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL, cwd=self.directory, start_new_session=True)
        if wait and child.stdout.readline() != b'ready\n':
            raise RuntimeError('%s: did not begin' % (command,))
        self.started.append(child)
        share(child, 19)
        return child

    def attack(self, program, *args):
        return self.run(os.path.join(self.programs, program), *args)

    def object(self, name):
        """Make programs of objects.py, which are run when all are made."""
        for path in objects.make(name, self.directory):
            os.chown(path, self.uid, self.uid)
            self.objects.append(path)

    def run_all(self):
        """Let what was started have its share of the CPUs, which it lacks while others are started, and run the programs of objects.py."""
        for path in self.objects:
            self.run(path, wait=False)
        for child in self.started:
            share(child, 0)

    def silent(self, mount_point, *command, how=()):
        """Mount a file system that does not answer, and run a program that maps its file."""
        server = subprocess.Popen(['unshare', '-m', '--propagation', 'private', sys.executable, os.path.join(HERE, '..', 'silent_mount.py'),
                                   *how, mount_point, str(self.uid), *command], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                  stderr=subprocess.DEVNULL)
        if server.stdout.readline() != b'ready\n':
            raise RuntimeError('the silent file system was not mounted')
        self.servers.append(server)

    def stop(self):
        """End all that was started, whatever became of it."""
        for server in self.servers:
            server.stdin.close()
            server.wait()
        for _ in range(2):  # the second time for what was being born
            subprocess.run(['setpriv', '--reuid', str(self.uid), '--regid', str(self.uid), '--clear-groups', 'sh', '-c', 'kill -9 -1'],
                           stderr=subprocess.DEVNULL)
        for child in self.started:
            child.kill()
            child.wait()
        for name in os.listdir('/tmp'):
            path = os.path.join('/tmp', name)
            try:
                is_mine = name.startswith('perf-') and os.lstat(path).st_uid == self.uid
            except FileNotFoundError:  # another's, as those that perf makes for a moment
                continue
            if is_mine:
                shutil.rmtree(path) if os.path.isdir(path) and not os.path.islink(path) else os.unlink(path)
        shutil.rmtree(self.directory)


def attack(program, *args):
    return lambda place: place.attack(program, *args)


def with_file(program, mode, *more, data=bytes.fromhex('48ffc0ebfb').ljust(8192, b'\0')):
    return lambda place: place.attack(program, mode, place.file(mode, data), *more)


def with_folder(program, mode, *more):
    return lambda place: place.attack(program, mode, place.folder(mode), *more)


def runtime(mode, n=1):
    """Programs of runtimes.c, under the name of a Java virtual machine's library or of V8's program."""
    def start(place):
        path = os.path.join(place.folder(mode), 'libjvm.so' if mode.startswith('jvm') else 'node')
        shutil.copy(os.path.join(place.programs, 'runtimes'), path)
        for _ in range(n):
            place.run(path, mode)
    return start


def changing(mode, made_from, folder=False):
    """A mode of files.c that changes a copy of a program of objects.py."""
    def start(place):
        whole = objects.make(made_from, place.directory)[0]
        place.attack('files', mode, whole, place.folder(mode) if folder else place.file(mode))
    return start


def bound_map(place):
    """A root-only file over the name of the perf map, in a mount namespace of the user's."""
    secret = os.path.join(place.directory, 'secret')
    with open(secret, 'w') as f:
        f.write('10000 7fffffff0000 SECRET_of_root\n')
    os.chmod(secret, 0o600)
    place.run('sh', '-c', 'touch /tmp/perf-$$.map; exec unshare -Ur -m sh -c "mount --bind %s /tmp/perf-$$.map && exec %s/generated plain"'
              % (secret, place.programs))


def debug_planted(place):
    """A debug directory of the user's that renames the honest program's functions, in a mount namespace of his own."""
    notes = subprocess.run(['readelf', '-n', place.honest], capture_output=True, text=True, check=True).stdout
    build_id = notes.split('Build ID: ')[1].split()[0]
    where = place.folder('debug') + '/.build-id/' + build_id[:2]
    os.makedirs(where)
    subprocess.run(['objcopy', *('--redefine-sym=%s=evil_%s' % (n, n) for n in ('known_a', 'known_b', 'known_leaf', 'known_compare', 'main')),
                    place.honest, where + '/' + build_id[2:] + '.debug'], check=True)
    place.run('unshare', '-Ur', '-m', 'sh', '-c', 'mount --bind %s/debug %s && echo ready && exec %s'
              % (place.directory, '/usr/lib/debug' if os.path.isdir('/usr/lib/debug') else '/usr/lib', place.honest))


def namespaces(place):
    """Programs below 30 user and pid namespaces, whose process ids are all small."""
    place.run(*['unshare', '-Urpf'] * 30, 'sh', '-c', 'echo ready; while :; do sh -c :; done')


def silent_code(place):
    place.silent(place.folder('silent-code'))


def silent_overlay(place):
    place.silent(place.folder('silent-overlay'), how=['--overlay'])


def silent_list(place):
    place.silent(place.folder('silent-list'), os.path.join(place.programs, 'generated'), 'list-in')


def silent_tmp(place):
    """Where its perf map would be, nothing answers."""
    place.silent('/tmp', os.path.join(place.programs, 'generated'), 'beside')


def silent_tmp_link(place):
    """The same in another root directory, in which /tmp is a link to an overlay over such a file system."""
    script = '''mount -t tmpfs none "$2" && cd "$2" && for d in bin dev lib lib64 proc usr var; do
        if [ -L "/$d" ]; then cp -P "/$d" .; else mkdir "$d" && mount --rbind "/$d" "$d"; fi || exit
    done && ln -s "${3%/*}" tmp && exec chroot . "$1" beside "$3"'''
    place.silent(place.folder('silent-tmp-link'), '/bin/sh', '-c', script, 'sh', os.path.join(place.programs, 'generated'),
                 place.folder('silent-root'), how=['--overlay'])


def spinners(place):
    for _ in range(100):
        place.run('sh', '-c', 'while :; do :; done', wait=False)


# ---- the machine -----------------------------------------------------------------------------------------
def stop_capture(place, child, capture):
    """Nobody reads the rings for a while."""
    time.sleep(1)  # sampling begins last
    os.kill(capture, signal.SIGSTOP)
    time.sleep(1.5)
    os.kill(capture, signal.SIGCONT)


def nothing(place):
    """Only the machine is hostile."""


def full_disk(*command):
    """record on a file system of 64 KiB, of which its capture file needs more."""
    return ['unshare', '-m', '--propagation', 'private', 'sh', '-c', 'mount -t tmpfs -o size=64k none /mnt && exec "$@"', 'sh']


OBJECT_GROUPS = (
    ('call frames', 'cfa-loop cfa-long cfa-stack cfa-same remember-pairs remember-deep cie-bomb cie-chain augmentation-long augmentation-wild '
                    'entry-lengths fde-overlap fde-rows hdr-count'),
    ('bombs', 'frame-hole frame-holes zlib-bombs zstd-bomb xz-bomb compressed-lies'),
    ('headers and names', 'sections-wrap sections-overlap sections-many headers-many file-huge notes-endless symbols-hole symbols-many name-long '
                          'name-suffixes name-open names-mangled names-control go-counts go-functions dwarf-bomb dwarf-nested dwarf-lines '
                          'link-hole link-fifo id-twice id-libc interpreter'),
)
CASES = [Case(name, objects.OBJECTS[name].__doc__, lambda place, name=name: place.object(name), group)
         for group, names in OBJECT_GROUPS for name in names.split()]
CASES += [
    # ---- files
    Case('lease', 'a file with a lease: whoever opens it waits', with_file('files', 'lease'), 'files'),
    Case('file-truncated', 'a file that is cut short and made whole while it is read', changing('truncated', 'remember-pairs'), 'files'),
    Case('file-rewritten', 'a file whose headers and sections change while it is read', changing('rewritten', 'names-mangled'), 'files'),
    Case('file-replaced', 'FIFOs, links to a device and directories in place of mapped files', changing('replaced', 'hdr-count', True), 'files'),
    Case('files-deleted', 'ever new files with names of 4,000 bytes, deleted at once', with_folder('files', 'deleted'), 'files'),
    Case('files-many', '20,000 files, each mapped for a moment', with_folder('files', 'many', '20000'), 'files'),
    Case('file-memory', 'a program without a path, with a hostile name', lambda p: p.attack('files', 'memory', p.honest), 'files'),
    Case('device', 'code in a mapping of a device', attack('files', 'device'), 'files'),
    Case('fuse-code', 'code on a file system that does not answer', silent_code, 'files'),
    Case('fuse-overlay', 'code on an overlay over such a file system, in a user namespace', silent_overlay, 'files'),
    Case('fuse-list', 'a list of generated code in memory that does not answer', silent_list),
    Case('fuse-tmp', '/tmp of the process does not answer', silent_tmp),
    Case('fuse-tmp-link', '/tmp of the process is a link to what does not answer', silent_tmp_link),
    Case('debug-planted', 'a debug directory that renames the honest program', debug_planted, 'files'),
    Case('mounts-many', '20,000 mounts in 5 namespaces, files on detached file systems', with_folder('mounts', 'many', '20000', '5')),
    Case('mounts-stacked', '1,000 mounts on one place', with_folder('mounts', 'stacked', '1000'), 'files'),
    # ---- mappings
    Case('maps-many', '65,000 mappings', with_file('mappings', 'many', '0'), 'mappings'),
    Case('maps-inherited', '65,000 mappings, and 30 children with as many', with_file('mappings', 'many', '30')),
    Case('maps-forked', 'a process of 65,000 mappings that forks all the time', with_file('mappings', 'many-forks'), 'mappings'),
    Case('maps-flood', 'a file that is mapped and unmapped without pause', with_file('mappings', 'flood'), 'mappings'),
    Case('maps-one-more', 'as many mappings as a process can have, and one more before each sample', with_file('mappings', 'one-more')),
    Case('maps-come-and-go', '60,000 mappings made and dropped at once', with_file('mappings', 'come-and-go')),
    Case('maps-offsets', 'code at 8,000 offsets of a sparse file without headers', with_file('mappings', 'offsets'), 'mappings'),
    Case('maps-protections', 'pages that become executable and not, one by one', attack('mappings', 'protections')),
    # ---- generated code
    Case('map-link', 'a perf map that is a link to a secret', attack('generated', 'planted', '/etc/shadow'), 'generated'),
    Case('map-device', 'a perf map that is /dev/zero', attack('generated', 'planted', '/dev/zero'), 'generated'),
    Case('map-fifo', 'a perf map that is a FIFO', attack('generated', 'planted', 'fifo'), 'generated'),
    Case('map-hole', 'a perf map of 10 GB without contents', attack('generated', 'planted', 'hole'), 'generated'),
    Case('map-long', 'a perf map of 60 MB', attack('generated', 'map-long')),
    Case('map-grows', 'a perf map that grows without pause', attack('generated', 'map-grows'), 'generated'),
    Case('map-bound', 'a root-only file mounted over the perf map', bound_map, 'generated'),
    Case('dump-moves', 'a jitdump file with 300,000 moves', with_folder('generated', 'moves'), 'generated'),
    Case('dump-records', 'a jitdump file with 16 million records', with_folder('generated', 'records')),
    Case('dump-lies', 'a jitdump file of 7 TB with records of 4 GB', with_folder('generated', 'lies'), 'generated'),
    Case('list-circle', 'registered code in a list that runs in a circle', attack('generated', 'list-circle'), 'generated'),
    Case('list-long', '60,000 registered files', attack('generated', 'list-long'), 'generated'),
    Case('list-churn', 'code that is registered and unregistered all the time', attack('generated', 'list-churn'), 'generated'),
    Case('code-churn', 'ever new code at ever new addresses, all in a perf map', attack('generated', 'churn'), 'generated'),
    # ---- structures of runtimes
    Case('jvm-circle', 'a heap of Java code and methods that lead back to themselves', runtime('jvm-circle'), 'java'),
    Case('jvm-wild', "a Java virtual machine's pointers that lead nowhere", runtime('jvm-wild'), 'java'),
    Case('jvm-huge', '2^32 heaps of 2^62 bytes of Java code, and tables without an end', runtime('jvm-huge'), 'java'),
    Case('jvm-names', '16,384 Java methods with names of 64 KB', runtime('jvm-names'), 'java'),
    Case('jvm-overlap', '4,096 pieces of Java code that overlap', runtime('jvm-overlap'), 'java'),
    Case('jvm-changing', 'a Java virtual machine that changes while it is read', runtime('jvm-changing'), 'java'),
    Case('jvm-many', '12 forged Java virtual machines', runtime('jvm-huge', 12)),
    Case('v8-circle', 'JavaScript texts that consist of themselves', runtime('v8-circle'), 'v8'),
    Case('v8-wild', "V8's objects that lead nowhere", runtime('v8-wild'), 'v8'),
    Case('v8-huge', '4,096 scripts of 2^31 lines', runtime('v8-huge'), 'v8'),
    Case('v8-search', 'a stack whose words are all frames, before code that has no beginning', runtime('v8-search'), 'v8'),
    Case('v8-changing', "V8's objects that change while they are read", runtime('v8-changing'), 'v8'),
    Case('v8-many', '12 forged V8s', runtime('v8-huge', 12)),
    # ---- processes
    Case('forks', 'a fork storm', attack('storms', 'forks'), 'storms'),
    Case('execs', 'an exec storm', attack('storms', 'execs'), 'storms'),
    Case('execs-itself', 'a process that executes itself again and again', attack('storms', 'execs-itself', 'first'), 'storms'),
    Case('exec-in-thread', 'executions while other threads compute', attack('storms', 'exec-in-thread', 'first')),
    Case('vforks', 'children in the memory of their parent', attack('storms', 'vforks')),
    Case('threads', 'a storm of threads', attack('storms', 'threads')),
    Case('threads-many', '2,000 threads', attack('storms', 'threads-many', '2000')),
    Case('renames', 'a thread that renames itself without pause', attack('storms', 'names')),
    Case('renames-evil', 'names with control bytes, terminal sequences and markup', attack('storms', 'names-evil'), 'storms'),
    Case('kills', 'processes that are killed while they are sampled', attack('storms', 'kills'), 'storms'),
    Case('pid-reuse', 'process ids that come back', attack('storms', 'reuse')),
    Case('namespaces', 'processes below 30 user and pid namespaces', namespaces, 'storms'),
    Case('spinners', '100 programs that compute', spinners, late=40),  # which leave it one part of 50 of the CPUs
    # ---- stacks
    Case('stack-rewritten', 'frames that another thread writes over', attack('stacks', 'rewritten'), 'stacks'),
    Case('stack-circle', 'frame pointers in a circle', attack('stacks', 'circle'), 'stacks'),
    Case('stack-elsewhere', 'a stack pointer in code, and where nothing is', attack('stacks', 'elsewhere'), 'stacks'),
    Case('stack-deep', '8 stacks of 8 MB', attack('stacks', 'deep'), 'stacks'),
    Case('stack-vanishing', 'a stack that is unmapped while it is copied', attack('stacks', 'vanishing'), 'stacks'),
    Case('stack-signals', 'nested signals whose contexts are written over', attack('stacks', 'signals'), 'stacks'),
    Case('stack-thread-pointer', 'a thread pointer that leads in a circle', attack('stacks', 'thread-pointer'), 'stacks'),
    # ---- the machine
    Case('disk-full', 'no room for the capture file', nothing, options=('--raw=/mnt/x.owc',), before=full_disk(), code=1, alone=True,
         says='No space left'),
    Case('clock-steps', 'a clock that jumps by an hour, back and forth', nothing, env={'LD_PRELOAD': '{programs}/clock_steps.so'}, alone=True),
    Case('ring-full', 'nobody reads the ring for 1.5 s, and it overflows', attack('stacks', 'deep'), options=('-m', '4M'), during=stop_capture,
         loses=True, alone=True),
    Case('memory-short', '256 MB of memory for each process', lambda p: (p.object('cie-bomb'), p.object('zlib-bombs'), p.object('symbols-many')),
         before=('prlimit', '--data=%d' % (256 << 20)), alone=True),
    Case('descriptors-short', '200 descriptors for each process', with_folder('files', 'many', '20000'), before=('prlimit', '--nofile=200:200'),
         alone=True),
]
