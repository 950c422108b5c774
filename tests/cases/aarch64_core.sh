#!/usr/bin/env bash
# Unwinds core files of aarch64 programs that crash under qemu. The cores do not list files. The
# walks lead from the fault back to _start: through a signal handler and qemu's trampoline, with
# signed return addresses, and by frame pointers if the program has no unwind information.
set -u
work=$BUILD/aarch64_core
rm -rf "$work"
mkdir -p "$work"
offwind=$PWD/$BUILD/asan/offwind
cat > "$work/fault.c" <<'C'
#include <signal.h>
__attribute__((noinline)) int inner(int *p) { return *(volatile int *)p; }
__attribute__((noinline)) int middle(int n)
{
	volatile char room[100];
	room[n] = (char)n;
	return (n ? middle(n - 1) : inner((int *)8)) + room[n];
}
static void on_signal(int signo) { volatile int sum = middle(2); (void)signo; (void)sum; }
__attribute__((noinline)) int raiser(void) { return raise(SIGUSR1) + 1; }
int main(int argc, char **argv)
{
	signal(SIGUSR1, on_signal);
	return (argc > 1 ? middle(2) : raiser()) + 1;
}
C
end='main __libc_start_call_main __libc_start_main _start'
failed=0
ulimit -c 32768
n=0

check() { # NAME ARGUMENT FRAMES-BEFORE-MAIN STEPPERS-OF-THE-FIRST-CALLERS FLAGS…
	local name=$1 argument=$2 want="$3 $end" steppers=$4 core got
	shift 4
	aarch64-linux-gnu-gcc -static -w -o "$work/$name" "$@" "$work/fault.c" || { failed=1; return; }
	(cd "$work" && qemu-aarch64-static "./$name" $argument) > "$work/out" 2>&1
	core=$(ls "$work"/qemu_"$name"_*.core)
	rm -f "$work/core"*
	"$offwind" unwind -q --format tsv --no-inline --exe "$work/$name" "$core" > "$work/$name.tsv" || failed=1
	# The functions that raise calls depend on the C library.
	got=$(sed 1d "$work/$name.tsv" | cut -f5 | grep -v pthread_kill | tr '\n' ' ')
	[ "${got% }" = "$want" ] || { echo "$name: $got"; cat "$work/$name.tsv"; failed=1; }
	got=$(sed -n 3,4p "$work/$name.tsv" | cut -f7 | tr '\n' ' ')
	[ "${got% }" = "$steppers" ] || { echo "$name: by $got"; failed=1; }
	[ "$(cut -f8 "$work/$name.tsv" | sort -u | tr '\n' ' ')" = "root stop " ] || { echo "$name: no root"; failed=1; }
	"$offwind" explain -q --json --exe "$work/$name" "$core" | grep -q '"differs"' && { echo "$name: explained otherwise"; failed=1; }
	n=$((n + 1))
}

signal='inner middle middle middle on_signal - raise raiser'
direct='inner middle middle middle'
no_cfi='-fno-omit-frame-pointer -fno-asynchronous-unwind-tables -fno-unwind-tables'
check plain '' "$signal" 'cfi cfi' -O2
check signed '' "$signal" 'cfi cfi' -O2 -mbranch-protection=standard
check slow '' "$signal" 'cfi cfi' -O0
check chained 1 "$direct" 'leaf fp' -O2 $no_cfi
check chained_signed 1 "$direct" 'leaf fp' -O2 -mbranch-protection=standard $no_cfi
check chained_slow 1 "$direct" 'leaf fp' -O0 $no_cfi
echo "$n cores of qemu"
[ "$failed" = 0 ] && [ $n = 6 ]
