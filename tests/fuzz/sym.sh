#!/usr/bin/env bash
# Fuzzes the readers of foreign symbols, starting from real files.
set -eu
trap 'echo "line $LINENO fails: $BASH_COMMAND"' ERR
work=$BUILD/fuzz/sym.seeds
rm -rf "$work"
mkdir -p "$work"/{table,kernel,names,debug,lines,jit,split,stored}

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
python3 tests/fuzz/gopclntab.py "$work/gopclntab" 0x1000
objcopy -R .gnu_debugdata --add-section .gopclntab="$work/gopclntab" "$work/mini" "$work/table/go"
# A library with the tables of functions that are built into V8.
{
	cat <<'S'
	.text
	.macro loads name, where
	.globl \name
	.type \name, @function
\name:	lea \where(%rip), %rax
	ret
	.size \name, . - \name
	.endm
	loads _ZN2v88internal23DefaultEmbeddedBlobCodeEv, block_at
	loads _ZN2v88internal27DefaultEmbeddedBlobCodeSizeEv, size
	loads _ZN2v88internal23DefaultEmbeddedBlobDataEv, parts_at
	loads _ZN2v88internal8Builtins4nameENS0_7BuiltinE, names
	.balign 64
block:	.fill 70 * 64, 1, 0x90
	.section .rodata
size:	.long 70 * 64
parts:	.quad 0, 0, 0
S
	for i in {0..69}; do echo ".long $i * 64, 40, 0, 0, 0, 0, 0"; done
	for i in {0..69}; do echo "name$i: .string \"Part$i\""; done
	echo '.section .data.rel.ro, "aw"; block_at: .quad block; parts_at: .quad parts; names:'
	for i in {0..69}; do echo ".quad name$i, 0, 0"; done
} > "$work/v8.s"
gcc -shared -nostdlib -s -Wl,--hash-style=gnu -o "$work/table/v8" "$work/v8.s"
printf 'ffffffff81000%03x T name_%d\n' {0..99}{,} > "$work/kernel/many"
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

# Debug information of both compilers, small: versions 3 to 5, compressed, with ranges and inlining.
cat > "$work/b.c" <<'C'
static inline int twice(int n) { return n * 2; }
static inline int four(int n) { int m = twice(n); return twice(m) + m; }
int used(int n) { return n > 3 ? four(n) : twice(n); }
int main(int c, char **v) { (void)v; return used(c) + four(c); }
C
for v in 3 4 5; do
	gcc -O2 -g -ffile-prefix-map="$PWD"=. -gdwarf-$v -nostdlib -no-pie -Wl,-e,main -Wl,--build-id=none -o "$work/debug/gcc$v" "$work/b.c"
	clang -O2 -g -ffile-prefix-map="$PWD"=. -gdwarf-$v -nostdlib -no-pie -Wl,-e,main -Wl,--build-id=none -o "$work/debug/clang$v" "$work/b.c"
done
objcopy --compress-debug-sections "$work/debug/gcc5" "$work/debug/packed"
python3 - "$work/lines/one" <<'PY'
import struct, sys
rows = struct.pack("<9I", 0, 0, 7, 4, 2, 9, 8, 0xffffffff, 0)
scopes = struct.pack("<14I", 0, 16, 0, 3, 0xffffffff, 0, 0xffffffff, 4, 8, 2, 1, 0, 7, 0)
pieces = struct.pack("<QIIIIII", 0x1000, 16, 0, 3, 0, 2, 0)
names = b"a\0b\0"
head = struct.pack("<IHHQQQIIIII12x", 0, 0, 0, 0, 0, 0, 1, 3, 2, len(names), 0)
open(sys.argv[1], "wb").write(head + pieces + rows + scopes + names)
PY

printf '100 20 one\n110 40 two\n90 200 around\n1000 10 last\n' > "$work/jit/map"
python3 - "$work/jit/dump" <<'PY'
import struct, sys
def record(kind, body): return struct.pack("<IIQ", kind, 16 + len(body), 0) + body
out = struct.pack("<IIIIIIQQ", 0x4A695444, 1, 40, 62, 0, 1, 0, 0)
out += record(0, struct.pack("<IIQQQQ", 1, 1, 0x100, 0x100, 64, 0) + b"one\0" + b"\xc3" * 64)
out += record(1, struct.pack("<IIQQQQQ", 1, 1, 0x800, 0x100, 0x800, 64, 0))
open(sys.argv[1], "wb").write(out)
PY

# Debug information in two files: .dwo, .dwp, and what dwz moved out of two programs.
pair() { # what the second file is, first file, second file, name
	python3 -c 'import struct, sys
first = open(sys.argv[2], "rb").read()
sys.stdout.buffer.write(struct.pack("<BH", int(sys.argv[1]), len(first)) + first + open(sys.argv[3], "rb").read())' \
		"$1" "$2" "$3" > "$work/split/$4"
}
for compiler in gcc clang; do
	for v in 4 5; do
		name=$compiler$v
		$compiler -O2 -g -gdwarf-$v -gsplit-dwarf -ffile-prefix-map="$PWD"=. -c -o "$work/$name.o" "$work/b.c"
		gcc -nostdlib -no-pie -Wl,-e,main -Wl,--build-id=none -o "$work/$name" "$work/$name.o"
		pair 1 "$work/$name" "$work/$name.dwo" "$name"
		pair 9 "$work/$name" "$work/$name.dwo" "$name.prepare"
		! dwp -o "$work/$name.dwp" "$work/$name.dwo" 2> "$work/dwp.log" || pair 2 "$work/$name" "$work/$name.dwp" "$name.package"
	done
done
for i in 1 2; do
	cp "$work/debug/gcc5" "$work/dwz$i"
done
! dwz -m "$work/alt" "$work"/dwz[12] 2> "$work/dwz.log" || pair 4 "$work/dwz1" "$work/alt" alt
python3 - "$work/stored" <<'PY'
import struct, sys
names = b"one\0two\0three\0"
entries = struct.pack("<QQIIQQIIQQII", 0x1000, 0x1100, 0, 0xffffffff, 0x1040, 0x1050, 4, 0, 0x2000, 0x2001, 8 | 1 << 31, 0xffffffff)
for mode in 0, 1:
    front = 64 + 8 + 8  # header, a checksum, the first address of the only group
    head = struct.pack("<IHHIIQQQIIiII4x", 0, 0, 0, 0, front, 0, 0, 0, 3, len(names), 0, 0, 64 + 8)
    blob = head + bytes(8) + struct.pack("<Q", 0x1000) + entries + names
    open(f"{sys.argv[1]}/{mode}", "wb").write(bytes([mode]) + blob)
PY

# A MiniDebugInfo may unpack to 256 MiB, and ASan keeps as much memory that was freed.
FUZZ_RSS_MB=1024 tests/fuzz/run sym_table 50000 20000 "$work/table"
tests/fuzz/run sym_kernel 20000 4096 "$work/kernel"
tests/fuzz/run sym_names 150000 2000 "$work/names"
tests/fuzz/run sym_debug 40000 20000 "$work/debug"
tests/fuzz/run sym_lines 100000 4096 "$work/lines"
tests/fuzz/run sym_jit 60000 4096 "$work/jit"
tests/fuzz/run sym_split 6000 20000 "$work/split"
tests/fuzz/run sym_stored 20000 4096 "$work/stored"
mkdir "$work/extract"
cp "$work"/table/* "$work/debug/gcc5" "$work/debug/packed" "$work/extract"
objcopy --strip-debug --add-gnu-debuglink="$work/debug/gcc5" "$work/debug/gcc5" "$work/extract/linked"
tests/fuzz/run sym_extract 10000 20000 "$work/extract"
