#!/usr/bin/env bash
# Tests that a capture names stripped programs where neither they nor their debug files are: it stores parts of the debug
# files that the recording machine finds by build-id or by debug link, so the stacks are the live ones, with inlined calls.
set -u
[ "$(id -u)" = 0 ] || { echo "needs root"; exit 77; }
work=$(realpath "$BUILD")/live/raw_debug
rm -rf "$work"
mkdir -p "$work/there" "$work/debug" /usr/lib/debug || exit 1
offwind=$(realpath "$BUILD")/offwind
export OFFWIND_DB=
unset DEBUGINFOD_URLS
failures=0
fail() { echo "FAIL: $*"; cat "$work/log"; failures=$((failures + 1)); }

cat > "$work/a.c" <<'C'
#include <time.h>
static volatile unsigned sum;
static inline __attribute__((always_inline)) void inner(unsigned n) { for (unsigned i = 0; i < n; i++) sum += i; }
static __attribute__((noinline)) void leaf(unsigned n) { inner(n); }
static __attribute__((noinline)) int outer(unsigned n) { leaf(n); return 1; }
int main(void) { int n = 0; while (clock() < CLOCKS_PER_SEC / 2) n += outer(1000000); return n < 0; }
C
gcc -g -O1 -fomit-frame-pointer -Wl,--build-id=sha1 -o "$work/whole" "$work/a.c" || exit 1
id=$(readelf -n "$work/whole" | sed -n 's/.*Build ID: //p')
by_id=.build-id/${id:0:2}/${id:2}.debug
objcopy --only-keep-debug "$work/whole" "$work/small.debug" || exit 1
# Of this debug file a capture needs little.
head -c 8M /dev/urandom > "$work/noise"
objcopy --add-section .debug_loc="$work/noise" "$work/small.debug" "$work/large.debug" || exit 1
strip -s -o "$work/stripped" "$work/whole" || exit 1

# Run a command where the debug directory is another one.
with_debug_dir() { # DIR COMMAND…
	unshare -m bash -c 'mount --bind "$1" /usr/lib/debug || exit 1; shift; exec "$@"' - "$@"
}
# Run a command where neither the program nor any debug file is.
elsewhere() {
	unshare -m bash -c 'mount -t tmpfs none "$1" && mount -t tmpfs none /usr/lib/debug || exit 1; shift; exec "$@"' - "$work/there" "$@"
}
# Record the program, with a profile, and unwind the capture elsewhere: the profiles are the same.
check() { # WHAT OPTION…
	local what=$1
	shift
	with_debug_dir "$work/debug" "$offwind" record -q -F 299 "$@" --raw="$work/a.owc" -f folded -o "$work/live" -- "$work/there/a" > "$work/log" 2>&1 || fail "$what: record"
	grep -q ';main;outer;leaf;inner_\[i\] ' "$work/live" || fail "$what: the recording machine does not know the names"
	elsewhere "$offwind" unwind -q -f folded -o "$work/away" "$work/a.owc" 2> "$work/log" || fail "$what: unwind"
	diff <(sort "$work/live") <(sort "$work/away") > "$work/log" || fail "$what: live and elsewhere differ"
}
# Record only a capture, which walks nothing; unwind it here and elsewhere.
check_alone() { # WHAT
	with_debug_dir "$work/debug" "$offwind" record -q -F 299 --raw -o "$work/a.owc" -- "$work/there/a" > "$work/log" 2>&1 || fail "$1: record"
	with_debug_dir "$work/debug" "$offwind" unwind -q -f folded -o "$work/here" "$work/a.owc" 2> "$work/log" || fail "$1: unwind"
	grep -q ';main;outer;leaf;inner_\[i\] ' "$work/here" || fail "$1: the recording machine does not know the names"
	elsewhere "$offwind" unwind -q -f folded -o "$work/away" "$work/a.owc" 2> "$work/log" || fail "$1: unwind elsewhere"
	cmp "$work/here" "$work/away" > "$work/log" || fail "$1: here and elsewhere differ"
}
smaller() { # BYTES
	[ "$(stat -c %s "$work/a.owc")" -lt "$1" ]
}

cp "$work/stripped" "$work/there/a"
mkdir -p "$work/debug/${by_id%/*}"
for size in small large; do
	cp "$work/$size.debug" "$work/debug/$by_id"
	check "a $size debug file, by build-id"
	check_alone "a $size debug file, by build-id, without a profile"
	smaller $((8 << 20)) || fail "a $size debug file is stored as a whole"
done
check "a whole debug file" --with-files
smaller $((8 << 20)) && fail "--with-files does not store the whole debug file"

# What lies in the debug directory by another program's build-id is not used and not stored.
gcc -g -O1 -Wl,--build-id=0x0123456789abcdef -o "$work/other" "$work/a.c" && objcopy --only-keep-debug "$work/other" "$work/debug/$by_id" || exit 1
with_debug_dir "$work/debug" "$offwind" record -q -F 299 --raw="$work/a.owc" -f folded -o "$work/live" -- "$work/there/a" > "$work/log" 2>&1 || fail "another program's debug file: record"
grep -q outer "$work/live" && fail "another program's debug file is used"
elsewhere "$offwind" unwind -q -f folded -o "$work/away" "$work/a.owc" 2> "$work/log" || fail "another program's debug file: unwind"
grep -q outer "$work/away" && fail "another program's debug file is stored"
rm "$work/debug/$by_id"

# By debug link, beside the program.
cp "$work/large.debug" "$work/there/a.debug"
(cd "$work/there" && objcopy --add-gnu-debuglink=a.debug "$work/stripped" a) || exit 1
check "a debug file by link"
check_alone "a debug file by link, without a profile"
[ $failures = 0 ] || { echo "$failures failures"; exit 1; }
