#!/usr/bin/env bash
# Tests liboffwind as its users have it: installed into a directory of its own, found by pkg-config,
# with the example of its manual page compiled against it, shared and static. It unwinds recorded
# threads to the expected frames.
set -u
. tests/corpus.sh
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
failures=0

fail() {
	echo "FAIL: $*"
	failures=$((failures + 1))
}

make -s install BUILD="$BUILD" DESTDIR="$dir" PREFIX=/usr >"$dir/log" 2>&1 || fail "make install: $(cat "$dir/log")"
export PKG_CONFIG_PATH=$dir/usr/lib/pkgconfig PKG_CONFIG_SYSROOT_DIR=$dir PKG_CONFIG_ALLOW_SYSTEM_LIBS=1 PKG_CONFIG_ALLOW_SYSTEM_CFLAGS=1
version=$(sed -n 's/^VERSION := //p' Makefile)
lib=$dir/usr/lib

echo "== what it shows"
[ "$(pkg-config --modversion liboffwind)" = "$version" ] || fail "pkg-config's version"
[ "$(readelf -d "$lib/liboffwind.so" | sed -n 's/.*SONAME.*\[\(.*\)\]/\1/p')" = liboffwind.so.0 ] || fail SONAME
[ "$(readlink "$lib/liboffwind.so.0")" = "liboffwind.so.$version" ] || fail "liboffwind.so.0"
python3 deploy/man3.py --names unwinder/unwinder.h unwinder/cursor.h unwinder/walker.h >"$dir/declared"
grep '^uw_' "$BUILD/lib/liboffwind.map" | tr -d ';' >"$dir/listed"
nm -D --defined-only "$lib/liboffwind.so" | awk '$2 != "A" { sub(/@.*/, "", $3); print $3 }' | sort >"$dir/shared"
nm --defined-only --extern-only "$lib/liboffwind.a" | awk 'NF == 3 { print $3 }' | sort >"$dir/static"
for list in listed shared static; do
	LC_ALL=C sort -o "$dir/$list" "$dir/$list"
	cmp "$dir/declared" "$dir/$list" || fail "$list is not what the headers declare: $(diff "$dir/declared" "$dir/$list")"
done
readelf -d "$lib/liboffwind.so" | sed -n 's/.*NEEDED.*\[\(.*\)\]/\1/p' | grep -vE '^(libc|libz|libzstd|liblzma|libpthread|ld-linux.*)\.so' && fail "it needs more"

echo "== a manual page each"
while read -r name; do
	grep -q '^.SH DESCRIPTION' "$dir/usr/share/man/man3/$name.3" || fail "no comment to make a manual page of: $name"
done <"$dir/declared"
# One run of groff formats all pages, as man does for one.
LC_ALL=C.UTF-8 groff -Kutf8 -man -Tutf8 -ww -Wbreak "$dir"/usr/share/man/man3/*.3 >"$dir/pages" 2>"$dir/log" || fail groff
[ ! -s "$dir/log" ] || fail "groff warns: $(head -5 "$dir/log")"
MANWIDTH=100 man -E UTF-8 -l "$dir/usr/share/man/man3/uw_cursor_step.3" | grep -q 'int uw_cursor_step(struct uw_cursor \*cursor);' || fail "its synopsis"

echo "== the example"
[ "$(wc -l <examples/snapshot.c)" -le 60 ] || fail "it has more than 60 lines"
gcc -std=c17 -Wall -Wextra -Werror -D_GNU_SOURCE -O1 examples/snapshot.c $(pkg-config --cflags --libs liboffwind) -o "$dir/shared-example" || fail shared
gcc -std=c17 -O1 examples/snapshot.c $(pkg-config --cflags liboffwind) $(pkg-config --static --libs liboffwind | sed 's/-loffwind/-l:liboffwind.a/') \
	-o "$dir/static-example" || fail static
ldd "$dir/static-example" | grep offwind && fail "it is not static"
echo '#include <offwind/unwinder.h>
int main() { return uw_reg_find(62, "rip") - 16; }' >"$dir/plus.cc"
g++ -std=c++17 -Wall -Wextra -Werror "$dir/plus.cc" $(pkg-config --cflags --libs liboffwind) -o "$dir/plus" && LD_LIBRARY_PATH=$lib "$dir/plus" || fail "C++"

for header in "$dir"/usr/include/offwind/*.h; do
	echo "#include <offwind/${header##*/}>" | gcc -std=c17 -Wall -Wextra -Werror $(pkg-config --cflags liboffwind) -fsyntax-only -x c - || fail "$header alone"
done

cases=0
for case in bluetooth_arm64-pc_1 bluetooth_arm64-pc_2 eh_frame_hdr_begin_x86_64 photos_reset_arm64 straddle_arm64; do
	folder=$corpus/libunwindstack/$case
	LD_LIBRARY_PATH=$lib "$dir/shared-example" "$folder" >"$dir/a" || fail "$case"
	"$dir/static-example" "$folder" >"$dir/b" || fail "$case, static"
	cmp "$dir/a" "$dir/b" || fail "$case: static and shared differ"
	python3 - "$case" "$dir/a" >"$dir/log" <<'P'
import sys
# Interpreted frames (dex) have no machine code. The expected addresses are moved back into the call by pc_adj; code
# that is not mapped from a file has its pc.
want = [f for f in (line.rstrip('\n').split('\t') for line in open('../shared/corpus/expected/libunwindstack.tsv')) if f[0] == sys.argv[1] and f[9:] != ['dex']]
got = [line.split() for line in open(sys.argv[2]) if not line.startswith('stop')]
for f, g in zip(want, got):
    right = {int(v, 16) + d for v in (f[3], f[7]) if v != '-' for d in (0, int(f[6]))}
    if int(g[1], 16) not in right:
        print('frame', f[1], 'is', g[1], 'not', f[3])
if len(want) != len(got) or not want:
    print(len(got), 'frames, not', len(want))
P
	[ ! -s "$dir/log" ] && cases=$((cases + 1)) || fail "$case: $(cat "$dir/log")"
done
echo "$cases recorded threads as expected"
[ $failures = 0 ] || { echo "$failures failures"; exit 1; }
