#!/usr/bin/env bash
# Tests rules in PLTs of lld, which have no call frame information: the rules must follow from the
# instructions that objdump shows. An entry begins with the return address at [rsp], except the
# first entry, which begins after the word that the others push; every push adds 8.
set -u
work=$BUILD/diff-plt
rm -rf "$work"
mkdir -p "$work"
cat > "$work/a.c" <<'C'
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
static int by_length(const void *a, const void *b) { return (int)strlen(*(char *const *)a) - (int)strlen(*(char *const *)b); }
int main(int argc, char **argv) { qsort(argv, (size_t)argc, sizeof *argv, by_length); return puts(argv[0]) < 0 || getenv(argv[0]); }
C
clang -O2 -fuse-ld=lld -Wl,-z,lazy -o "$work/lazy" "$work/a.c" &&
	clang -O2 -fuse-ld=lld -Wl,-z,now -o "$work/now" "$work/a.c" &&
	clang -O2 -fuse-ld=lld -no-pie -Wl,-z,lazy -o "$work/fixed" "$work/a.c" &&
	clang -O2 -fuse-ld=lld -shared -fPIC -Wl,-z,lazy -o "$work/shared.so" "$work/a.c" || exit 1
failed=0
for f in lazy now fixed shared.so; do
	objdump -d -j .plt --no-show-raw-insn "$work/$f" | awk '
		/^[0-9a-f]+ </ { next }
		/^ *[0-9a-f]+:/ {
			at = $1; sub(":", "", at)
			if (substr(at, length(at)) == "0") cfa = n++ ? 8 : 16
			if ($2 !~ /^(int3|nop)/) printf "%s 7+%d -8\n", at, cfa
			if ($2 ~ /^push/) cfa += 8
		}' > "$work/$f.want"
	awk '{ print $1 }' "$work/$f.want" | "$BUILD/tests/diff/rule_at" "$work/$f" > "$work/$f.got"
	echo "$f: $(wc -l < "$work/$f.want") instructions of .plt"
	[ -s "$work/$f.want" ] && diff "$work/$f.want" "$work/$f.got" || failed=1
done
exit $failed
