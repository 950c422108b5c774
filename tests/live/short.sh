#!/usr/bin/env bash
# Tests processes that live for a moment, programs that are deleted when they start or replaced
# while they run, files in memory, in mount namespaces and on overlays: nearly every sample has its
# mapping, its build-id and its function's name, and its whole stack.
set -u
cd "$(dirname "$0")/../.." || exit 1
BUILD=${BUILD:-build}
offwind=$PWD/$BUILD/offwind
[ "$(id -u)" = 0 ] || { echo "needs root"; exit 77; }
[ -n "${BUILD_ONLY:-}" ] || "$offwind" doctor >/dev/null 2>&1 || [ $? = 3 ] || { echo "live recording does not work here; see offwind doctor"; exit 77; }
dir=$(mktemp -d)
trap 'kill $(jobs -p) 2>/dev/null; rm -rf "$dir"' EXIT

# Use US microseconds of CPU time in a function that is named after the program's kind.
cat >"$dir/short.c" <<'C'
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
__attribute__((noinline)) void burn_here(long us)
{
	struct timespec now;
	long until = -1;

	do {
		for (volatile int i = 0; i < 1000; i++)
			;
		clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
		if (until < 0)
			until = now.tv_nsec / 1000 + us;
	} while (now.tv_sec * 1000000 + now.tv_nsec / 1000 < until);
}
int main(int argc, char **argv)
{
	const long ms = argc > 2 ? atol(argv[2]) : 0;
	const struct timespec rest = { .tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000 };

	burn_here(argc > 1 ? atol(argv[1]) : 0);
	return argc > 2 ? nanosleep(&rest, 0) : 0;
}
C
id() { head -c 20 /dev/urandom | od -An -tx1 | tr -d ' \n'; }
build() { # DIRECTORY: build the programs in it
	gcc -O1 -o "$1/dynamic" "$dir/short.c" -Wl,--build-id=0x00112233445566778899aabbccddeeff01020304 || exit 1
	gcc -O1 -static -o "$1/static" "$dir/short.c" -Wl,--build-id=0x00112233445566778899aabbccddeeff01020304 || exit 1
	gcc -O1 -static-pie -o "$1/static_pie" "$dir/short.c" -Wl,--build-id=0x00112233445566778899aabbccddeeff01020304 || exit 1
}
# A machine without a compiler gets them from another machine.
if [ -n "${BUILD_ONLY:-}" ]; then
	build "$BUILD_ONLY"
	exit
elif [ -n "${PREBUILT:-}" ]; then
	cp "$PREBUILT"/short/* "$dir" || exit 1
else
	build "$dir"
fi

# Run them all: every copy has a build-id of its own, so that none can replace another.
cat >"$dir/drive.py" <<'PY'
import ctypes, os, signal, subprocess, sys, time
folder, count = sys.argv[1], int(sys.argv[2])
# How long programs live that are the only way to their file; times SLOW on an emulated machine.
slow = int(os.environ.get('SLOW', 1))
rest = str(600 * slow)
start = 0.005 if slow == 1 else 0.1 * slow # until a program has begun
old = bytes.fromhex('00112233445566778899aabbccddeeff01020304')
programs = {kind: open(f'{folder}/{kind}', 'rb').read() for kind in ('dynamic', 'static', 'static_pie')}
libc = ctypes.CDLL(None, use_errno=True)
def copy(kind, name):
    path = f'{folder}/{name}'
    assert programs[kind].count(old) == 1
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o755)
    os.write(fd, programs[kind].replace(old, os.urandom(20)))
    os.close(fd)
    return path
# Written again in place at the end: the same inode then has another program.
rewritten = copy('dynamic', 'rewritten')
subprocess.run([rewritten, '60000'])
for i in range(count):
    for us in ('0', '2000', '10000'):
        kind = ('dynamic', 'static', 'static_pie')[i % 3]
        kept = copy(kind, f'kept_{us}_{i}')
        subprocess.run([kept, us])
        gone = copy(kind, f'gone_{us}_{i}')
        process = subprocess.Popen([gone, us])
        os.unlink(gone)
        process.wait()
running = []
for i in range(6):
    # Replaced while it runs: the running program has the old file.
    name = f'replaced_{i}'
    path = copy('dynamic', name)
    running.append(subprocess.Popen([path, '60000']))
    os.rename(copy('dynamic', name + '.new'), path)
    # In memory.
    fd = os.memfd_create(f'memory_{i}', os.MFD_CLOEXEC)
    os.write(fd, programs['static'].replace(old, os.urandom(20)))
    running.append(subprocess.Popen([f'/proc/self/fd/{fd}', '60000', rest], pass_fds=(fd,)))
    os.close(fd)
    # On a file system in a mount namespace of its own: as for two containers.
    inner = copy('dynamic', f'inner_{i}')
    os.makedirs(f'{folder}/ns', exist_ok=True)
    running.append(subprocess.Popen(['unshare', '-m', 'sh', '-c', f'mount -t tmpfs none {folder}/ns && '
                   f'cp {inner} {folder}/ns/in_namespace_{i} && exec {folder}/ns/in_namespace_{i} 60000 {rest}']))
for process in running:
    process.wait()
# As in containers: layers that exist only in their mount namespace, all of which is gone at the end.
# On one file system, and with layers on two.
for where in 'one', 'two':
    layer = f'{folder}/layer_{where}'
    os.makedirs(layer)
    names = []
    for i in range(15):
        kind = ('dynamic', 'static', 'static_pie')[i % 3]
        names += [f'overlay_kept_{where}_{i}', f'overlay_gone_{where}_{i}']
        copy(kind, f'layer_{where}/{names[-2]}')
        copy(kind, f'layer_{where}/{names[-1]}')
    subprocess.run(['unshare', '-m', 'sh', '-ec', f'''
        mkdir -p {folder}/ov; mount -t tmpfs none {folder}/ov; cd {folder}/ov; mkdir upper work merged lower
        layer={layer}; [ {where} = two ] || {{ cp {layer}/* lower; layer=lower; }}
        mount -t overlay overlay -o lowerdir=$layer,upperdir=upper,workdir=work merged
        merged/overlay_kept_{where}_0 0 {rest}
        for i in $(seq 14); do
            merged/overlay_kept_{where}_$i 2000
            # Only its directory entry is removed, or it is copied up first.
            [ $((i % 2)) = 0 ] || touch merged/overlay_gone_{where}_$i
            merged/overlay_gone_{where}_$i 10000 & sleep {start}; rm merged/overlay_gone_{where}_$i; wait
        done'''])
# The only way to their file has gone before the worker knows of them: it stands still meanwhile. A file is held for three
# seconds, so what took long on a busy machine does not count.
def read(path):
    with open(path) as file:
        return file.read()
parent = os.getppid()
workers = [int(pid) for pid in read(f'/proc/{parent}/task/{parent}/children').split()
           if read(f'/proc/{pid}/comm').strip() == 'offwind-worker'] if slow == 1 else []
def run_unseen(name):
    inner = copy('dynamic', f'for_{name}')
    began = time.monotonic()
    for pid in workers:
        os.kill(pid, signal.SIGSTOP)
    try:
        subprocess.run(['unshare', '-m', 'sh', '-c', f'mount -t tmpfs none {folder}/ns && cp {inner} {folder}/ns/{name} && exec {folder}/ns/{name} 60000'])
    finally:
        for pid in workers:
            os.kill(pid, signal.SIGCONT)
    return time.monotonic() - began < 0.5
with open(f'{folder}/not_held', 'w') as not_held:
    n = 0
    for i in range(6, 16):
        if run_unseen(f'in_namespace_{i}'):
            n += 1
        else:
            print(f'in_namespace_{i}', file=not_held)
        if n == 2:
            break
with open(rewritten, 'r+b') as file:
    file.write(programs['dynamic'].replace(old, os.urandom(20)))
subprocess.run([rewritten, '60000'])
PY
# Unwind during the recording: when the programs are gone, they cannot be named any more.
"$offwind" record -F "${HZ:-4999}" -o "$dir/short.pb.gz" -v --stats "$dir/stats" -- python3 "$dir/drive.py" "$dir" "${ROUNDS:-30}" >/dev/null 2>"$dir/log" || { cat "$dir/log"; exit 1; }
"$offwind" report --check "$dir/short.pb.gz" >/dev/null || { echo "the profile is not sound"; exit 1; }
go tool pprof -raw -sample_index=samples "$dir/short.pb.gz" 2>/dev/null >"$dir/raw" || { echo "go tool pprof"; exit 1; }
python3 - "$dir/raw" "$dir/log" "$dir/not_held" <<'PY'
import collections, os, re, sys
# On an emulated machine, reading a file may take longer than a recording waits for it. A message then says so; the
# frames of this file have no names, but they have a mapping and a build-id like all others.
late = set()
if int(os.environ.get('SLOW', 1)) > 1:
    late = {m[1] for m in re.finditer(r'^offwind: (?:\w+: )?(/.*?): .*takes too long', open(sys.argv[2], errors='replace').read(), re.M)}
not_held = set(open(sys.argv[3]).read().split())
section, samples, locations, mappings = None, [], {}, {}
for line in open(sys.argv[1], errors='replace'):
    line = line.rstrip('\n')
    if line in ('Locations', 'Mappings'):
        section = line
    elif line.startswith('Samples:'):
        section = 'Samples'
    elif section == 'Samples':
        m = re.match(r' +(\d+) +\d+: ([\d ]*)$', line)
        if m:
            samples.append([int(m[1]), [int(x) for x in m[2].split()], ''])
        elif samples:
            samples[-1][2] += line
    elif section == 'Locations':
        m = re.match(r' +(\d+): 0x[0-9a-f]+ (?:M=(\d+) )?(.*?) \S*:\d+ s=\d+$', line)
        if m:
            locations[int(m[1])] = (int(m[2] or 0), m[3])
    elif section == 'Mappings':
        m = re.match(r'(\d+): 0x[0-9a-f]+/0x[0-9a-f]+/0x[0-9a-f]+ (\S+) *([0-9a-f]*)', line)
        if m:
            mappings[int(m[1])] = (m[2], m[3])
good, all_, whole, why = collections.Counter(), collections.Counter(), collections.Counter(), collections.defaultdict(collections.Counter)
for n, ids, labels in samples:
    comm = re.search(r'comm:\[([^\]]*)\]', labels)
    kind = re.match(r'(kept|gone)_(0|2000|10000)_|overlay_(kept|gone)|(replaced|in_namespace|memory|inner)', comm[1] if comm else '')
    # fexecve of /proc/self/fd/N has the name N.
    kind = kind[0].rstrip('_') if kind else 'memory' if comm and comm[1].isdigit() else None
    if not kind or not ids or comm[1] in not_held:
        continue
    user = [locations[i] for i in ids if mappings.get(locations[i][0], ('[unknown]',))[0] != '[kernel]']
    if not user:
        continue
    all_[kind] += n
    # A stack that ends at its root has no such label.
    whole[kind] += 0 if re.search(r'\bstop:\[', labels) else n
    bad = [f'{what} in {mappings.get(mapping, ("no mapping", ""))[0]}' for mapping, what in user
           if mapping not in mappings or not mappings[mapping][1] or
           (re.search(r'/(overlay_|kept|gone|replaced|in_namespace|inner)|memfd', mappings[mapping][0]) and
            mappings[mapping][0] not in late and
            re.search(r'(?<!^\*ABS\*)\+0x|^\[|\[unknown', what))] # *ABS*+0x…@plt is a name
    if bad:
        why[kind][bad[0]] += n
    else:
        good[kind] += n
failed = False
ids = {build_id for path, build_id in mappings.values() if path.endswith('/rewritten')}
if len(ids) != 2:
    print(f'FAIL: written anew in place: build-ids {ids}, not two')
    failed = True
for kind in sorted(all_):
    share = good[kind] / all_[kind]
    print(f'{kind}: {good[kind]} of {all_[kind]} samples have mappings, build-ids and names', *why[kind].most_common(3))
for group in ('kept', 'gone', 'replaced', 'memory', 'in_namespace', 'overlay_kept', 'overlay_gone'):
    total = sum(n for k, n in all_.items() if k.startswith(group))
    fine = sum(n for k, n in good.items() if k.startswith(group))
    ended = sum(n for k, n in whole.items() if k.startswith(group))
    print(f'{group}: {ended} of {total} stacks are whole')
    if total < 50 or fine < 0.99 * total or ended < 0.95 * total:
        print(f'FAIL: {group}: {fine} of {total}, {ended} whole')
        failed = True
if late:
    print(len(late), 'files took too long to read:', *sorted(late)[:3])
sys.exit(failed)
PY
rc=$?
[ $rc = 0 ] || sed -nE 's/^.*: (.*too long)/\1/p' "$dir/log" | sort | uniq -c
[ $rc = 0 ] || grep -v "fired\|captured" "$dir/log" | head -n 20
exit $rc
