#!/usr/bin/env bash
# Tests a program with eight million rows of unwind information, which take 128 MB where each takes 16 bytes, as in
# the tables of profilers that unwind in the kernel: with 400 MiB of memory it is recorded, its table is
# compiled and stored, and every stack is right.
set -u
. tests/recorder.sh
python3 tests/faults/many_rows.py "$dir" 100000 40 || exit 1
cat >"$dir/big.s" <<S
.section .big,"ax",@progbits
.globl big
big: .incbin "$dir/code.bin"
.section .eh_frame,"a",@progbits
.incbin "$dir/frame.bin"
.section .note.GNU-stack,"",@progbits
S
cat >"$dir/main.c" <<'C'
#include "size.h"
#include <time.h>
extern char big[];
static volatile unsigned long x;
static __attribute__((noinline)) void leaf(void)
{
	for (int i = 0; i < 20000; i++)
		x += (unsigned long)i;
}
int main(void)
{
	unsigned int k = 0;

	while (clock() < 2 * CLOCKS_PER_SEC) {
		((void (*)(void (*)(void)))(big + (unsigned long)(k % N) * SIZE))(leaf);
		k = k * 1103515245u + 12345u;
	}
	return 0;
}
C
# The linker cannot index addresses that are no relocations, and says so.
gcc -O1 -o "$dir/prog" "$dir/main.c" "$dir/big.s" -no-pie -static -Wl,--section-start=.big=0x10000000 2>"$dir/err" || { cat "$dir/err"; exit 1; }

export OFFWIND_DB=$dir/store.db
limited() { # COMMAND…: with 400 MiB of memory of its own
	(ulimit -d $((400 << 10)) && "$@")
}
right() { # FILE: of the stacks with leaf, nearly all have main, big and leaf, in this order
	awk '/;leaf / { n += $NF } /main;big;leaf / { good += $NF }
		END { print good + 0, "of", n + 0; exit !(n > 100 && good >= n * .99) }' "$1"
}
limited "$offwind" record -q -F 499 -f folded -o "$dir/live" -- "$dir/prog" || fail "record: exit $?"
right "$dir/live" || fail "record: $(head -n 5 "$dir/live")"
limited "$offwind" record -q --raw -F 499 -o "$dir/x.owc" -- "$dir/prog" || fail "record --raw: exit $?"
limited "$offwind" cache prefetch "$dir/prog" >"$dir/out" 2>&1 || fail "prefetch: $(cat "$dir/out")"
rows=$(sqlite3 "$OFFWIND_DB" "select max(n_rows) from tables")
[ "$rows" -ge 8000000 ] || fail "the stored table has $rows rows"
for options in "" --no-cache; do
	limited "$offwind" unwind -q $options -f folded -o "$dir/stacks" "$dir/x.owc" || fail "unwind $options: exit $?"
	right "$dir/stacks" || fail "unwind $options: $(head -n 5 "$dir/stacks")"
done
exit $((failures > 0))
