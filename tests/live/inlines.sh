#!/usr/bin/env bash
# Compares inlined calls with their files and lines, in every format, with addr2line.
set -u
work=$BUILD/live/inlines
rm -rf "$work"; mkdir -p "$work"
cat > "$work/calls.c" <<'END'
volatile long n;
static inline __attribute__((always_inline)) void innermost(void) { for (long i = 0; i < 1000; i++) n += i; }
static inline __attribute__((always_inline)) void middle(void) {
	innermost();
	n++;
}
__attribute__((noinline)) void outer(void) {
	middle();
	n++;
}
#include <time.h>
int main(void) { while (clock() < CLOCKS_PER_SEC) outer(); } // a second of CPU time, however long that takes
END
gcc -O2 -g -o "$work/calls" "$work/calls.c" || exit 1
"$BUILD/offwind" record -q -F 499 -o "$work/p.pb.gz" --raw="$work/p.owc" -- "$work/calls" || exit 1
exec timeout 300 python3 tests/live/inlines.py "$BUILD/offwind" "$work"
