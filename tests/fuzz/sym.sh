#!/usr/bin/env bash
# Fuzzes the readers of foreign symbols from real seeds.  FUZZ_SECONDS (5) each;
# a finding is left in $BUILD/fuzz-findings/ and printed.
set -eu
seconds=${FUZZ_SECONDS:-5}
work=$BUILD/fuzz-seeds/sym
rm -rf "$work"
mkdir -p "$work"/{table,kernel,names} "$BUILD/fuzz-findings"

# ELF files with .symtab, .dynsym, PLTs of both kinds, MiniDebugInfo, and the 32-bit class.
cat > "$work/a.c" <<'C'
#include <stdio.h>
int helper(int n) { return n * 3; }
__attribute__((weak)) int weak(int n) { return helper(n) + 1; }
int main(int argc, char **argv) { puts(argv[0]); return weak(argc); }
C
gcc -O1 -o "$work/table/plain" "$work/a.c"
gcc -O1 -fcf-protection=full -Wl,-z,lazy -Wl,-z,ibtplt -o "$work/table/ibt" "$work/a.c"
gcc -O1 -m32 -c -o "$work/a32.o" "$work/a.c"
ld -m elf_i386 -shared -o "$work/table/narrow" "$work/a32.o" 2> "$work/ld.log"
cp "$work/table/plain" "$work/mini"
objcopy -S --keep-symbol=helper "$work/mini" "$work/mini.debug"
xz -c "$work/mini.debug" > "$work/mini.xz"
strip "$work/mini"
objcopy --add-section .gnu_debugdata="$work/mini.xz" "$work/mini" "$work/table/mini"
head -c 4000 /proc/kallsyms > "$work/kernel/head"
printf 'ffffffffc0101000 t ext4_open\t[ext4]\nffffffffc0200000 t p\t[bpf]\n' > "$work/kernel/modules"
n=0
nm -D --defined-only "$(gcc -print-file-name=libstdc++.so.6)" | awk 'NR % 40 == 0 { sub(/@.*/, "", $3); print $3 }' |
while read -r name; do
	n=$((n + 1))
	printf %s "$name" > "$work/names/cpp$n"
done
printf %s _ZN4core3fmt9Formatter3pad17h0123456789abcdefE.llvm.12 > "$work/names/rust_legacy"
printf %s _RNqCs4fqI2P2rA04_11utf8_identsu30____7hkackfecea1cbdathfdh9hlq6y > "$work/names/rust_v0"
printf %s _RINbNbCskIICzLVPPb_5alloc5alloc8box_freeDINbNiB4_5boxed5FnBoxuEp6OutputuEL_ECs1iopQbuBiw2_3std \
	> "$work/names/rust_dyn"

for target in table kernel names; do
	log=$work/$target.log
	case $target in names) length=2000 ;; *) length=65536 ;; esac
	if ! "$BUILD/fuzz/tests/fuzz/fuzz_sym_$target" -max_total_time="$seconds" -max_len=$length -timeout=10 -verbosity=0 -print_final_stats=1 \
		-rss_limit_mb=2048 -artifact_prefix="$BUILD/fuzz-findings/sym_$target-" \
		"$work/$target" > "$log" 2>&1; then
		echo "fuzz_sym_$target found something:"
		tail -n 60 "$log"
		exit 1
	fi
	sed -n "s/^stat::number_of_executed_units:/$target: inputs run/p" "$log"
done
