#!/usr/bin/env bash
# Tests what is recorded of which threads: each filter lets through what was asked for and nothing
# else, every event counts what its name says, and the accounting adds up on every CPU.
set -u
. "$(dirname "$0")/../recorder.sh"
. tests/wait.sh
target=$PWD/$BUILD/tests/live/target
chmod 755 "$dir"
group=
cleanup() {
	kill -9 $(jobs -p) 2>/dev/null
	wait 2>/dev/null
	[ -z "$group" ] || find "$group" -depth -type d -exec rmdir {} + 2>/dev/null
	umount "$dir/cgroup" 2>/dev/null
	rm -rf "$dir"
}
trap cleanup EXIT

# Print every number of events by their outcome, for each CPU and in total.
cat >"$dir/accounts.py" <<'PY'
import json, sys
stats = json.load(open(sys.argv[1]))
def rest(o):
    return (sum(o['filtered'].values()) + sum(o['lost'].values()) + o['waiting'] +
            sum(o['unwound'].values()) + o.get('written', 0))
for o in stats['cpus'] + [stats['total']]:
    assert o['fired'] == rest(o), (o['fired'], rest(o), o)
    assert o['waiting'] == 0, o
for key in ('fired',):
    assert stats['total'][key] == sum(o[key] for o in stats['cpus'])
for key in ('filtered', 'lost', 'unwound', 'captured'):
    for what, n in stats['total'][key].items():
        assert n == sum(o[key][what] for o in stats['cpus']), (key, what)
print(stats['total']['fired'], 'fired on', len(stats['cpus']), 'CPUs')
PY
accounts() { python3 "$dir/accounts.py" "$dir/stats.json" >"$dir/py" 2>&1 || fail "$1: the accounts: $(cat "$dir/py")"; }

# Write "pid/tid cpu comm" of each sample in a capture file to $dir/who.
list() { # FILE
	local rc
	rm -f "$dir/text"
	"$offwind" unwind -q --format text --no-inline -o "$dir/text" "$1"
	rc=$?
	# "NAME PID/TID [CPU] TIME: …", where the name may have blanks
	sed -nE 's#^([^\t\# ].*) +([0-9]+/[0-9]+) +\[([0-9]+)\] .*#\2 \3 \1#p' "$dir/text" >"$dir/who"
	return $rc
}

# Record with these options, longer each time, until there are samples, and list them.
who() {
	local ms
	for ms in 500 1000 2000 4000 8000; do
		"$offwind" record -F 997 -d ${ms}ms --raw -o "$dir/who.owc" --stats "$dir/stats.json" "$@" 2>"$dir/log" || grep -q 'no samples were recorded' "$dir/log" ||
			{ fail "record $*: $(cat "$dir/log")"; : >"$dir/who"; return; }
		list "$dir/who.owc" || fail "unwind of $*"
		accounts "$*"
		[ "$(wc -l <"$dir/who")" -lt 20 ] || return
	done
}

# Record with these options, longer each time, until the profile as text has all these; it is in $dir/raw.
until_has() { # REGEX… -- option…
	local ms wanted=()
	while [ "$1" != -- ]; do wanted+=("$1"); shift; done
	shift
	for ms in 500 2000 8000; do
		"$offwind" record -F 997 -d ${ms}ms -o "$dir/c.pb.gz" "$@" 2>"$dir/log" || grep -q 'no samples were recorded' "$dir/log" || break
		go tool pprof -raw "$dir/c.pb.gz" 2>/dev/null | grep -v Comment: >"$dir/raw"
		has_all "${wanted[@]}" && return
	done
	false
}
has_all() { # REGEX…
	local one
	for one; do grep -q -e "$one" "$dir/raw" || return; done
}

# Check that only what matches the pattern was recorded.
only() {
	local pattern=$1 mine others
	mine=$(grep -cE "$pattern" "$dir/who")
	others=$(grep -vcE "$pattern" "$dir/who")
	[ "$mine" -ge 5 ] && [ "$others" = 0 ] || fail "$2: $mine of those asked for, $others others: $(sort "$dir/who" | uniq -c | head -n 5)"
}

# A user who runs nothing else: nobody runs offwind in other tests, as somebody without rights.
user=games user_id=$(id -u games) || exit 1
install -m 755 "$target" "$dir/owc spinner"
install -m 755 "$target" "$dir/target" # other users may be unable to enter the source tree
"$dir/owc spinner" spin >/dev/null & plain=$!
setpriv --reuid "$user_id" --regid "$user_id" --clear-groups "$dir/target" spin >/dev/null 2>&1 & other=$!
"$target" thread >/dev/null & threads=$!
until_or_dead $threads has_threads $threads 2 || exit 1
tid=$(ls /proc/$threads/task | grep -vx $threads)

echo "== whom"
who -p $plain; only "^$plain/" "-p"
who -p "$tid"; only "^$threads/" "-p of a thread that is not the first"
who -t "$tid"; only "^$threads/$tid " "-t"
who --comm "owc spinner"; only " owc spinner *$" "--comm"
who -a --comm "owc spinner"; only " owc spinner *$" "-a with --comm"
who -u $user; only "^$other/" "-u NAME"
who -u "$user_id" -p $other,$plain; only "^$other/" "-u with -p: both must fit"
cpu=$(ps -o psr= -p $plain); cpu=$((cpu))
who -C $cpu; only "^[0-9]+/[0-9]+ 0*$cpu " "-C"

mount=$(awk '{ for (i = 1; i < NF; i++) if ($i == "-" && $(i + 1) == "cgroup2") { print $5; exit } }' /proc/self/mountinfo)
if [ -z "$mount" ]; then
	mkdir "$dir/cgroup" && mount -t cgroup2 none "$dir/cgroup" && mount=$dir/cgroup
fi
id=$(printf '%064x' $$)
uid=$(printf '%08x-0000-1111-2222-333344445555' $$)
has_samples() { list "$dir/later.owc" 2>"$dir/unended"; [ "$(wc -l <"$dir/who")" -ge 100 ]; } # while the file grows
# Record with these options, make the cgroup, and check that what moves there is recorded from then on.
later() { # cgroup option…
	local cgroup=$1 recording
	shift
	rm -f "$dir/later.owc"
	"$offwind" record -F 997 --raw -o "$dir/later.owc" --stats "$dir/stats.json" "$@" 2>"$dir/log" & recording=$!
	until_or_dead $recording [ -s "$dir/later.owc" ] || { fail "$*: $(cat "$dir/log")"; return; }
	mkdir -p "$cgroup" && echo $threads >"$cgroup/cgroup.procs"
	until_or_dead $recording has_samples || fail "$*: a new cgroup is not recorded"
	kill -INT $recording
	wait $recording || fail "$*: $(cat "$dir/log")"
	list "$dir/later.owc" || fail "$*: unwind"
	only "^$threads/" "$*, for a new cgroup"
	accounts "$*, for a new cgroup"
	echo $threads >"$mount/cgroup.procs"
	until [ "$cgroup" = "$group" ] || [ "$cgroup" = "$group/pod$uid" ]; do
		rmdir "$cgroup" || fail "$cgroup cannot be removed"
		cgroup=${cgroup%/*}
	done
}
if [ -n "$mount" ] && mkdir -p "$mount/offwind-$$.scope/inner" 2>"$dir/log"; then
	group=$mount/offwind-$$.scope
	mkdir "$group/docker-$id.scope" && echo $plain >"$group/docker-$id.scope/cgroup.procs" ||
		fail "a cgroup cannot be used"
	echo $other >"$group/inner/cgroup.procs"
	who --cgroup "/offwind-$$.scope"; only "^($plain|$other)/" "--cgroup with those below"
	who --cgroup "$group/inner"; only "^$other/" "--cgroup by where it is mounted"
	who --container "${id:0:62}"; [ -s "$dir/who" ] && only "^$plain/" "--container"
	who --unit "offwind-$$.scope"; only "^($plain|$other)/" "--unit with what is below it"
	python3 -c '
import json, sys
filtered = json.load(open(sys.argv[1]))["total"]["filtered"]
assert filtered["cgroup"] > 0 and not filtered["other"], filtered' "$dir/stats.json" || fail "what is in other cgroups is not counted"
	who --unit "offwind-$$.*" -u $user; only "^$other/" "--unit with a wildcard, and -u"
	mkdir "$group/pod$uid" && echo $threads >"$group/pod$uid/cgroup.procs" || fail "a cgroup cannot be used"
	who --pod "${uid:0:12}"; only "^$threads/" "--pod"
	# Cgroups that begin while it is recorded: below one that is selected, and a container.
	echo $threads >"$mount/cgroup.procs"
	later "$group/pod$uid/a/b/c" --pod "$uid"
	mkdir "$group/libpod-f${id:1}.scope"
	later "$group/libpod-f${id:1:62}x.scope/libpod-f${id:1:62}f.scope" --container "f${id:1:62}"
	rmdir "$group/pod$uid" "$group/libpod-f${id:1}.scope"
	until_has "cgroup:\[/offwind-$$.scope/docker-$id.scope\].*container_id:\[$id\]" "cgroup:\[/offwind-$$.scope/inner\]" -- --cgroup "/offwind-$$.scope" ||
		fail "no labels of both cgroups and the container: $(cat "$dir/log")"
	# As in a container, which has a cgroup namespace, and the hierarchy of the host as a volume.
	in_namespace() { unshare --cgroup "$real" "$@"; }
	(echo $BASHPID >"$group/inner/cgroup.procs" && real=$offwind offwind=in_namespace && until_has "cgroup:\[/offwind-$$.scope/docker-$id.scope\]" -- --cgroup "/offwind-$$.scope") ||
		fail "no label of the cgroup in a cgroup namespace: $(cat "$dir/log")"
	until_has "cgroup:\[/offwind-$$.scope/inner\]" -- -p $other || fail "no label of the cgroup with -p: $(cat "$dir/log")"
	echo $plain >"$mount/cgroup.procs"
	echo $other >"$mount/cgroup.procs"
	rmdir "$group/docker-$id.scope"
elif [ -n "$mount" ] && grep -q 'Read-only' "$dir/log"; then
	echo "left out: control groups cannot be made here"
else
	fail "no cgroup2 hierarchy: $(cat "$dir/log")"
fi

echo "== labels"
until_has "exe:\[$dir/target\].*host:\[$(uname -n)\].*user:\[$user\]" -- -p $other || fail "program, host and user: $(cat "$dir/log"; grep -m 3 pid "$dir/raw")"
"$offwind" report --by user "$dir/c.pb.gz" | grep -q " $user *\$" || fail "report --by user: $("$offwind" report --by user "$dir/c.pb.gz")"
until_has "user:\[$user_id\]" -- --raw="$dir/l.owc" -p $other || fail "a user's number beside a capture file: $(cat "$dir/log")"
"$offwind" unwind "$dir/l.owc" -o "$dir/l.pb.gz" 2>"$dir/log" && "$offwind" report --by user "$dir/l.pb.gz" | grep -q " $user_id *\$" || fail "a user's number in a capture file: $(cat "$dir/log")"
until_has "program:\[owc spinner\]" "pid:\[*$plain" -- -p $plain,$threads --drop-labels 'tid,thread,cgroup' --rename-labels comm:program || fail "labels: $(cat "$dir/log"; grep -m 5 pid "$dir/raw")"
grep -qE "tid:|thread:|comm:" "$dir/raw" && fail "dropped labels: $(grep -m 5 -E 'tid:|thread:|comm:' "$dir/raw")"
until_has "comm:" -- -p $plain --keep-labels 'comm' || fail "a label that is kept: $(cat "$dir/log"; grep -m 5 comm "$dir/raw")"
go tool pprof -tags "$dir/c.pb.gz" 2>/dev/null | grep -oE '^ *[a-z_]+:' | grep -vE 'comm:|stop:|confidence:|guessed:' && fail "labels that are not wanted"

echo "== mistakes are told"
for words in "-t 4194303" "-u no-such-user" "--comm a-name-that-is-too-long" "--cgroup /no/such" "--container ffffff" "--unit no-such" "--pod ffffff" \
	"-C x" "-e no-such-event" "-e sched:no_such" "-e cycles:z" "--uprobe nothing" "--uprobe /no/such:main" \
	"--uprobe $target:no_such_function" "-e cpu-clock -F 0" "--off-cpu=5x" "--stack-max 2M" "-a -p 1" "-a -t 1" "-a true" "-p 1 true" "--drop-labels none" "--keep-labels ," "--rename-labels pid"; do
	timeout 100 "$offwind" record -d 200 -o "$dir/x.pb.gz" $words 2>"$dir/log"
	rc=$?
	[ $rc = 1 ] || [ $rc = 2 ] && [ "$(wc -l <"$dir/log")" = 1 ] || fail "$words: exit $rc, $(cat "$dir/log")"
done

echo "== what"
kill -9 $plain $other $threads
wait $plain $other $threads 2>/dev/null
events() { # name, options…: how many samples of an event that is counted exactly
	local what=$1
	shift
	for _ in 1 2 3 4; do # what a busy machine loses is not counted
		"$offwind" record -o "$dir/e.pb.gz" --stats "$dir/stats.json" "$@" >/dev/null 2>"$dir/log" || fail "$what: $(cat "$dir/log")"
		grep -q 'samples were lost' "$dir/log" || break
	done
	"$offwind" report --check "$dir/e.pb.gz" >/dev/null || fail "$what: the profile is not sound"
	accounts "$what"
	n=$("$offwind" report -n 1 "$dir/e.pb.gz" | sed -n 's/^# \([0-9]*\) samples.*/\1/p')
}
events "a tracepoint" -e sched:sched_process_exec -- sh -c 'for i in 1 2 3 4 5 6 7; do /bin/true; done'
[ "$n" = 8 ] || fail "$n execs, not 8"
# The process that opens events may not mount then.
unshare -m sh -c 'umount -l /sys/kernel/debug/tracing; umount -l /sys/kernel/tracing; exec "$@"' sh \
	"$offwind" record -o "$dir/e.pb.gz" -e sched:sched_process_exec -- true >/dev/null 2>"$dir/log" || fail "tracefs is not mounted: $(cat "$dir/log")"
one=$(python3 -c 'import os; print(min(os.sched_getaffinity(0)))')
events "one of three" -e sched:sched_process_exec -c 3 -- taskset -c "$one" sh -c 'for i in $(seq 29); do /bin/true; done'
# Each CPU counts all events that happen on it, whichever program causes them; the last one or two of three wait for the
# third.
python3 - "$dir/stats.json" <<'PY' || fail "not each third"
import json, sys
for c in json.load(open(sys.argv[1]))['cpus']:
    assert c['fired'] - c['filtered']['period'] == c['fired'] // 3, c
PY
[ "$n" -ge 1 ] && [ "$n" -le 32 ] || fail "$n of 32 execs"
cat >"$dir/calls.c" <<'C'
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>
__attribute__((noinline)) int called(int n) { __asm__ volatile(""); return n + 1; }
int main(int argc, char **argv)
{
	int n = atoi(argv[1]), sum = 0;
	volatile char *pages;
	const struct timespec nap = { .tv_nsec = 50000000 };

	for (int i = 0; i < n; i++)
		sum += called(i);
	pages = mmap(NULL, (size_t)n * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	madvise((void *)pages, (size_t)n * 4096, MADV_NOHUGEPAGE);
	for (int i = 0; i < n; i++)
		pages[(size_t)i * 4096] = 1;
	for (int i = 0; i < 6; i++)
		nanosleep(&nap, NULL);
	return sum == argc;
}
C
gcc -O1 -o "$dir/calls" "$dir/calls.c" || fail "gcc"
events "a probe" --uprobe "$dir/calls:called" -- "$dir/calls" 1000
[ "$n" = 1000 ] || fail "$n calls, not 1000"
"$offwind" report -n 5 "$dir/e.pb.gz" | grep -qE '^ *100.00% .* calls +called$' || fail "the probe is not in the function called"
events "every tenth call" --uprobe "$dir/calls:called" -c 10 -- "$dir/calls" 1000
[ "$n" -ge $((100 - $(nproc))) ] && [ "$n" -le 100 ] || fail "$n of 1000 calls, not each tenth"
events "page faults" -e page-faults:u -c 1 -- "$dir/calls" 3000
[ "$n" -ge 3000 ] && [ "$n" -lt 4000 ] || fail "$n page faults, not 3000 and some"
events "two at once" -e page-faults,cpu-clock --uprobe "$dir/calls:called" -F 499 -- "$dir/calls" 500
go tool pprof -raw "$dir/e.pb.gz" 2>/dev/null | sed -n '/^Samples:/{n;p}' >"$dir/types"
sed -i 's/\[dflt\]//' "$dir/types"
grep -q 'page-faults/count cpu_samples/count cpu/nanoseconds called_samples/count called/count' "$dir/types" || fail "types: $(cat "$dir/types")"

echo "== waiting"
wall() { go tool pprof -top -sample_index="$1" -unit=ms "$dir/e.pb.gz" 2>/dev/null | sed -nE 's/.* of ([0-9.]+)ms total.*|.*Total samples = ([0-9.]+)ms.*/\1\2/p' | head -n 1; }
# A nap's timer begins before the thread leaves its CPU: if the machine stands still between the two, the nap is shorter.
for _ in 1 2 3; do
	began=$(date +%s%3N)
	events "off-cpu" --off-cpu -- "$dir/calls" 10
	most=$(($(date +%s%3N) - began))
	off=$(wall off_cpu); all=$(wall wall)
	# Six naps of 50 ms; a busy machine wakes it later, but in the time that the recording took.
	awk -v off="${off:-0}" -v all="${all:-0}" -v most="$most" 'BEGIN { exit !(off >= 300 && off < most && all >= off) }' && waited=yes && break
done
[ "${waited:-}" ] || fail "waited ${off:-?} ms, ${all:-?} in all, not 300 to $most"
go tool pprof -top -sample_index=off_cpu "$dir/e.pb.gz" 2>/dev/null | grep -q 'nanosleep' || fail "it does not say where it waits"
go tool pprof -top -sample_index=off_cpu "$dir/e.pb.gz" 2>/dev/null | grep -q 'bpf' && fail "it says what watches it"
for _ in 1 2 3; do
	events "off-cpu, long ones" --off-cpu=40ms -- "$dir/calls" 10
	n=$(go tool pprof -top -sample_index=off_cpu_samples -focus=nanosleep "$dir/e.pb.gz" 2>/dev/null | sed -nE 's/^Showing nodes accounting for ([0-9]+),.*/\1/p')
	[ "${n:-0}" != 6 ] || break
done
[ "${n:-0}" = 6 ] || fail "${n:-no} waits of 40 ms or more, not 6"

echo "== the number of a selected process that has ended, and was never sampled"
cat >"$dir/reborn.c" <<'C'
#define _GNU_SOURCE
#include <linux/sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
/* reborn PID: a child with this number computes until it is ended. */
int main(int argc, char **argv)
{
	pid_t pid = argc == 2 ? atoi(argv[1]) : 0, child;
	struct clone_args args = { .exit_signal = SIGCHLD, .set_tid = (uintptr_t)&pid, .set_tid_size = 1 };

	child = (pid_t)syscall(SYS_clone3, &args, sizeof(args));
	if (!child) {
		alarm(900);
		for (volatile unsigned long n = 0;; n++)
			;
	}
	if (child != pid) {
		perror("clone3");
		return 1;
	}
	return waitpid(child, NULL, 0) != child;
}
C
gcc -O1 -o "$dir/reborn" "$dir/reborn.c" || exit 1
bash -c 'sleep 1000; exec sleep 1000' & parent=$!
has_child() { child=$(pgrep -P $parent) && grep -q '^State:.S' "/proc/$child/status"; }
until_or_dead $parent has_child || exit 1
"$offwind" record -p $parent -F 499 --raw="$dir/reborn.owc" --stats "$dir/stats" -o "$dir/reborn.pb.gz" 2>"$dir/log" & recording=$!
until_or_dead $recording test -s "$dir/reborn.owc" || fail "$(cat "$dir/log")"
kill $child
is_reaped() { [ ! -e "/proc/$child" ]; }
until_or_dead $parent is_reaped || fail "the child stays"
"$dir/reborn" $child & reborn=$!
has_run() { [ "$(awk '{ print $14 }' "/proc/$child/stat" 2>/dev/null || echo 0)" -gt 100 ]; } # 1 s of CPU time
until_or_dead $reborn has_run || fail "no process got the number $child"
kill -INT $recording
wait $recording # 1: nothing was recorded
grep -q 'captured [0-9]* = ' "$dir/log" || fail "$(cat "$dir/log")"
kill -KILL $child
pkill -P $parent; kill $parent
[ "$("$offwind" report --json -n 0 --by stop --type samples "$dir/reborn.pb.gz" | grep -c no_mapping)" = 0 ] || fail "another process was recorded: $(cat "$dir/log")"

[ $failures = 0 ] || { echo "$failures failures"; exit 1; }
