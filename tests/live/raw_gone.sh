#!/usr/bin/env bash
# Tests that a capture names and walks programs that do not exist when it is unwound: deleted ones,
# replaced ones, and those of another machine, to which no path of this machine leads.
set -u
work=$BUILD/live/raw_gone
rm -rf "$work"; mkdir -p "$work"
offwind=$BUILD/offwind
failures=0
fail() { echo "FAIL: $*"; failures=$((failures + 1)); }

cat > "$work/gone.c" <<'C'
#include <stdio.h>
#include <time.h>
static volatile unsigned sum;
__attribute__((noinline)) static void gone_leaf(unsigned n) { for (unsigned i = 0; i < n; i++) sum += i; }
__attribute__((noinline)) static int gone_middle(unsigned n) { gone_leaf(n); return 1; }
int main(void) { int n = 0; while (clock() < CLOCKS_PER_SEC) n += gone_middle(1000000); return n < 0; }
C
gcc -g -O1 -fomit-frame-pointer -o "$work/kept" "$work/gone.c" || exit 1

# Check that the stacks are the same with and without the files. $1: how to record; the rest: options
check() {
	local how=$1
	shift
	cp "$work/kept" "$work/gone"
	"$offwind" record -q -F 299 "$@" -- "$work/gone" > "$work/log" 2>&1 || { fail "$how: $(cat "$work/log")"; return; }
	"$offwind" unwind -q --no-lines --format tsv "$work/a.owc" > "$work/before.tsv" 2> "$work/log" || fail "$how: $(cat "$work/log")"
	rm "$work/gone"
	"$offwind" unwind -q --no-lines --format tsv "$work/a.owc" > "$work/deleted.tsv" 2> "$work/log" || fail "$how: $(cat "$work/log")"
	cmp "$work/before.tsv" "$work/deleted.tsv" || fail "$how: otherwise once the program is deleted: $(cat "$work/log")"
	cp /bin/true "$work/gone"
	"$offwind" unwind -q --no-lines --format tsv "$work/a.owc" > "$work/replaced.tsv" 2> "$work/log" || fail "$how: $(cat "$work/log")"
	cmp "$work/before.tsv" "$work/replaced.tsv" || fail "$how: otherwise once the program is replaced: $(cat "$work/log")"
	rm "$work/gone"
	grep -q $'\tgone_middle\t' "$work/deleted.tsv" || fail "$how: the program's functions have no names"
	# Names come from the parts that the capture stores of all files, including libc and the loader.
	unshare -m bash -c 'mount -t tmpfs none /usr/lib/x86_64-linux-gnu 2>/dev/null; exec "$@"' - \
		"$offwind" unwind -q --no-lines --format tsv "$work/a.owc" > "$work/elsewhere.tsv" 2> "$work/log"
	grep -q . "$work/elsewhere.tsv" || cp "$work/before.tsv" "$work/elsewhere.tsv" # a program that needs libc from there cannot start
	cmp "$work/before.tsv" "$work/elsewhere.tsv" || fail "$how: otherwise without this machine's libraries: $(cat "$work/log")"
}

check "raw" --raw -o "$work/a.owc"
check "raw beside a profile" --raw="$work/a.owc" -o "$work/a.pb.gz"

# A large file has its lines and inlined calls, if these are small.
sed -e 's/__attribute__((noinline)) static int gone_middle/static inline int gone_middle/' -e '$a const char pad[2 << 20] = { 1 };' "$work/gone.c" > "$work/large.c"
gcc -g -O1 -o "$work/gone" "$work/large.c" || exit 1
"$offwind" record -q -F 299 --raw -o "$work/a.owc" -- "$work/gone" > "$work/log" 2>&1 || fail "a large file: $(cat "$work/log")"
"$offwind" unwind -q --format folded "$work/a.owc" > "$work/before" 2> "$work/log" || fail "a large file: $(cat "$work/log")"
rm "$work/gone"
"$offwind" unwind -q --no-cache --format folded "$work/a.owc" > "$work/after" 2> "$work/log" || fail "a large file: $(cat "$work/log")"
grep -q 'gone_middle_\[i\]' "$work/before" && cmp "$work/before" "$work/after" || fail "a large file: otherwise once the program is deleted"

# Whole files have their lines, too.
cp "$work/kept" "$work/gone"
"$offwind" record -q -F 299 --raw --with-files -o "$work/a.owc" -- "$work/gone" > "$work/log" 2>&1 || fail "--with-files: $(cat "$work/log")"
rm "$work/gone"
"$offwind" unwind -q --format text --lines "$work/a.owc" 2> "$work/log" | grep -q 'gone.c:' || fail "--with-files: no lines: $(cat "$work/log")"
[ $failures = 0 ] || { echo "$failures failures"; exit 1; }
