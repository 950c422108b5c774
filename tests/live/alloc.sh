#!/usr/bin/env bash
# Tests offwind record --alloc: for a program with known allocations the figures are exact with
# every method of watching; with sampling, they are right within the error of sampling.
set -u
. "$(dirname "$0")/../recorder.sh"
. tests/wait.sh
trap 'kill $(jobs -p) 2>/dev/null; umount "$dir/root" 2>/dev/null; rm -rf "$dir"' EXIT

# "function objects bytes objects-in-use bytes-in-use" of each function of alloc.c.
functions() {
	for type in alloc_objects alloc_space inuse_objects inuse_space; do
		go tool pprof -top -cum -nodecount=10000 -nodefraction=0 -sample_index=$type -unit=B "$1" 2>/dev/null |
			awk -v type=$type '$2 ~ /%$/ { v = $4; sub(/B$/, "", v); n = $6; print n, type, v }'
	done | awk '{ v[$1, $2] = $3 } END { split("leak churn grow zeroed aligned mapped none handed", f)
		for (i = 1; i <= 8; i++) print f[i], v[f[i], "alloc_objects"] + 0, v[f[i], "alloc_space"] + 0,
			v[f[i], "inuse_objects"] + 0, v[f[i], "inuse_space"] + 0 }'
}

# From the table at the head of alloc.c.
expected() {
	cat <<-T
	leak 1000 100000 1000 100000
	churn $1 $(($1 * 64)) 0 0
	grow 100 5050000 1 100000
	zeroed 10 3000000 10 3000000
	aligned 27 20896 20 20000
	mapped 4 163840 3 114688
	none 1 0 1 0
	handed 50 25000 10 5000
	T
}

accounts() { # check fired = filtered + lost
	python3 - "$dir/stats.json" <<-'P' || fail "$1: not accounted for: $(cat "$dir/log")"
	import json, sys
	stats = json.load(open(sys.argv[1]))
	for c in [stats["total"]] + stats["cpus"]:
	    f, l, u = (sum(c[k].values()) for k in ("filtered", "lost", "unwound"))
	    assert c["fired"] == f + l + u + c["waiting"] and c["waiting"] == 0, c
	    assert l == 0 and c["frees"]["ring_full"] == 0 and c["frees"]["table_full"] == 0, c
	P
}

exact() { # name, options…
	local what=$1
	shift
	"$offwind" record --alloc=1 -m 64M --stats "$dir/stats.json" -o "$dir/a.pb.gz" "$@" 2>"$dir/log" >/dev/null || fail "$what: $(cat "$dir/log")"
	"$offwind" report --check "$dir/a.pb.gz" >/dev/null || fail "$what: the profile is not sound"
	accounts "$what"
	diff <(functions "$dir/a.pb.gz") <(expected 5000) >"$dir/diff" || fail "$what: $(cat "$dir/diff")"
}

gcc -O1 -fno-builtin -pthread -o "$dir/alloc" tests/live/alloc.c || fail gcc
gcc -O1 -fno-builtin -pthread -static -o "$dir/alloc-static" tests/live/alloc.c || fail "gcc -static"

echo "== every allocation of a command"
exact "a command" --raw="$dir/a.owc" -- "$dir/alloc"
grep -q 'failed 2' "$dir/log" || fail "two allocations failed: $(cat "$dir/log")"
go tool pprof -raw "$dir/a.pb.gz" 2>/dev/null | sed -n '/^Samples:/{n;p}' | grep -q 'alloc_objects/count alloc_space/bytes inuse_objects/count inuse_space/bytes' || fail "not a heap profile's types"
go tool pprof -raw "$dir/a.pb.gz" 2>/dev/null | grep -q '^PeriodType: space bytes' || fail "not a heap profile's period"
"$offwind" unwind -q -o "$dir/again.pb.gz" "$dir/a.owc" || fail unwind
cmp <(zcat "$dir/a.pb.gz") <(zcat "$dir/again.pb.gz") || fail "unwound again the profile is another"
grep -q 'unwound [0-9]* (root [0-9]*) + lost 0' "$dir/log" || fail "stacks are not whole: $(cat "$dir/log")"
OFFWIND_WITHOUT=uprobe_multi exact "probes one by one" -- "$dir/alloc"

echo "== a static program, and a running one in a mount namespace with a C library of its own"
exact "a static program" -- "$dir/alloc-static"
mkdir -p "$dir/root/lib64" "$dir/root/lib" || fail mkdir
for lib in $(ldd "$dir/alloc" | grep -o '/[^ ]*'); do
	mkdir -p "$dir/root$(dirname "$lib")"
	cp -L "$lib" "$dir/root$lib" || fail "cp $lib"
done
cp "$dir/alloc" "$dir/root/alloc"
# It exists before the recording begins, and continues when that has begun.
mkfifo "$dir/go"
exec 8<>"$dir/go"
unshare -m chroot "$dir/root" /alloc 5000 wait <&8 & pid=$!
until_or_dead $pid has_name $pid alloc || exit 1
{ until_or_dead $pid test -s "$dir/b.owc"; echo >&8; } &
exact "another C library" --raw="$dir/b.owc" -p $pid
echo >&8 # had the recording failed, both would wait for it
wait

echo "== breakpoints in the chosen process and its children, and in no other"
cat >"$dir/idle.c" <<'C'
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>
static void *volatile kept;
__attribute__((noinline)) static void in_child(void) { free(kept); kept = malloc(100); }
__attribute__((noinline)) static void not_yet(void) { free(kept); kept = malloc(100); }
/* Prints where malloc and free are.  With a byte from stdin two children and then it itself allocate: each prints its pid
   and allocates in not_yet until there is another byte, and then 500 times in in_child. */
int main(void)
{
	struct pollfd told = { .fd = 0, .events = POLLIN };
	char byte;
	printf("%p %p\n", (void *)malloc, (void *)free);
	fflush(stdout);
	if (read(0, &byte, 1) != 1)
		return 1;
	for (int i = 0; i < 2 && fork(); i++)
		wait(0);
	printf("%d\n", getpid());
	fflush(stdout);
	while (poll(&told, 1, 1) == 0)
		not_yet();
	if (read(0, &byte, 1) != 1)
		return 1;
	for (int i = 0; i < 500; i++, usleep(500))
		in_child();
	return 0;
}
C
gcc -O1 -fno-builtin -o "$dir/idle" "$dir/idle.c" || fail gcc
code() { # PID ADDRESS: the function's first bytes as they are in that process's memory
	python3 -c 'import sys; m = open(f"/proc/{sys.argv[1]}/mem", "rb"); m.seek(int(sys.argv[2], 16)); print(m.read(16).hex())' "$1" "$2"
}
for one in chosen other; do
	mkfifo "$dir/$one"
	"$dir/idle" <>"$dir/$one" >"$dir/$one.addr" &
	eval "$one=$!"
	until [ -s "$dir/$one.addr" ]; do kill -0 $! 2>/dev/null || { fail "idle ended"; break; }; sleep 0.05; done
done
read -r malloc free <"$dir/chosen.addr"
read -r other_malloc other_free <"$dir/other.addr"
for without in '' uprobe_multi; do
	before=$(code $other $other_malloc) free_before=$(code $other $other_free)
	[ "$(code $chosen $malloc)" = "$before" ] || fail "breakpoints before any recording"
	OFFWIND_WITHOUT=$without "$offwind" record --alloc -o "$dir/c.pb.gz" -p $chosen 2>"$dir/log" &
	recorder=$!
	until [ "$(code $chosen $malloc)" != "$before" ] && [ "$(code $chosen $free)" != "$free_before" ]; do
		kill -0 $recorder 2>/dev/null || { fail "no breakpoints in the process that was chosen: $(cat "$dir/log")"; break; }
		sleep 0.05
	done
	[ "$(code $other $other_malloc)" = "$before" ] && [ "$(code $other $other_free)" = "$free_before" ] ||
		fail "breakpoints in a process that was not chosen (without '$without')"
	# test %rdi,%rdi; je: the kernel would single-step the first instruction; it emulates the second.
	case $free_before in
	4885ff*) [[ $(code $chosen $free) == 4885ffcc* ]] || fail "free's first instruction is single-stepped" ;;
	esac
	kill -INT $recorder
	wait $recorder
	[ "$(code $chosen $malloc)" = "$before" ] || fail "breakpoints stay"
done
kill $chosen $other
# A child's first allocations are not seen.  Those of in_child come once some of the same process are in the capture file.
# As folded stacks it would have what is in use: nothing, unless the file was cut between a malloc and its free.
mkfifo "$dir/told"
exec 7<>"$dir/told"
is_seen() { "$offwind" unwind -q -f tsv --pid "$1" "$dir/c.owc" 2>/dev/null | grep -q not_yet; } # PID
said() { [ "$(wc -l <"$dir/said")" -ge "$1" ]; } # LINES
for without in '' uprobe_multi; do
	: >"$dir/said"
	OFFWIND_WITHOUT=$without "$offwind" record --alloc=1 -m 64M --raw="$dir/c.owc" -o "$dir/c.pb.gz" -- "$dir/idle" <&7 >"$dir/said" 2>"$dir/log" & recorder=$!
	echo >&7
	for i in 2 3 4; do
		until_or_dead $recorder said $i && until_or_dead $recorder is_seen "$(sed -n ${i}p "$dir/said")" || fail "process $i is not seen: $(cat "$dir/log")"
		echo >&7
	done
	wait $recorder || fail "children: $(cat "$dir/log")"
	n=$(go tool pprof -top -cum -nodefraction=0 -sample_index=alloc_objects "$dir/c.pb.gz" 2>/dev/null | awk '$6 == "in_child" { print $4 }')
	[ "${n:-0}" = 1500 ] || fail "children are not followed: ${n:-0} of 1500 allocations (without '$without'): $(cat "$dir/log")"
done

echo "== sampled"
"$offwind" record --alloc=4096 -m 64M --stats "$dir/stats.json" -o "$dir/s.pb.gz" -- "$dir/alloc" 100000 2>"$dir/log" || fail "$(cat "$dir/log")"
accounts sampled
functions "$dir/s.pb.gz" >"$dir/got"
# Of n bytes, n / 4096 are chosen; the limit is five standard deviations of that.
paste -d' ' "$dir/got" <(expected 100000 | cut -d' ' -f2-) | awk '
	function near(what, got, want, n) { n = want_bytes / 4096; if (n < 20) return
		d = 5 * want / sqrt(n); if (got < want - d || got > want + d) { print $1, what, got, "is far from", want; bad = 1 } }
	$1 ~ /leak|churn|zeroed/ { want_bytes = $7; near("objects", $2, $6); near("bytes", $3, $7)
		if ($8) { near("objects in use", $4, $8); near("bytes in use", $5, $9) } else if ($4 || $5) { print $1, "in use", $4, $5; bad = 1 } }
	END { exit bad }' >"$dir/far" || fail "$(cat "$dir/far")"
captured=$(sed -n 's/.*captured \([0-9]*\) = .*/\1/p' "$dir/log")
[ "$captured" -lt 5000 ] || fail "$captured of 100,000 were captured: they were not sampled"

echo "== what a thread that is left out gives back"
cat >"$dir/grow.c" <<'C'
#include <pthread.h>
#include <stdlib.h>
static void *volatile blocks[100];
__attribute__((noinline)) static void keep(void)
{
	for (int i = 0; i < 100; i++)
		blocks[i] = malloc(1000);
}
static void *grow(void *arg)
{
	pthread_setname_np(pthread_self(), "grower");
	for (int i = 0; i < 100; i++)
		blocks[i] = realloc(blocks[i], 200000);
	return arg;
}
int main(void)
{
	pthread_t thread;
	keep();
	pthread_create(&thread, NULL, grow, NULL);
	return pthread_join(thread, NULL);
}
C
gcc -O1 -fno-builtin -D_GNU_SOURCE -pthread -o "$dir/moved" "$dir/grow.c" || fail gcc
in_use() { go tool pprof -top -cum -nodefraction=0 -sample_index=$1_space -unit=B "$2" 2>/dev/null | awk 'BEGIN { v = 0 } $6 == "keep" { v = $4 } END { print v + 0 }'; }
"$offwind" record --alloc=1 --comm moved --stats "$dir/stats.json" -o "$dir/m.pb.gz" -- "$dir/moved" 2>"$dir/log" || fail "$(cat "$dir/log")"
accounts "another thread's realloc"
[ "$(in_use alloc "$dir/m.pb.gz")/$(in_use inuse "$dir/m.pb.gz")" = 100000/0 ] ||
	fail "another thread's realloc: $(in_use alloc "$dir/m.pb.gz") bytes allocated, $(in_use inuse "$dir/m.pb.gz") in use: $(cat "$dir/log")"

echo "== windows: what is in use is so in each that follows"
cat >"$dir/windows.c" <<'C'
#include <stdlib.h>
#include <unistd.h>
static void *volatile kept;
__attribute__((noinline)) static void keep(void) { kept = malloc(1000000); }
int main(int argc, char **argv)
{
	keep();
	for (int i = atoi(argv[argc - 1]); i; i--)
		usleep(100000);
	free(kept);
	usleep(1000000);
	return 0;
}
C
gcc -O1 -fno-builtin -o "$dir/windows" "$dir/windows.c" || fail gcc
for tenths in 23 90; do # a busy machine may end windows late
	rm -rf "$dir/windows.d"
	"$offwind" record --alloc=1 --rotate 1 -o "$dir/windows.d" -- "$dir/windows" $tenths 2>"$dir/log" || fail "$(cat "$dir/log")"
	for p in "$dir"/windows.d/*.pb.gz; do
		"$offwind" report --check "$p" >/dev/null || fail "$p is not sound"
		echo "$(in_use alloc "$p")/$(in_use inuse "$p")"
	done | uniq | paste -sd' ' >"$dir/seen"
	# Allocated in one window (on a busy machine the first may end before), still in use at its end; freed in a later one.
	grep -qx '\(0/0 \)\?1000000/1000000 \(0/1000000 \)\?0/0' "$dir/seen" && break
done
grep -qx '\(0/0 \)\?1000000/1000000 \(0/1000000 \)\?0/0' "$dir/seen" || fail "windows: $(cat "$dir/seen")"

[ $failures = 0 ] || { echo "$failures failures"; exit 1; }
