#!/usr/bin/env bash
# Unwinds a program with threads in many states, from its core by gcore and from the running
# process, and compares the frames pc by pc with eu-stack's. (core_programs.sh does this with
# programs that are not ours.)
set -u
. tests/wait.sh
for tool in gcore eu-stack; do
	command -v $tool > /dev/null || { echo "no $tool"; exit 77; }
done
work=$BUILD/core_eustack
rm -rf "$work"
mkdir -p "$work"
offwind=$BUILD/offwind
# Use no caches of earlier runs.
export HOME=$PWD/$work XDG_CACHE_HOME=$PWD/$work
mkfifo "$work/quiet"
exec 8<> "$work/quiet" # an input that gives nothing and does not end
pids=()
trap 'kill -9 "${pids[@]}" 2> /dev/null' EXIT
failed=0

# start NAME COMMAND…: run it until it prints "ready"; its pid is in $pid
start() {
	local name=$1
	shift
	: > "$work/$name.out"
	"$@" >> "$work/$name.out" 2>&1 <&8 &
	pid=$!
	pids+=("$pid")
	until_or_dead $pid grep -q ready "$work/$name.out" && return 0
	echo "$name: not ready"
	cat "$work/$name.out"
	return 1
}

# rest PID N: wait until all but N of its threads sleep, and none of these has woken up for a while
rest() {
	local now before=
	for _ in $(seq 300); do
		now=$(for t in /proc/"$1"/task/*/status; do
			awk '/^(Pid|State):/ { printf "%s ", $2 } /ctxt_switches/ { n = n " " $2; if ($0 ~ /^non/) print n } /^State:.R/ { exit }' "$t"
			echo
		done)
		[ "$now" = "$before" ] && [ "$(grep -c '^R' <<< "$now")" = "$2" ] && return
		before=$now
		sleep 0.1
	done
	echo "$1: does not come to rest:"
	echo "$now"
	return 1
}

compare() { # NAME PID [MOVING-TID…]
	local name=$1 pid=$2
	shift 2
	# Threads that do not sleep are somewhere else by then: their innermost frame is left out.
	eu-stack -n 0 -p "$pid" > "$work/$name.eu" 2>&1
	"$offwind" unwind -q --format text --no-inline --pid "$pid" > "$work/$name.text" 2> "$work/$name.err" || { cat "$work/$name.err"; failed=1; }
	python3 tests/diff/core_eustack.py "$name (running)" "$work/$name.eu" "$work/$name.text" "$@" || failed=1
	kill -0 "$pid" || { echo "$name: ended"; failed=1; }
	gcore -o "$work/$name" "$pid" > "$work/$name.gcore" 2>&1 || { tail -n 3 "$work/$name.gcore"; failed=1; return; }
	eu-stack -n 0 --core "$work/$name.$pid" -e "/proc/$pid/exe" > "$work/$name.eu" 2>&1
	"$offwind" unwind -q --format text --no-inline "$work/$name.$pid" > "$work/$name.text" 2> "$work/$name.err" || { cat "$work/$name.err"; failed=1; }
	python3 tests/diff/core_eustack.py "$name (core)" "$work/$name.eu" "$work/$name.text" || failed=1
	rm -f "$work/$name.$pid"
}

start threads "$BUILD/tests/diff/threads" && rest "$pid" 1 || exit 1
spinning=$(for t in /proc/"$pid"/task/*; do awk -v t="${t##*/}" '{ sub(/.*\) /, ""); if ($1 == "R") print t }' "$t/stat"; done)
compare threads "$pid" $spinning

start bash bash -c 'echo ready; read -r line' && rest "$pid" 0 || exit 1
compare bash "$pid"
start sqlite3 sqlite3 -cmd '.print ready' :memory: && rest "$pid" 0 || exit 1
compare sqlite3 "$pid"

cat > "$work/idle.go" <<'G'
package main

import (
	"fmt"
	"os"
	"sync"
)

func deep(n int, mutex *sync.Mutex) {
	if n > 0 {
		deep(n-1, mutex)
	} else {
		mutex.Lock()
	}
	mutex.Unlock()
}

func main() {
	var mutex sync.Mutex
	mutex.Lock()
	for i := 0; i < 4; i++ {
		go deep(i*10, &mutex)
	}
	fmt.Println("ready")
	os.Stdin.Read(make([]byte, 1))
}
G
if command -v go > /dev/null && GOCACHE=$PWD/$BUILD/go-cache go build -o "$work/idle" "$work/idle.go" 2> "$work/go.err"; then
	start go "$work/idle" && rest "$pid" 0 || exit 1
	compare go "$pid"
fi

# The first thread has ended, and with it /proc's information about the process itself.
start leaving "$BUILD/tests/diff/threads" leave && rest "$pid" 1 || exit 1
"$offwind" unwind -q --format tsv --no-inline --pid "$pid" > "$work/leaving.tsv" 2> "$work/leaving.err" || { cat "$work/leaving.err"; failed=1; }
[ "$(cut -f1,8 "$work/leaving.tsv" | grep root | sort -u | wc -l)" = 10 ] || { echo "not 10 threads to their roots"; failed=1; }
# A process that was stopped stays stopped. Its threads stop again when they get a CPU.
moving() {
	local t
	for t in /proc/"$pid"/task/*; do
		awk -v t="${t##*/}" -v p="$pid" '{ sub(/.*\) /, ""); if (t != p && $1 != "T") print "thread " t " runs: " $1 }' "$t/stat"
	done
}
kill -STOP "$pid"
"$offwind" unwind -q --format tsv --no-inline --pid "$pid" > "$work/stopped.tsv" 2> "$work/stopped.err" || { cat "$work/stopped.err"; failed=1; }
[ "$(cut -f1 "$work/stopped.tsv" | sort -u | wc -l)" = 11 ] || { echo "stopped: not 10 threads and a header"; failed=1; }
end=$((SECONDS + 60))
while said=$(moving); [ -n "$said" ]; do
	[ $SECONDS -lt $end ] || { echo "$said"; failed=1; break; }
	sleep 0.05
done

# A core whose program is not at its path any more.
cp "$BUILD/tests/diff/threads" "$work/gone"
start gone "$work/gone" || exit 1
gcore -o "$work/gone" "$pid" > "$work/gone.gcore" 2>&1
mv "$work/gone" "$work/moved"
"$offwind" unwind -q --format tsv --no-inline "$work/gone.$pid" > "$work/without.tsv" 2> "$work/gone.err"
grep -q 'gone: no such file any more.*build-id' "$work/gone.err" || { echo "not told"; cat "$work/gone.err"; failed=1; }
"$offwind" unwind -q --format tsv --no-inline --exe "$work/moved" "$work/gone.$pid" > "$work/with.tsv" 2> "$work/with.err" || failed=1
[ -s "$work/with.err" ] && cat "$work/with.err"
[ "$(grep -c 'deep_thread' "$work/with.tsv")" = 3 ] || { echo "--exe: not named"; failed=1; }
awk -F'\t' '$8 != "root" && NR > 1 { bad = 1; print } END { exit bad }' "$work/with.tsv" | head -n 3 || failed=1
# Another program is not used instead.
"$offwind" unwind -q --format tsv --no-inline --exe /bin/true "$work/gone.$pid" 2>&1 > "$work/wrong.tsv" | grep -q 'replaced since it was mapped' ||
	{ echo "another program's file was taken"; failed=1; }
# In a directory of its own.
mkdir -p "$work/root/$(dirname "$(readlink -f "$work/moved")")"
cp "$work/moved" "$work/root/$(dirname "$(readlink -f "$work/moved")")/gone"
for f in $(awk '/r-xp/ && $6 ~ /^\// { print $6 }' "/proc/$pid/maps" | sort -u); do
	[ -f "$f" ] && mkdir -p "$work/root/$(dirname "$f")" && cp -L "$f" "$work/root/$f"
done
"$offwind" unwind -q --format tsv --no-inline --sysroot "$work/root" "$work/gone.$pid" 2> "$work/root.err" | cmp - "$work/with.tsv" || failed=1

# The kernel's own cores, if it writes them into the working directory.
if [ "$(cat /proc/sys/kernel/core_pattern)" = core ]; then
	here=$PWD
	crash() { # FILTER: run ./dumped, remove it, and let it abort
		cp "$BUILD/tests/diff/threads" "$work/dumped"
		(
			cd "$work" && ulimit -c unlimited && rm -f core core.* && echo "$1" > /proc/self/coredump_filter
			: > dumped.out
			./dumped >> dumped.out &
			until_or_dead $! grep -q ready dumped.out
			[ "$1" = 0x33 ] || rm dumped
			kill -ABRT $!
			wait $!
			mv core.$! core 2> mv.err
			cd "$here"
		) 2> "$work/crash.err"
	}
	crash 0x33
	eu-stack -n 0 --core "$work/core" -e "$work/dumped" > "$work/kernel.eu" 2>&1
	"$offwind" unwind -q --format text --no-inline "$work/core" > "$work/kernel.text" 2> "$work/kernel.err" || { cat "$work/kernel.err"; failed=1; }
	python3 tests/diff/core_eustack.py "the kernel's core" "$work/kernel.eu" "$work/kernel.text" || failed=1
	# The core has all of the program: the deleted file is read from there.
	crash 0x7f
	"$offwind" unwind -q --format tsv --no-inline "$work/core" > "$work/memory.tsv" 2> "$work/memory.err" || failed=1
	cat "$work/memory.err"
	[ "$(cut -f1,8 "$work/memory.tsv" | grep -c root)" = "$(sed 1d "$work/memory.tsv" | wc -l)" ] &&
		[ "$(cut -f1 "$work/memory.tsv" | sort -u | wc -l)" = 12 ] || { echo "from memory: not 11 threads to their roots"; failed=1; }
	rm -f "$work/core"
fi

# No process to unwind.
"$offwind" unwind -q --format tsv --no-inline --pid 4194303 > "$work/none.tsv" 2> "$work/none.err" && failed=1
grep -q 'process 4194303: no such process' "$work/none.err" || { cat "$work/none.err"; failed=1; }
rm -f "$work/gone.$pid"
exit $failed
