#!/usr/bin/env bash
# Compares compiled tables with the interpreter, for the system's files and for forms of unwind
# information that few of these have; partly with sanitizers.
set -u
work=$BUILD/diff-table
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
# Signal trampolines without FDEs: in padding, at a function's end, in both, and one that has an FDE.
cat > "$work/t.s" <<'S'
	.macro begin name
	.p2align 4
	.globl \name
\name:	.cfi_startproc
	push %rbx
	.cfi_adjust_cfa_offset 8
	.cfi_offset rbx, -16
	.endm
	.macro end
	call abort@plt
	.cfi_endproc
	.endm
	.text
	begin at_the_end
	end
	mov $15, %rax
	syscall
	begin behind_padding
	end
	nop
	mov $15, %eax
	syscall
	begin before_another
	end
	.cfi_startproc
	mov $15, %rax
	syscall
	.cfi_endproc
	.macro leaf
	.p2align 4
	.cfi_startproc
	ret
	.cfi_endproc
	.endm
	leaf
	nop
	mov $15, %eax
	syscall
	leaf
	mov $15, %rax
	syscall
	leaf
	begin no_trampoline
	end
	mov $14, %rax
	syscall
	begin last
	end
	mov $15, %rax
	syscall
S
gcc -shared -nostdlib -o "$work/trampolines" "$work/t.s" &&
	gcc -O2 -g -fno-asynchronous-unwind-tables -fno-exceptions -o "$work/debug_frame" "$work/a.c" &&
	gcc -O1 -g -gdwarf-2 -gz -fno-asynchronous-unwind-tables -o "$work/debug_frame2" "$work/a.c" &&
	gcc -O2 -mavx2 -mstackrealign -o "$work/no_header" "$work/a.c" -Wl,--no-eh-frame-hdr &&
	gcc -O2 -static -o "$work/static" "$work/a.c" || exit 1

lib=/usr/lib/x86_64-linux-gnu
files=("$work"/{trampolines,debug_frame,debug_frame2,no_header,static})
for f in /lib64/ld-linux-x86-64.so.2 $lib/{libc.so.6,libm.so.6,libcrypto.so.3,libssl.so.3,libstdc++.so.6} \
	$lib/{libgcc_s.so.1,libz.so.1,libzstd.so.1,liblzma.so.5,libelf.so.1,libdw.so.1,libsqlite3.so.0} \
	$lib/{libprotobuf-c.so.1,libunwind.so.8,libbpf.so.1,libtinfo.so.6,libexpat.so.1,libselinux.so.1} \
	/usr/bin/{python3,git,sqlite3,openssl,perf,bash,ls,xz,make,readelf,gcc,as,awk,sed,tar,find,gzip} \
	"$BUILD/offwind" $(find "$BUILD/corpus" -type f -name '*.so' -path '*64*' 2> "$work/find.log") \
	$(find "$BUILD/arm64/root" -type f -name '*.so.[0-9]*' 2> "$work/find.log"); do
	[ -f "$f" ] && [ "$(head -c 5 "$f" | od -An -tx1)" = " 7f 45 4c 46 02" ] && files+=("$f")
done
"$BUILD/tests/diff/table_oracle" "${files[@]}" > "$work/out" || { tail -n 40 "$work/out"; exit 1; }
"$BUILD/asan/tests/diff/table_oracle" "${files[@]:0:8}" > "$work/asan" 2>&1 || { tail -n 40 "$work/asan"; exit 1; }
awk -F '\t' '{ rows += $2; from += $3; to += $4; split($5, n, "/"); none += n[1]; all += n[2]; words += $6 }
	END { printf "%d files, %d rows, %d look-ups the same, %d of them words for expressions, %d left to the interpreter; table %.3f of its source\n",
		NR, rows, all - none, words, none, to / from
		if (rows < 300000 || none > all / 20 || words < 400) exit 1 }' "$work/out"
