#!/usr/bin/env bash
# Compares our rows with readelf's: the system's ELF files, every form of .debug_frame that gcc and
# clang make, and files of other systems from the corpus if it is there.
set -u
work=$BUILD/diff-cfi
rm -rf "$work"
mkdir -p "$work"
cat > "$work/a.c" <<'C'
#include <alloca.h>
#include <string.h>
struct big { char bytes[70000]; };
__attribute__((noinline)) int aligned(int n) { __attribute__((aligned(64))) int a[16]; memset(a, n, sizeof a); return a[n & 15]; }
__attribute__((noinline)) int grown(int n) { char *p = alloca((unsigned)n); memset(p, n, (unsigned)n); return p[n / 2]; }
__attribute__((noinline)) int large(struct big b, int n) { struct big c = b; return c.bytes[n] + aligned(n); }
int main(int argc, char **argv) { static struct big b; (void)argv; return large(b, argc) + grown(argc) + (argc > 3 ? main(argc - 1, argv) : 0); }
C
make_one() { # name command…
	local name=$1
	shift
	"$@" -g -fno-asynchronous-unwind-tables -fno-exceptions -o "$work/$name" "$work/a.c" || exit 1
}
make_one debug_frame gcc -O2
make_one debug_frame_dwarf2 gcc -O1 -gdwarf-2
make_one debug_frame_dwarf3 gcc -O1 -gdwarf-3
make_one debug_frame_dwarf4 gcc -O0 -gdwarf-4
make_one debug_frame_zlib gcc -O2 -gz=zlib
make_one debug_frame_zdebug gcc -O2 -gz=zlib-gnu
make_one debug_frame_dwarf64 gcc -O2 -gdwarf64
make_one debug_frame_clang clang -O2
gcc -O2 -o "$work/no_header" "$work/a.c" -Wl,--no-eh-frame-hdr || exit 1
for f in debug_frame_zlib debug_frame_dwarf64 no_header; do
	"$BUILD/asan/tests/diff/cfi_dump" "$work/$f" > /dev/null 2> "$work/asan.log" || { cat "$work/asan.log"; exit 1; }
done

lib=/usr/lib/x86_64-linux-gnu
files=("$work"/debug_frame* "$work/no_header")
for f in /lib64/ld-linux-x86-64.so.2 $lib/{libc.so.6,libm.so.6,libcrypto.so.3,libssl.so.3,libstdc++.so.6} \
	$lib/{libgcc_s.so.1,libz.so.1,libzstd.so.1,liblzma.so.5,libelf.so.1,libdw.so.1,libsqlite3.so.0} \
	$lib/{libprotobuf-c.so.1,libunwind.so.8,libbpf.so.1,libtinfo.so.6,libexpat.so.1,libselinux.so.1,libgcrypt.so.20} \
	/usr/bin/{python3,git,sqlite3,openssl,perf,bash,ls,xz,make,readelf,gcc,as,awk,sed,tar,find,gzip} \
	"$BUILD/offwind" $(find "$BUILD/corpus" -type f -name '*.so' -path '*64*' 2> "$work/find.log"); do
	[ -f "$f" ] && [ "$(head -c 5 "$f" | od -An -tx1)" = " 7f 45 4c 46 02" ] && files+=("$f")
done
tests/diff/cfi_readelf.py "$BUILD/tests/diff/cfi_dump" "${files[@]}"
