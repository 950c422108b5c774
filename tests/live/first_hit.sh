#!/usr/bin/env bash
# Tests that the first hit of a probe in a process's first millisecond has its whole stack, with names: in a file that nothing
# ran before, which is deleted while it runs, and in one that is run again and again.
set -u
. "$(dirname "$0")/../recorder.sh"

cat >"$dir/first.c" <<'C'
#include <stdio.h>
#include <time.h>
#include <unistd.h>
/* Say how much CPU time the process has had until the probe was hit, in microseconds. */
__attribute__((noinline)) static int inner(void)
{
	int parent = getppid();
	struct timespec now;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
	return printf("%ld\n", now.tv_sec * 1000000 + now.tv_nsec / 1000) + (parent == 0);
}
__attribute__((noinline)) static int middle(void)
{
	return inner() + 1;
}
__attribute__((noinline)) static int outer(void)
{
	return middle() + 1;
}
int main(void)
{
	return outer() == 0;
}
C
${CC:-gcc} -O1 -fno-optimize-sibling-calls -o "$dir/first" "$dir/first.c" -Wl,--build-id=0x00112233445566778899aabbccddeeff01020304 || exit 1
cat >"$dir/drive.py" <<'PY'
import os, subprocess, sys
folder, count = sys.argv[1], int(sys.argv[2])
program = open(f'{folder}/first', 'rb').read()
old = bytes.fromhex('00112233445566778899aabbccddeeff01020304')
assert program.count(old) == 1
times = []
for i in range(count):
    path = f'{folder}/first_{i}' # a file that has a build-id of its own, and nothing has run
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o755)
    os.write(fd, program.replace(old, os.urandom(20)))
    os.close(fd)
    for one, gone in (path, True), (f'{folder}/first', False):
        process = subprocess.Popen([one], stdout=subprocess.PIPE)
        if gone:
            os.unlink(one)
        times.append(int(process.communicate()[0]))
times.sort()
print(len(times), 'hits after', times[0], times[len(times) // 2], times[-1], 'us of CPU time', file=sys.stderr)
sys.exit(times[len(times) // 2] > max(1500, 3 * int(sys.argv[3])))
PY
libc=$(ldd "$dir/first" | sed -nE 's/.*libc\.so\.6 => (\S+).*/\1/p')
count=${COUNT:-60}
# How long that takes on this machine without a probe.
usual=$(for _ in 1 2 3 4 5 6 7 8 9 10 11; do "$dir/first"; done | sort -n | sed -n 6p)
"$offwind" record --uprobe "$libc:getppid" -o "$dir/p.pb.gz" -- python3 "$dir/drive.py" "$dir" "$count" "$usual" 2>"$dir/log" || fail "$(cat "$dir/log")"
grep ' hits after ' "$dir/log"
"$offwind" report --check "$dir/p.pb.gz" >/dev/null || fail "the profile is not sound"
"$offwind" report -f folded --sample-type samples -o "$dir/folded" "$dir/p.pb.gz" || fail "folded"
python3 - "$dir/folded" "$count" <<'PY' || fail "the stacks: $(cat "$dir/log")"
import collections, re, sys
whole = collections.Counter()
for line in open(sys.argv[1], errors='replace'):
    stack, _, n = line.rpartition(' ')
    frames = stack.split(';')
    if not frames[0].startswith('first'):
        continue
    names = [re.sub(r'^_*(getppid)$', r'\1', one) for one in frames]
    good = names[-5:] == ['main', 'outer', 'middle', 'inner', 'getppid'] and any('_start' in one for one in names[:-5])
    whole[frames[0] == 'first', good] += int(n)
    if not good:
        print(stack)
print(whole)
assert whole[True, True] == whole[False, True] == int(sys.argv[2]) and sum(whole.values()) == 2 * int(sys.argv[2])
PY
[ $failures = 0 ] || { echo "$failures failures"; exit 1; }
