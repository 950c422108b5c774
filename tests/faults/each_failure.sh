#!/usr/bin/env bash
# Tests that each allocation and each call of input and output may fail: see each_failure.py. Some
# calls are tried here; OFFWIND_ALL_FAILURES=1 (make check-faults) tries all of them.
set -u
work=$BUILD/faults/each_failure
rm -rf "$work"
mkdir -p "$work/start"
program=$BUILD/asan/tests/faults/inject/inject
cat >"$work/main.c" <<'C'
#include <string.h>
static __attribute__((noinline)) int deeper(int n, volatile char *p) { volatile char room[64]; room[n & 63] = 1; if (!n) { for (long i = 0; i < 150000000; i++) (*p)++; return 0; } return deeper(n - 1, room) + room[n & 63]; }
int main(void) { char c = 0; return deeper(12, &c) == 99; }
C
gcc -O1 -g -fno-omit-frame-pointer -fno-optimize-sibling-calls -o "$work/start/busy" "$work/main.c" || exit 1
for i in 1 2 3 4 5; do
	(cd "$work/start" && perf record -q -F 499 -e cpu-clock --call-graph dwarf,8192 -o perf.data ./busy) >"$work/log" 2>&1
	"$BUILD/offwind" unwind -q -o "$work/start/profile.pb.gz" "$work/start/perf.data" && break
done
chmod 600 "$work/start/profile.pb.gz"
cases=(
	"unwind	{offwind} unwind -q --db store.db -o profile.pb.gz perf.data"
	"folded	{offwind} unwind -q --format folded -o stacks perf.data"
	"explain	{offwind} explain perf.data"
	"prefetch	{offwind} cache prefetch -j1 --db store.db busy"
	"report	{offwind} report --format folded -o stacks profile.pb.gz"
	"page	{offwind} flamegraph -o page.html profile.pb.gz"
)
if [ "$(id -u)" = 0 ] && "$BUILD/offwind" doctor >/dev/null 2>&1; then
	# A run has a busy process of its own, which ends with it.
	busy="(ulimit -t 60; while :; do :; done) & trap 'kill \$!' EXIT; {offwind} record -p \$!"
	cases+=("record*	$busy -d 0.2 -F 499 -o profile.pb.gz" "raw*	$busy -q -d 0.1 -F 499 --raw -o capture.owc")
else
	echo "record is left out: it needs root and BPF"
fi
[ "${OFFWIND_ALL_FAILURES:-}" ] && share=1 || share=10
python3 tests/faults/each_failure.py "$program" "$work" 12 "$share" "${cases[@]}"
