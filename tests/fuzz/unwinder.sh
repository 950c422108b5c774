#!/usr/bin/env bash
# Fuzzes the readers of foreign unwind information from real seeds.
set -eu
work=$BUILD/fuzz/unwinder.seeds
rm -rf "$work"
mkdir -p "$work"/{object,cfi,table}

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
for f in /lib64/ld-linux-x86-64.so.2 "$work/object/plain"; do
	objcopy -O binary --only-section=.eh_frame --set-section-flags .eh_frame=alloc "$f" "$work/frames"
	name=$(basename "$f")
	for mode in '\1\0' '\3\14' '\0\0'; do
		{ printf "$mode"; head -c 2000 "$work/frames"; } > "$work/cfi/$name${mode//\\/_}"
	done
done

# Tables to be damaged, and what tables are made from at addresses that are asked.
for f in "$work/object/plain" "$work/object/small"; do
	"$BUILD/tests/diff/table_oracle" -b "$work/blob" "$f" > "$work/oracle.log"
	{ printf '\0'; cat "$work/blob"; } > "$work/table/$(basename "$f")"
done
for f in "$work"/cfi/*; do
	for mode in '\1' '\3' '\5'; do
		{ printf "$mode"; tail -c +3 "$f"; } > "$work/table/$(basename "$f")${mode//\\/_}"
	done
done

export FUZZ_RSS_MB=2048
tests/fuzz/run uw_object 20000 65536 "$work/object"
tests/fuzz/run uw_cfi 100000 65536 "$work/cfi"
tests/fuzz/run uw_table 60000 65536 "$work/table"
