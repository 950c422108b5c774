#!/usr/bin/env bash
# Tests offwind record on this system: whole stacks of a real compiler, the capture file beside the
# profile, windows, and how recordings end.
set -u
. "$(dirname "$0")/../recorder.sh"
. tests/wait.sh
. tests/workload.sh
trap 'kill $(jobs -p) 2>/dev/null; umount "$dir/small" 2>/dev/null; rm -rf "$dir"' EXIT

# Print the number after a word of "captured 9 = unwound 8 (root 7, …) + lost 1 …".
figure() {
	local n
	n=$(grep -o "\b$2 [0-9]*" <<<"$1" | head -n 1)
	echo "${n##* }" | grep . || echo 0
}

accounting() { grep -h 'captured [0-9]* =' "$1" | sed 's/.*captured/captured/'; }

# Check that captured = unwound + lost, and that the stops add up to unwound.
check_balance() {
	local line=$1 stops
	stops=$(($(sed 's/.*unwound [0-9]*//; s/+ lost.*//' <<<"$line" | grep -o '[0-9]*' | paste -sd+) + 0))
	[ $(($(figure "$line" unwound) + $(figure "$line" lost))) = "$(figure "$line" captured)" ] &&
		[ "$stops" = "$(figure "$line" unwound)" ] || fail "not balanced: $line"
}

samples_in() { # the sum of the sample counts of these profiles
	local sum=0 n
	for p; do
		n=$("$offwind" report -n 1 "$p" | sed -n 's/^# \([0-9]*\) samples.*/\1/p')
		sum=$((sum + n))
	done
	echo $sum
}

echo "== a compiler, while the whole system is recorded"
workload clang
"$offwind" record -a -F 997 -o "$dir/all.pb.gz" --raw="$dir/all.owc" 2>"$dir/log" & recorder=$!
until_or_dead $recorder test -s "$dir/all.owc" && "${argv[@]}"
kill -INT $recorder
wait $recorder || fail "record -a: $(cat "$dir/log")"
line=$(accounting "$dir/log")
echo "$line"
check_balance "$line"
"$offwind" report --check "$dir/all.pb.gz" >/dev/null || fail "the profile is not sound"
[ "$(samples_in "$dir/all.pb.gz")" = "$(figure "$line" unwound)" ] || fail "the profile lacks samples"
go tool pprof -comments "$dir/all.pb.gz" 2>/dev/null | grep -qF "$line" || fail "no accounting in the profile"
"$offwind" unwind -q --format tsv --no-inline -o "$dir/all.tsv" "$dir/all.owc" || fail "unwind"

# Only the compiler's own samples count; other programs may run, too.
"$offwind" unwind -q --format text --no-inline -o "$dir/all.txt" "$dir/all.owc" || fail "unwind --format text --no-inline"
awk '/^[^\t# ]/ { if (mine) { n++; whole += !stop } mine = /^clang/; stop = 0; user = 0 }
     /^\t/ { user = !/\(\[/ } /^# stop: / { stop = 1; if (mine) why[$3]++ }
     END { if (mine) { n++; whole += !stop }
           printf "clang: %d samples, %d to the root", n, whole
           for (w in why) printf ", %s %d", w, why[w]
           print ""
           exit !(n >= 300 && whole >= 0.98 * n) }' "$dir/all.txt" || fail "less than 98 % reach the root"
echo "== a Go program without symbols or unwind information"
if command -v go >/dev/null; then
	cat >"$dir/work.go" <<'GO'
package main

import (
	"sort"
	"syscall"
)

func work(n int) int {
	a := make([]int, n)
	for i := range a {
		a[i] = (i * 7919) % 10007
	}
	sort.Ints(a)
	return a[n/2]
}

// The CPU time of the whole program, in milliseconds.
func used() int64 {
	var u syscall.Rusage
	syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return u.Utime.Nano()/1000000 + u.Stime.Nano()/1000000
}

func main() {
	done := make(chan int)
	for g := 0; g < 4; g++ {
		go func() {
			s := 0
			for used() < 2000 {
				s += work(5000)
			}
			done <- s
		}()
	}
	for g := 0; g < 4; g++ {
		<-done
	}
}
GO
	GO111MODULE=off GOCACHE=$PWD/$BUILD/go-cache go build -ldflags='-s -w' -o "$dir/work" "$dir/work.go" || fail "go build"
	"$offwind" record -F 499 -o "$dir/go.pb.gz" -- "$dir/work" 2>"$dir/log" || fail "record: $(cat "$dir/log")"
	line=$(accounting "$dir/log")
	echo "$line"
	n=$(($(figure "$line" unwound) - $(figure "$line" no_user_state)))
	[ "$n" -ge 100 ] && [ $(($(figure "$line" root) * 100)) -ge $((n * 99)) ] || fail "goroutines do not end at their root"
else
	fail "go is not installed"
fi

echo "== the profile of the capture file is the live one"
# Record one command: files of other processes may be gone when they are looked for again.
"$offwind" record -F 997 -o "$dir/live.pb.gz" --raw="$dir/live.owc" -- "${argv[@]}" 2>"$dir/log" || fail "record: $(cat "$dir/log")"
line=$(accounting "$dir/log")
echo "$line"
check_balance "$line"
[ $(($(figure "$line" cut) * 100)) -le "$(figure "$line" unwound)" ] || fail "more than 1 % of the stacks were cut"
"$offwind" unwind -o "$dir/again.pb.gz" "$dir/live.owc" 2>"$dir/log" || fail "unwind: $(cat "$dir/log")"
cmp <(zcat "$dir/live.pb.gz") <(zcat "$dir/again.pb.gz") || fail "it differs"

echo "== go tool pprof agrees with the report"
# The report distinguishes functions of one name by their modules; pprof does not, and says which were inlined. Record
# one command: names of other programs on this machine may have blanks.
"$offwind" report --top 0 --type samples "$dir/live.pb.gz" >"$dir/report" || fail report
go tool pprof -top -sample_index=samples -nodecount=100000 -nodefraction=0 "$dir/live.pb.gz" 2>/dev/null |
	awk '$2 ~ /%$/ { n = $1; $1 = $2 = $3 = $4 = $5 = ""; sub(/^ +/, ""); sub(/ \((partial-)?inline\)$/, ""); print n, $0 }' >"$dir/go"
n=0
while read -r count name; do
	grep -qxF "$count $name" "$dir/go" || fail "pprof does not say: $count $name"
	n=$((n + 1))
done < <(awk '!/^#/ && $1 ~ /%$/ { c = $2; $1 = $2 = $3 = $4 = $5 = ""; sub(/^ +/, ""); sum[$0] += c }
	END { for (name in sum) print sum[name], name }' "$dir/report" | sort -rn | head -n 10)
[ $n -ge 5 ] || fail "the report has only $n functions"

echo "== windows"
# On a busy machine a window may end late, and then there are fewer: record again.
for _ in 1 2 3 4 5; do
	rm -rf "$dir/windows"
	"$offwind" record -a -F 199 -d 3 --rotate 1 -o "$dir/windows" 2>"$dir/log" || fail "$(cat "$dir/log")"
	set -- "$dir"/windows/offwind-*.pb.gz
	[ $# != 3 ] || break
done
[ $# = 3 ] || fail "$# windows, not 3"
line=$(accounting "$dir/log")
check_balance "$line"
[ "$(samples_in "$@")" = "$(figure "$line" unwound)" ] || fail "the windows do not add up: $line"
for p; do "$offwind" report --check "$p" >/dev/null || fail "$p"; done
for _ in 1 2 3 4 5; do
	rm -rf "$dir/kept"
	"$offwind" record -a -F 199 -d 3 --rotate 1 --keep 2 -o "$dir/kept" 2>"$dir/log" || fail "$(cat "$dir/log")"
	set -- "$dir"/kept/*
	[ $# -lt 2 ] || break
done
[ $# = 2 ] || fail "$# windows are kept, not 2"

echo "== functions without names, and what to do about them"
cat >"$dir/spin.c" <<'C'
#include <time.h>
static volatile unsigned long n;
__attribute__((noinline)) static void hot(void) { for (unsigned long i = 0; i < 100000; i++) n += i; }
int main(void) { do hot(); while (clock() < CLOCKS_PER_SEC / 4); return 0; }
C
gcc -O1 -o "$dir/spin" "$dir/spin.c" && strip -o "$dir/bare" "$dir/spin" || fail "gcc"
advice() { grep 'functions without names' "$dir/log"; }
"$offwind" record -o "$dir/named.pb.gz" -- "$dir/spin" 2>"$dir/log" || fail "record: $(cat "$dir/log")"
advice && fail "advice though all is named"
env -u DEBUGINFOD_URLS "$offwind" record -o "$dir/bare.pb.gz" --raw="$dir/bare.owc" -- "$dir/bare" 2>"$dir/log" || fail "record: $(cat "$dir/log")"
advice | grep -qE '^offwind: [1-9][0-9]+ % of the time is in .* \(bare [1-9][0-9]+ %.*\): .*set DEBUGINFOD_URLS' || fail "no advice: $(cat "$dir/log")"
DEBUGINFOD_URLS=http://127.0.0.1:1 "$offwind" unwind -o "$dir/x.pb.gz" "$dir/bare.owc" 2>"$dir/log" || fail "unwind: $(cat "$dir/log")"
advice | grep -q ' (bare [1-9][0-9]* %.*): .*build with symbols' || fail "no advice of unwind: $(cat "$dir/log")"
advice | grep -q 'set DEBUGINFOD_URLS' && fail "DEBUGINFOD_URLS is set already"
"$offwind" unwind -q -o "$dir/x.pb.gz" "$dir/bare.owc" 2>"$dir/log" && [ ! -s "$dir/log" ] || fail "not quiet: $(cat "$dir/log")"

echo "== how recordings begin and end"
"$offwind" record -F 499 -o "$dir/one.pb.gz" -- sh -c 'exit 3' 2>"$dir/log"
[ $? = 3 ] && grep -q 'exit status 3' "$dir/log" || fail "the command's status: $(cat "$dir/log")"
"$offwind" record -o "$dir/none.pb.gz" -- "$dir/no-such-command" 2>"$dir/log"
[ $? = 127 ] && [ ! -e "$dir/none.pb.gz" ] && [ "$(wc -l <"$dir/log")" = 1 ] || fail "a command that is not there: $(cat "$dir/log")"
"$offwind" record -p 4194303 2>"$dir/log"
[ $? = 2 ] || fail "a pid that is not there"
"$offwind" record -a -p 1 2>"$dir/log"
[ $? = 2 ] || fail "-a with -p"
"$offwind" record -a -o "$dir/int.pb.gz" --raw="$dir/int.owc" 2>"$dir/log" &
pid=$!
until_or_dead $pid test -s "$dir/int.owc" || fail "record -a: $(cat "$dir/log")"
sleep 0.5
kill -INT $pid
wait $pid || fail "Ctrl-C: $(cat "$dir/log")"
"$offwind" report --check "$dir/int.pb.gz" >/dev/null || fail "Ctrl-C leaves a whole profile"
"$offwind" record -a -d 1 -o /dev/full 2>"$dir/log"
[ $? != 0 ] && grep -q '/dev/full.*No space' "$dir/log" || fail "a full disk: $(cat "$dir/log")"
touch "$dir/file"
for words in "-o $dir/no/a" "-o $dir" "--rotate 5 -o $dir/file" "--rotate 5 -o $dir/no/a" "--raw -o $dir/no/a"; do
	# Immediately, and not only when data may be lost.
	timeout 100 "$offwind" record -a -d 200 $words 2>"$dir/log"
	[ $? = 1 ] && [ "$(grep -c 'cannot be' "$dir/log")" = 1 ] && [ "$(wc -l <"$dir/log")" = 1 ] || fail "$words: $(cat "$dir/log")"
done
[ ! -s "$dir/file" ] && [ -z "$(find "$dir" -name '*.pb.gz.*')" ] || fail "trying an output leaves traces"
"$offwind" record -q -F 199 -o - -- sh -c 'for i in 1 2 3 4 5 6 7 8 9; do ls -lR /etc; done >/dev/null' | "$offwind" report --check - >/dev/null || fail "a profile through a pipe"
"$offwind" record -q -F 199 --raw -o - -- sh -c 'for i in 1 2 3 4 5 6 7 8 9; do ls -lR /etc; done >/dev/null' |
	"$offwind" unwind -q --format tsv --no-inline - | grep '\sls\s' >/dev/null || fail "a capture through a pipe"
for seconds in 1 5 25; do # on a busy machine the shell is deaf later
	"$offwind" record -d $seconds -o "$dir/deaf.pb.gz" -- sh -c 'trap "" TERM; sleep 60' 2>"$dir/log"
	rc=$?
	grep -q 'sh: still runs as process [0-9]' "$dir/log" && break
done
[ $rc = 0 ] && grep -q 'sh: still runs as process [0-9]' "$dir/log" || fail "a deaf command: $(cat "$dir/log")"
kill -9 $(sed -n 's/.*still runs as process //p' "$dir/log")
mkdir "$dir/small"
if mount -t tmpfs -o size=2m tmpfs "$dir/small"; then
	"${argv[@]}" &
	"$offwind" record -a -F 4999 -d 2 -o "$dir/both.pb.gz" --raw="$dir/small/raw.owc" 2>"$dir/log"
	rc=$?
	wait $!
	[ $rc = 1 ] && [ "$(grep -c 'raw.owc.*No space' "$dir/log")" = 1 ] &&
		"$offwind" report --check "$dir/both.pb.gz" >/dev/null ||
		fail "a full disk under the capture file costs the profile: $(cat "$dir/log")"
	"$offwind" unwind -o "$dir/small.pb.gz" "$dir/small/raw.owc" 2>"$dir/log"
	[ $? = 3 ] && "$offwind" report --check "$dir/small.pb.gz" >/dev/null ||
		fail "what is in the capture file can be read: $(cat "$dir/log")"
	umount "$dir/small"
else
	fail "no small file system to fill"
fi
chmod 755 "$dir" && install -m 755 "$offwind" "$dir/offwind" # the tree may be closed to others
setpriv --reuid 65534 --regid 65534 --clear-groups "$dir/offwind" record -a -d 1 -o /dev/null 2>"$dir/log"
[ $? = 1 ] && grep -q root "$dir/log" && [ "$(wc -l <"$dir/log")" = 1 ] || fail "without rights: $(cat "$dir/log")"

echo "== only the process asked for, and its children"
record_to_its_end() { # PROCESS FILE OPTION…: it stands still until it is recorded, which the file shows
	local recorder
	kill -STOP "$1"
	"$offwind" record -d 60 -p "$1" "${@:3}" 2>"$dir/log" &
	recorder=$!
	until_or_dead $recorder test -s "$2"
	kill -CONT "$1"
	wait $recorder
}
# One second of its CPU time, however long that takes: 499 samples, minus those before the recording.
(ulimit -t 1; exec sh -c 'while :; do :; done') 2>/dev/null & busy=$!
record_to_its_end $busy "$dir/pid.owc" -F 499 -o "$dir/pid.owc" --raw || fail "-p: $(cat "$dir/log")"
wait $busy 2>/dev/null
"$offwind" unwind -q --format text --no-inline -o "$dir/pid.txt" "$dir/pid.owc" || fail "unwind of -p"
others=$(awk '/^[^\t# ]/ { print $2 }' "$dir/pid.txt" | grep -vc "^$busy/")
mine=$(awk '/^[^\t# ]/ { print $2 }' "$dir/pid.txt" | grep -c "^$busy/")
[ "$others" = 0 ] && [ "$mine" -gt 100 ] || fail "-p $busy: $mine of it, $others of others"

echo "== a 32-bit program: where it stands, if not how it came there"
cat >"$dir/narrow.c" <<'C'
#include <pthread.h>
__attribute__((noinline)) static void spin(void)
{
	__asm__ volatile("pushl $0x5ca1ab1e\n\tmovl $0x11111111, %%ebx\n\t1: jmp 1b" ::: "ebx", "memory");
}
static void *run(void *arg) { spin(); return arg; }
int main(void) { pthread_t thread; pthread_create(&thread, NULL, run, NULL); spin(); }
C
gcc -m32 -O1 -pthread -o "$dir/narrow" "$dir/narrow.c" || { echo "FAIL: gcc -m32"; exit 1; }
# The same: 199 samples.
(ulimit -t 1; exec "$dir/narrow") 2>/dev/null & narrow=$!
until_or_dead $narrow has_threads $narrow 2 || exit 1
record_to_its_end $narrow "$dir/narrow.owc" -F 199 -o "$dir/narrow.pb.gz" --raw="$dir/narrow.owc" || fail "record: $(cat "$dir/log")"
wait $narrow 2>/dev/null
line=$(accounting "$dir/log")
check_balance "$line"
"$offwind" report --check "$dir/narrow.pb.gz" >/dev/null || fail "its profile is not sound"
"$offwind" report -n 1 "$dir/narrow.pb.gz" | grep -q '^ *[1-9][0-9.]*%.* \[narrow\]$' || fail "no frame of it"
n=$(figure "$line" compat)
ending=$(figure "$line" no_user_state) # while its memory is freed
[ "$n" -ge 60 ] && [ "$ending" -le 4 ] && [ $((n + ending)) = "$(figure "$line" unwound)" ] || fail "not told as 32-bit: $line"
# Each thread's own stack: the value that was pushed last is at the stack pointer.
for i in 10 20 40 60; do "$offwind" explain "$dir/narrow.owc" --sample $i 2>/dev/null; done >"$dir/explained"
[ "$(grep -c '\] = 0x[0-9a-f]*5ca1ab1e' "$dir/explained")" = 4 ] && [ "$(grep -c '^stop: compat' "$dir/explained")" = 4 ] ||
	fail "its stack was not captured: $(cat "$dir/explained")"

echo "== a program whose main thread had ended before the recording began"
cat >"$dir/leaves.c" <<'C'
#include <pthread.h>
#include <unistd.h>
volatile unsigned long sum;
__attribute__((noinline)) void stays(void) { for (int i = 0; i < 100000; i++) sum += i; }
static void *work(void *unused) { (void)unused; for (;;) stays(); }
int main(void)
{
	pthread_t thread;

	alarm(900);
	pthread_create(&thread, NULL, work, NULL);
	pthread_exit(NULL);
}
C
gcc -O1 -g -pthread -o "$dir/leaves" "$dir/leaves.c" || exit 1
"$dir/leaves" & leaves=$!
has_left() { grep -q '^State:.Z' "/proc/$leaves/status"; }
until_or_dead $leaves has_left || fail "its main thread does not end"
for seconds in 1 2 4 8 16; do
	"$offwind" record -p $leaves -F 499 -d $seconds -f folded -o "$dir/leaves.folded" 2>"$dir/log" || fail "$(cat "$dir/log")"
	[ -s "$dir/leaves.folded" ] && break
done
kill -KILL $leaves
grep -q ';work;stays ' "$dir/leaves.folded" && ! grep -q 'no_mapping [1-9]' "$dir/log" || fail "its stacks: $(head "$dir/leaves.folded") $(cat "$dir/log")"

echo "== a machine that has slept: by a clock that says so once, in the middle of a recording"
cat >"$dir/slept.c" <<'C'
#include <dlfcn.h>
#include <time.h>
#include <unistd.h>
int clock_gettime(clockid_t clock, struct timespec *t)
{
	static int (*real)(clockid_t, struct timespec *);
	int rc;

	if (!real)
		real = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
	rc = real(clock, t);
	if (clock == CLOCK_BOOTTIME && !access(SLEPT, F_OK))
		t->tv_sec += 1000;
	return rc;
}
C
gcc -O1 -D_GNU_SOURCE -DSLEPT="\"$dir/slept\"" -shared -fPIC -o "$dir/slept.so" "$dir/slept.c" || exit 1
for _ in $(seq "$(nproc)"); do "$dir/leaves" & done
LD_PRELOAD=$dir/slept.so "$offwind" record -v -a -F 199 --raw="$dir/slept.owc" -o "$dir/slept.pb.gz" 2>"$dir/log" & recorder=$!
grows() { [ "$(stat -c %s "$dir/slept.owc" 2>/dev/null || echo 0)" -gt $((${1:-0} + 20000)) ]; }
until_or_dead $recorder grows || fail "$(cat "$dir/log")"
touch "$dir/slept"
says_slept() { grep -q 'the machine has slept' "$dir/log"; }
until_or_dead $recorder says_slept || fail "it is not noticed: $(cat "$dir/log")"
until_or_dead $recorder grows "$(stat -c %s "$dir/slept.owc")" || fail "nothing comes any more"
kill -INT $recorder
wait $recorder || fail "$(cat "$dir/log")"
[ "$(grep -c 'the machine has slept' "$dir/log")" = 1 ] || fail "it has slept once: $(cat "$dir/log")"
check_balance "$(accounting "$dir/log")"
pkill -KILL -x leaves

echo "== a command has what its caller gave it: the limit of open files, and SIGHUP ignored, as by nohup"
(ulimit -Sn 1000; trap '' HUP; exec "$offwind" record -q -o "$dir/given.pb.gz" -- bash -c 'ulimit -Sn; kill -HUP $$; echo alive') >"$dir/given" 2>"$dir/log" || fail "$(cat "$dir/log")"
[ "$(cat "$dir/given")" = $'1000\nalive' ] || fail "the command has another limit, or was ended: $(cat "$dir/given")"

[ $failures = 0 ] || { echo "$failures failures"; exit 1; }
