#!/usr/bin/env bash
# Tests --symfs, which adds to the host's files: in it a file is found at its path, by its base name
# and by its build-id, and what is not there comes from the host. Files are also found if there is
# no /proc.
set -u
. tests/perf.sh
work=$BUILD/live/symfs
rm -rf "$work"; mkdir -p "$work"
work=$(realpath "$work") offwind=$(realpath "$BUILD")/offwind
failures=0
fail() { echo "FAIL: $*"; failures=$((failures + 1)); }

cat > "$work/a.c" <<'C'
#include <stdlib.h>
#include <time.h>
static int compare(const void *a, const void *b) { return *(const int *)a - *(const int *)b; }
int main(void)
{
	static int numbers[100000];
	do {
		for (int i = 0; i < 100000; i++) numbers[i] = rand();
		qsort(numbers, 100000, sizeof(*numbers), compare);
	} while (clock() < CLOCKS_PER_SEC / 2);
	return 0;
}
C
gcc -O1 -g -fomit-frame-pointer -o "$work/prog" "$work/a.c" || exit 1
perf_record -e cpu-clock -F 199 --call-graph dwarf -o "$work/data" -- "$work/prog" > "$work/log" 2>&1 || { cat "$work/log"; exit 1; }
HOME=$work "$offwind" unwind -q --no-lines --format tsv "$work/data" > "$work/want" 2> "$work/log"
grep -q $'\tcompare\t' "$work/want" && grep -q $'\tlibc.so.6\t' "$work/want" || { fail "no stacks to compare"; head "$work/want" "$work/log"; }

id=$(readelf -n "$work/prog" | awk '/Build ID/ { print $3 }')
cp "$work/prog" "$work/kept" && rm "$work/prog"
# same HOW OPTION…: the program is found, and so is libc
same() {
	local how=$1
	shift
	HOME=$work "$offwind" unwind -q --no-lines --format tsv "$@" "$work/data" > "$work/got" 2> "$work/log"
	cmp "$work/want" "$work/got" || { fail "$how: other stacks"; head -n 5 "$work/log"; }
}
mkdir -p "$work/s/$work" && cp "$work/kept" "$work/s/$work/prog"
same "at its path" --symfs "$work/s"
rm -r "$work/s" && mkdir -p "$work/s/opt/real" && cp "$work/kept" "$work/s/opt/real/prog"
mkdir -p "$work/s/opt/another" && cp /bin/true "$work/s/opt/another/prog"
same "by its base name" --symfs "$work/s"
rm -r "$work/s" && mkdir -p "$work/s/.build-id/${id:0:2}" && cp "$work/kept" "$work/s/.build-id/${id:0:2}/${id:2}"
same "by build-id" --symfs "$work/s"
rm -r "$work/s" && mkdir -p "$work/s/usr/lib/debug/.build-id/${id:0:2}" && cp "$work/kept" "$work/s/usr/lib/debug/.build-id/${id:0:2}/${id:2}"
same "by build-id in a debug root" --symfs "$work/s"
cp /bin/true "$work/prog"
same "although the host has another one" --symfs "$work/s"

# In a chroot or a scratch image there may be no /proc.
cp "$work/kept" "$work/prog"
unshare -m bash -c 'mount -t tmpfs none /proc && exec "$@"' - env HOME="$work" \
	"$offwind" unwind -q --no-lines --format tsv "$work/data" > "$work/got" 2> "$work/log"
cmp "$work/want" "$work/got" || { fail "without /proc: other stacks"; head -n 5 "$work/log"; }
[ $failures = 0 ] || { echo "$failures failures"; exit 1; }
