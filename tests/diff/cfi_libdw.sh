#!/usr/bin/env bash
# Compares our rows of call frame information with libdw's, for installed packages and arm64
# packages: one file in six here, all files with "all" (make check-corpus).
set -u
work=$BUILD/diff-libdw
rm -rf "$work"
mkdir -p "$work"
arm64=(libc6 libgcc-s1 libstdc++6 libssl3 openssl bash perl-base)
sample=(-s 6)
if [ "${1:-}" = all ]; then
	sample=()
	arm64+=(git coreutils sqlite3 libsqlite3-0 python3.11-minimal libpython3.11-stdlib libllvm14 libclang-cpp14 \
		cpp-12 nodejs libnode108 gdb binutils-aarch64-linux-gnu systemd libsystemd-shared libgnutls30 \
		libgcrypt20 libglib2.0-0 libicu72 libgmp10 libx264-164 libavcodec59 golang-1.19-go rustc libstd-rust-1.63)
fi

# Forms that the installed packages lack.
cat > "$work/a.c" <<'C'
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
static int by_length(const void *a, const void *b) { return (int)strlen(*(char *const *)a) - (int)strlen(*(char *const *)b); }
int main(int argc, char **argv) { qsort(argv, (size_t)argc, sizeof *argv, by_length); return puts(argv[0]) < 0; }
C
cat > "$work/a.go" <<'G'
package main

import "fmt"

func main() { fmt.Println("rows") }
G
{
	clang -O2 -g -fuse-ld=lld -o "$work/lld" "$work/a.c" &&
	clang -O2 -fuse-ld=lld -Wl,-z,retpolineplt -o "$work/lld_retpoline" "$work/a.c" &&
	clang -O2 -fuse-ld=lld -static -ffunction-sections -g -fno-asynchronous-unwind-tables -Wl,--gc-sections \
		-o "$work/lld_gc" "$work/a.c" &&
	gcc -O2 -Wl,--no-eh-frame-hdr -o "$work/no_header" "$work/a.c" &&
	objcopy --remove-section .eh_frame_hdr "$work/lld" "$work/lld_no_header" &&
	gcc -O2 -g -fno-asynchronous-unwind-tables -o "$work/debug_frame" "$work/a.c" &&
	objcopy --compress-debug-sections=zlib "$work/debug_frame" "$work/debug_frame_zlib" &&
	objcopy --compress-debug-sections=zlib-gnu "$work/debug_frame" "$work/debug_frame_zdebug" &&
	GOCACHE=$(realpath "$BUILD")/go-cache go build -o "$work/go_compressed" "$work/a.go" &&
	GOCACHE=$(realpath "$BUILD")/go-cache go build -ldflags=-compressdwarf=false -o "$work/go_plain" "$work/a.go" &&
	GOARCH=arm64 GOCACHE=$(realpath "$BUILD")/go-cache go build -o "$work/go_arm64" "$work/a.go"
} > "$work/make.log" 2>&1 || { cat "$work/make.log"; exit 1; }
readelf -SW "$work/go_compressed" | grep -Eq '\.z?debug_frame' || { echo "go made no .debug_frame"; exit 1; }
find "$work" -maxdepth 1 -type f | "$BUILD/tests/diff/cfi_libdw" > "$work/made.log" || { cat "$work/made.log"; exit 1; }
tail -n 3 "$work/made.log"
find "$work" -maxdepth 1 -type f -perm -100 -exec "$BUILD/tests/diff/table_oracle" {} + > "$work/oracle" ||
	{ tail -n 20 "$work/oracle"; exit 1; }
[ "$(wc -l < "$work/oracle")" = 11 ] || { echo "not 11 tables:"; cat "$work/oracle"; exit 1; }
# The same with sanitizers, for which the installed files would take too long.
find "$work" -maxdepth 1 -type f ! -name 'go_*' | ASAN_OPTIONS=$ASAN_OPTIONS:detect_leaks=0 \
	"$BUILD/asan/tests/diff/cfi_libdw" > "$work/asan.log" 2>&1 || { cat "$work/asan.log"; exit 1; }

tests/arm64.sh "${arm64[@]}"
case $? in
0) find "$BUILD/arm64/root" -type f > "$work/arm64" ;;
77) [ "${1:-}" != all ] || exit 1 ;;
*) exit 1 ;;
esac
failed=0
if [ -s "$work/arm64" ]; then
	"$BUILD/tests/diff/cfi_libdw" -o "$work/overlaps" -l "$work/compared" -x tests/diff/cfi_exceptions.md < "$work/arm64" || failed=1
fi
cat /var/lib/dpkg/info/*.list | LC_ALL=C sort -u |
	"$BUILD/tests/diff/cfi_libdw" "${sample[@]}" -o "$work/overlaps" -l "$work/compared" -x tests/diff/cfi_exceptions.md || failed=1

# FDEs that share addresses: libdw shows only the first of them, readelf shows all.
if [ -s "$work/overlaps" ]; then
	mapfile -t files < "$work/overlaps"
	tests/diff/cfi_readelf.py "$BUILD/tests/diff/cfi_dump" "${files[@]}" || failed=1
fi

# Compare the compiled table with the interpreter, for all of these files as well.
if [ "${1:-}" = all ]; then
	xargs -d '\n' -P "$(nproc)" -n 50 "$BUILD/tests/diff/table_oracle" < "$work/compared" > "$work/oracle" 2> "$work/oracle.err" ||
		{ failed=1; tail -n 20 "$work/oracle.err"; }
	awk -F '\t' '{ rows += $2; from += $3; to += $4; n++ }
		END { printf "%d files, %d rows: table and interpreter compared; table %.3f of its source\n", n, rows, to / from
			if (rows < 1000000) exit 1 }' "$work/oracle" || failed=1
fi
exit $failed
