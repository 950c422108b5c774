#!/usr/bin/env bash
# Fuzzes the readers of foreign unwind information, starting from real files.
set -eu
trap 'echo "line $LINENO fails: $BASH_COMMAND"' ERR
work=$BUILD/fuzz/unwinder.seeds
rm -rf "$work"
mkdir -p "$work"/{object,cfi,table,dynamic,cursor,procs,pclntab,unpack}

cat > "$work/a.c" <<'C'
void fill(char *p, int n);
int helper(int n) { char a[64]; fill(a, n); return a[n]; }
int aligned(int n) { __attribute__((aligned(64))) char a[64]; fill(a, n); return a[n]; }
void fill(char *p, int n) { while (n) p[--n] = (char)n; }
int main(int argc, char **argv) { return argv[0][0] + helper(argc) + aligned(argc); }
C
flags="-O2 -Wl,-z,noseparate-code -Wl,--build-id -s"
gcc $flags -o "$work/object/plain" "$work/a.c"
gcc $flags -Wl,--no-eh-frame-hdr -o "$work/object/no_header" "$work/a.c"
gcc $flags -nostdlib -Wl,-emain -o "$work/object/small" "$work/a.c"
for z in none zlib zlib-gnu; do
	gcc -O2 -g -gz=$z -nostdlib -Wl,-emain -fno-asynchronous-unwind-tables -o "$work/object/debug_$z" "$work/a.c"
done
objcopy --only-section=.debug_frame "$work/object/debug_none" "$work/mini"
xz -c "$work/mini" > "$work/mini.xz"
cp "$work/object/small" "$work/object/mini"
objcopy --remove-section=.eh_frame --add-section .gnu_debugdata="$work/mini.xz" "$work/object/mini"
cp "$work/object/small" "$work/object/stripped"
objcopy --strip-section-headers "$work/object/stripped" 2> "$work/objcopy.log" || rm "$work/object/stripped"
# Go's table of functions for the same code: one with a frame, one without a caller, one that leaves the stack.
python3 tests/fuzz/gopclntab.py "$work/gopclntab" 0x2c0
objcopy --remove-section=.eh_frame --add-section .gopclntab="$work/gopclntab" "$work/object/small" "$work/object/go"
for f in /lib64/ld-linux-x86-64.so.2 "$work/object/plain"; do
	objcopy -O binary --only-section=.eh_frame --set-section-flags .eh_frame=alloc "$f" "$work/frames"
	name=$(basename "$f")
	for mode in '\1\0' '\3\14' '\0\0'; do
		{ printf "$mode"; head -c 2000 "$work/frames"; } > "$work/cfi/$name${mode//\\/_}"
	done
done

# Tables to damage, and call frame information to compile, with addresses to look up.
for f in "$work/object/plain" "$work/object/small"; do
	"$BUILD/tests/diff/table_oracle" -b "$work/blob" "$f" > "$work/oracle.log"
	{ printf '\0'; cat "$work/blob"; } > "$work/table/$(basename "$f")"
done
for f in "$work"/cfi/*; do
	for mode in '\1' '\3' '\5'; do
		{ printf "$mode"; tail -c +3 "$f"; } > "$work/table/$(basename "$f")${mode//\\/_}"
	done
done

# The memory of a process from 0x100000 on: libunwind's list, GDB's list, and the data that they point to.
gcc -O2 -c -o "$work/jit.o" "$work/a.c"
python3 - "$work" <<'PY'
import struct, sys
work, base = sys.argv[1], 0x100000
memory = bytearray(8000)
def put(at, fmt, *values): struct.pack_into('<' + fmt, memory, at, *values)
def op(at, tag, when, reg, val): put(at, 'bbhiQ', tag, 0, reg, when, val % 2**64)
put(0, 'IIQ', 1, 2, base + 256)
put(32, 'IIQQ', 1, 1, 0, base + 2048)
put(256, '5QiiQ4Q', base + 384, 0, 0x5000, 0x5100, 0, 0, 0, 0, base + 128, 0, 0, base + 512)
put(384, '5QiiQ4Q', 0, 0, 0x6000, 0x6040, 0, 2, 0, 0, base + 128, base + 1024, 1, base + 1016)
memory[128:134] = b'hello\0'
put(512, 'QiI', base + 768, 12, 6)
for i, o in enumerate([(4, 0, 7, -8), (3, 0, 6, 0), (1, 1, 7, 6), (2, 8, 3, -8), (6, -1, 0, 7), (8, 9, 0, 0x6000)]):
    op(528 + 16 * i, *o)
put(768, 'QiI', 0, -2, 2)
op(784, 5, 0, 0, 1)
op(800, 7, -1, 0, 7)
put(1016, 'ii', 0x6000 - base - 1024, 24)
memory[1024:1072] = bytes([20,0,0,0, 0,0,0,0, 1,122,82,0, 1,0x78,16,1, 0x1b,12,7,8, 0x90,1,0,0,
                           20,0,0,0, 28,0,0,0, 0,0,0,0, 64,0,0,0, 0,0x44,14,24, 0,0,0,0])
put(1056, 'i', 0x6000 - (base + 1056))
jit = open(work + '/jit.o', 'rb').read()
put(2048, '4Q', 0, 0, base + 2080, len(jit))
memory[2080:2080 + len(jit)] = jit
for size in 8000, 7999:
    open(f'{work}/dynamic/process{size}', 'wb').write(b'\1' + bytes(memory[:size]))
# Memory for a cursor to unwind: a search table of one entry (from 8 on), its CIE and FDE, frames.
target = bytearray(2048)
struct.pack_into('<2i', target, 8, 0x100, 64)
target[36:84] = memory[1024:1072]
struct.pack_into('<2i', target, 68, 0x100 - 68, 0x400)
for at in range(0x500, 0x7f0, 8):
    struct.pack_into('<Q', target, at, base + (0x110 if at % 24 else at + 16))
for flags in 2, 3, 6, 10, 1, 0:
    open(f'{work}/cursor/{flags}', 'wb').write(bytes([flags]) + bytes([0xa0] * 29 + [0x22, 0xa0, 0x22] + [0xff]) + bytes(target))
for flags in 4, 5, 6:
    open(f'{work}/cursor/list{flags}', 'wb').write(bytes([flags]) + bytes([0xa0] * 16 + [0x22] + [0xa0] * 16) + bytes(memory))
head = struct.pack('<IHHQQQII24x', 0x4d44574f, 1, 62, 0, 0, 0, 2, 0)
procs = struct.pack('<4Q6I', 0x5000, 0x5100, 0, 0, 1, 176, 184, 24 + 96, 0, 0) + \
        struct.pack('<4Q6I', 0x6000, 0x6040, 0, base + 1024, 2, 0, 304, 48, 24, 0)
kept = head + procs + b'hello\0\0\0' + bytes(memory[520:528]) + bytes(memory[528:624]) + \
       bytes(memory[776:792]) + bytes(memory[1024:1072]) + bytes(8)
open(f'{work}/dynamic/kept', 'wb').write(b'\0' + kept)
PY

# Stored ranges, Go's table alone and behind other bytes, and compressed bytes.
python3 - "$work" <<'PY'
import lzma, struct, subprocess, sys, zlib
work = sys.argv[1]
entries = b''.join(struct.pack('<II', 64 * i, 48 + i % 16) for i in range(600))
sums = 8 * ((len(entries) + 4095) // 4096)
front = 64 + sums + 8  # the starts of entries 0 and 512
head = struct.pack('<IHHIIQQQQQII', 0, 0, 0, 0, front, 0, 0, 0x1000, 0, 0, 600, 64 + sums)
for mode in 0, 1:
    open(f'{work}/procs/{mode}', 'wb').write(bytes([mode]) + head + bytes(sums) + struct.pack('<II', 0, 64 * 512) + entries)
table = open(work + '/gopclntab', 'rb').read()
for mode in 0, 1, 2, 3:
    open(f'{work}/pclntab/{mode}', 'wb').write(bytes([mode]) + bytes(32 if mode & 1 else 0) + table)
text = bytes(range(256)) * 4 + bytes(2000)
small = [{'id': lzma.FILTER_LZMA2, 'dict_size': 4096}]
packed = (zlib.compress(text), subprocess.run(['zstd', '-qc'], input=text, capture_output=True, check=True).stdout,
          lzma.compress(text, filters=small))
for mode, data in enumerate(packed):
    open(f'{work}/unpack/{mode}', 'wb').write(struct.pack('<BH', mode, len(text)) + data)
PY

mkdir "$work/lazy_fde"
for f in plain small debug_none; do
	for way in 0 1 2; do
		{ printf "\\$way"; cat "$work/object/$f"; } > "$work/lazy_fde/$f$way"
	done
done
# Byte 56 is e_phnum.
{ printf '\0'; head -c 56 "$work/object/small"; printf '\0\0'; tail -c +59 "$work/object/small"; } > "$work/lazy_fde/no_segments"

export FUZZ_RSS_MB=2048
tests/fuzz/run uw_dynamic 8000 8192 "$work/dynamic"
tests/fuzz/run uw_cursor 8000 8192 "$work/cursor"
tests/fuzz/run uw_object 20000 20000 "$work/object"
tests/fuzz/run uw_cfi 100000 8192 "$work/cfi"
tests/fuzz/run uw_table 60000 8192 "$work/table"
tests/fuzz/run uw_procs 20000 8192 "$work/procs"
tests/fuzz/run pclntab 50000 8192 "$work/pclntab"
tests/fuzz/run unpack 10000 4096 "$work/unpack"
tests/fuzz/run uw_lazy_fde 20000 20000 "$work/lazy_fde"
