#!/usr/bin/env bash
# Tests the sandbox of the commands that read recordings and profiles. Code that took over the worker
# (preload/hostile.c) can open no file, make no socket and no process, and holds no right; a file that
# ends the worker is left out, and the rest of the result comes out.
set -u
. tests/recorder.sh
chmod 755 "$dir"
gcc -O1 -Wall -Wextra -Werror -D_GNU_SOURCE -shared -fPIC -o "$dir/hostile.so" tests/faults/preload/hostile.c || exit 1
cat >"$dir/lib.c" <<'C'
unsigned long hot(unsigned long n);
__attribute__((noinline)) unsigned long hot(unsigned long n)
{
	volatile unsigned long sum = 0;

	for (unsigned long i = 0; i < n; i++)
		sum += i;
	return sum;
}
C
cat >"$dir/main.c" <<'C'
#include <time.h>
unsigned long hot(unsigned long n);
int main(void)
{
	unsigned long sum = 0;

	while (clock() < CLOCKS_PER_SEC)
		sum += hot(100000);
	return sum == 1;
}
C
gcc -O1 -g -shared -fPIC -o "$dir/libhot.so" "$dir/lib.c" &&
	gcc -O1 -g -o "$dir/prog" "$dir/main.c" "$dir/libhot.so" || exit 1
cp "$offwind" "$dir/offwind"
export OFFWIND_DB=$dir/store.db
"$offwind" record -q --raw -o "$dir/x.owc" -- "$dir/prog" || fail "record"
"$offwind" unwind -q "$dir/x.owc" -o "$dir/x.pb.gz" || fail "unwind"
chmod 644 "$dir/x.owc" "$dir/x.pb.gz"

# ---- code that took over the worker -------------------------------------------------------------

attack() { # NAME COMMAND…: as who runs this
	local name=$1
	shift
	LD_PRELOAD=$dir/hostile.so HOSTILE=attack "$@" >"$dir/out" 2>"$dir/err" || fail "$name: exit $?: $(cat "$dir/err")"
	grep -q '^hostile: tried [1-9][0-9]*, succeeded 0$' "$dir/err" || fail "$name: $(grep hostile "$dir/err")"
}
attack "unwind" "$offwind" unwind "$dir/x.owc" -o "$dir/y.pb.gz"
attack "unwind as text" "$offwind" unwind "$dir/x.owc" -f text
attack "explain" "$offwind" explain "$dir/x.owc"
attack "report of a recording" "$offwind" report "$dir/x.owc"
attack "flame graph of a recording" "$offwind" flamegraph "$dir/x.owc" -o "$dir/y.html"
attack "perf_to_profile" bash -c "exec -a perf_to_profile '$offwind' -f -i '$dir/x.owc' -o '$dir/z.pb'"
user=(setpriv --reuid 65534 --regid 65534 --clear-groups env HOSTILE_HAS_ROOT=1 "HOME=$dir/home" OFFWIND_DB=)
attack "unwind by an ordinary user" "${user[@]}" "$dir/offwind" unwind "$dir/x.owc" -f text
attack "unwind by the root of a user namespace" unshare -r "$dir/offwind" unwind --no-cache "$dir/x.owc" -f text
attack "explain by an ordinary user" "${user[@]}" "$dir/offwind" explain "$dir/x.owc"

# ---- what the worker holds --------------------------------------------------------------------------

LD_PRELOAD=$dir/hostile.so HOSTILE=stop "$offwind" unwind "$dir/x.owc" -o "$dir/y.pb.gz" 2>/dev/null &
supervisor=$!
worker=
for _ in $(seq 2000); do
	for pid in $(cat "/proc/$supervisor/task/$supervisor/children" 2>/dev/null); do
		grep -q '^State:.T' "/proc/$pid/status" 2>/dev/null && worker=$pid
	done
	[ -n "$worker" ] && break
	kill -0 $supervisor 2>/dev/null || break
	sleep 0.01
done
if [ -z "$worker" ]; then
	fail "there is no worker"
else
	status=$(cat "/proc/$worker/status")
	holds() { # NAME REGEX
		grep -qE "^$1:[[:space:]]+$2\$" <<<"$status" || fail "the worker's $1: $(grep "^$1:" <<<"$status")"
	}
	for set in CapInh CapPrm CapEff CapBnd CapAmb; do
		holds $set 0000000000000000
	done
	holds NoNewPrivs 1
	holds Seccomp 2
	holds Groups '[[:space:]]*'
	uid=$(sed -nE 's/^Uid:\t([0-9]+)\t\1\t\1\t\1$/\1/p' <<<"$status")
	[ "${uid:-0}" -ge $((0x70000000)) ] || fail "the worker's user: $(grep ^Uid: <<<"$status")"
	[[ $(readlink "/proc/$worker/root") == /proc/$worker/fdinfo ]] || fail "the worker's root: $(readlink "/proc/$worker/root")"
	kill -CONT "$worker"
fi
wait $supervisor || fail "after it was stopped: exit $?"

# ---- a file that ends the worker ---------------------------------------------------------------------

inode=$(stat -c %i "$dir/libhot.so")
# A file that was changed just now could change again unseen: the quarantine begins when it has settled.
while [ $(($(date +%s) - $(stat -c %Z "$dir/libhot.so"))) -lt 4 ]; do
	sleep 0.2
done
crash() { # COMMAND…
	LD_PRELOAD=$dir/hostile.so HOSTILE=crash:$inode "$@" >"$dir/out" 2>"$dir/err"
}
samples() { # PROFILE: how many samples, and how many of them stopped without the object
	"$offwind" report --check "$1" | sed -nE 's/.*sound; ([0-9]+) samples.*/\1/p'
}
rm -f "$dir/y.pb.gz"
crash "$offwind" unwind "$dir/x.owc" -o "$dir/y.pb.gz" || fail "a file that ends the worker: exit $?: $(cat "$dir/err")"
[ "$(grep -c "warning: $dir/libhot.so: a worker that read it was ended by SIGSEGV" "$dir/err")" = 1 ] ||
	fail "it is not reported once: $(cat "$dir/err")"
[ "$(samples "$dir/y.pb.gz")" -gt 0 ] || fail "no profile"
captured=$(sed -nE 's/^offwind: captured ([0-9]+) = unwound \1 .*/\1/p' "$dir/err")
[ "${captured:-0}" -gt 50 ] || fail "the samples: $(cat "$dir/err")"
ls "$dir"/y.pb.gz.* 2>/dev/null && fail "an unfinished file is left"
# Later runs do not read it, and say why; the user can release it.
"$offwind" unwind "$dir/x.owc" -o "$dir/y.pb.gz" 2>"$dir/err" || fail "the next run: exit $?"
grep -q "libhot.so: not used, the file is in quarantine" "$dir/err" || fail "the next run: $(cat "$dir/err")"
"$offwind" cache verify --repair >"$dir/out" 2>&1
grep -q "libhot.so: in quarantine since .*: a worker that read it was ended by SIGSEGV" "$dir/out" || fail "verify: $(cat "$dir/out")"
"$offwind" unwind "$dir/x.owc" -o "$dir/y.pb.gz" 2>"$dir/err" && ! grep -q libhot.so "$dir/err" || fail "released: $(cat "$dir/err")"
# A text that is written to a pipe cannot be begun again: what was written is good, and the exit code tells.
crash bash -c "set -o pipefail; '$offwind' unwind '$dir/x.owc' --no-cache -f text | cat" && fail "a pipe: exit 0"
grep -q 'was ended by SIGSEGV' "$dir/err" || fail "a pipe: $(cat "$dir/err")"
# A name that is a pipe itself, and standard input and output that are files.
crash "$offwind" unwind --no-cache - <"$dir/x.owc" -f folded || fail "standard input: exit $?: $(cat "$dir/err")"
grep -q '^' "$dir/out" || fail "standard input and output: nothing was written"
"$offwind" unwind --no-cache -q - <"$dir/x.owc" -f folded >"$dir/whole"
[ "$(wc -l <"$dir/out")" -le "$(wc -l <"$dir/whole")" ] || fail "what the first worker wrote was not taken back"

# A worker that somebody ends while it reads proves nothing about the file.
for signal in INT KILL; do
	python3 -c 'import os, signal, sys
signal.signal(signal.SIGINT, signal.SIG_DFL)
os.execvp(sys.argv[1], sys.argv[1:])' env LD_PRELOAD="$dir/hostile.so" HOSTILE=stop "$offwind" unwind "$dir/x.owc" -o "$dir/y3.pb.gz" 2>"$dir/err" &
	supervisor=$! worker=
	until [ -n "$worker" ] || ! kill -0 $supervisor 2>/dev/null; do
		for pid in $(cat "/proc/$supervisor/task/$supervisor/children" 2>/dev/null); do
			grep -q '^State:.T' "/proc/$pid/status" 2>/dev/null && worker=$pid
		done
		sleep 0.01
	done
	kill -$signal "$worker"
	while kill -0 $supervisor 2>/dev/null; do # a worker that follows it stops, too
		for pid in $(cat "/proc/$supervisor/task/$supervisor/children" 2>/dev/null); do
			grep -q '^State:.T' "/proc/$pid/status" 2>/dev/null && kill -CONT "$pid"
		done
		sleep 0.01
	done 2>/dev/null
	wait $supervisor
	rc=$?
	[ $signal = INT ] && { [ $rc = 130 ] || fail "SIGINT while reading: exit $rc"; }
	[ "$(sqlite3 "$OFFWIND_DB" 'select count(*) from quarantine')" = 0 ] || fail "SIG$signal put a file in quarantine: $(cat "$dir/err")"
done

# ---- ends --------------------------------------------------------------------------------------------

# The exit codes and signals are those of the command itself.
"$offwind" unwind "$dir/none" -o "$dir/y.pb.gz" 2>/dev/null
[ $? = 1 ] || fail "no such input: exit code"
"$offwind" unwind "$dir/x.owc" -f text --no-cache 2>"$dir/err" | head -n 1 >/dev/null
[ "${PIPESTATUS[0]}" = 141 ] || [ "${PIPESTATUS[0]}" = 0 ] || fail "a reader that leaves: exit ${PIPESTATUS[0]}"
mkfifo "$dir/fifo"
for signal in INT TERM; do
	# In the background, SIGINT is ignored; this makes it as on a terminal.
	python3 -c 'import os, signal, sys
signal.signal(signal.SIGINT, signal.SIG_DFL)
os.execv(sys.argv[1], sys.argv[1:])' "$offwind" unwind "$dir/fifo" -o "$dir/y2.pb.gz" &
	pid=$!
	until [ "$(wc -w 2>/dev/null <"/proc/$pid/task/$pid/children")" = 2 ]; do
		kill -0 $pid 2>/dev/null || break
		sleep 0.01
	done
	children=$(cat "/proc/$pid/task/$pid/children")
	[ $signal = TERM ] && kill -TERM $pid
	[ $signal = INT ] && kill -INT $pid $children
	wait $pid 2>/dev/null
	rc=$?
	[ $rc = $((128 + $(kill -l $signal))) ] || fail "SIG$signal: exit $rc"
	for child in $children; do
		for _ in $(seq 500); do
			kill -0 "$child" 2>/dev/null || break
			sleep 0.01
		done
		kill -0 "$child" 2>/dev/null && fail "SIG$signal: process $child is left"
	done
done
# Without the sandbox everything is in one process, and the result is the same.
OFFWIND_SANDBOX=off "$offwind" unwind -q --no-cache "$dir/x.owc" -f text >"$dir/one" &&
	"$offwind" unwind -q --no-cache "$dir/x.owc" -f text >"$dir/two" && cmp "$dir/one" "$dir/two" || fail "the results differ"
exit $((failures > 0))
