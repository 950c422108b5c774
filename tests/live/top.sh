#!/usr/bin/env bash
# Tests offwind top in a pseudo-terminal: keys, sizes, every way to quit.
set -u
export WORK=$BUILD/live/top
rm -rf "$WORK"; mkdir -p "$WORK"
printf '%s\n' 'volatile long n;' '__attribute__((noinline)) void spin_in_top(void) { for (long i = 0; i < 100000; i++) n += i; }' \
	'int main(void) { for (;;) spin_in_top(); }' |
	${CC:-gcc} -O1 -x c -o "$WORK/spin_here" - || exit 1
exec timeout 800 python3 tests/live/top.py "$BUILD/offwind"
