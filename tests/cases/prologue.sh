#!/usr/bin/env bash
# Hand-written x86_64 code without call-frame information is left by how its functions begin, with
# symbols or without: as codecs are written, as hashes are, with no frame at all, interrupted or
# having called.  What does not begin plainly ends the walk, and explain says that it was tried.
set -u
offwind=$(realpath "$BUILD")/offwind
work=$(realpath "$BUILD")/prologue
rm -rf "$work"
mkdir -p "$work"
failed=0 pid=
fail() { echo "$*"; failed=1; }
trap '[ -z "$pid" ] || kill "$pid"' EXIT
export OFFWIND_DB=

# Each calls the first of the functions at rdi with the rest.
cat > "$work/a.s" <<'S'
	.macro function name
	.p2align 4
	.globl \name
	.type \name, @function
\name:
	.endm
	.macro next
	mov (%rdi), %rax
	add $8, %rdi
	call *%rax
	.endm
	.text
	function codec
	push %rbx
	push %rbp
	push %r12
	push %r15
	sub $0x158, %rsp
	xor %ebp, %ebp
	mov $7, %ebx
	mov $7, %r12d
	mov $7, %r15d
	test %rdi, %rdi
	jne 1f
	add $0x158, %rsp
	pop %r15
	pop %r12
	pop %rbp
	pop %rbx
	ret
	.p2align 4
1:	next
	add $0x158, %rsp
	pop %r15
	pop %r12
	pop %rbp
	pop %rbx
	ret
	function hash
	endbr64
	push %r15
	push %r14
	push %r13
	push %r12
	push %rbx
	push %rbp
	mov %rsp, %rbp
	sub $0x140, %rsp
	and $-64, %rsp
	mov $5, %r13d
	next
	mov %rbp, %rsp
	pop %rbp
	pop %rbx
	pop %r12
	pop %r13
	pop %r14
	pop %r15
	ret
	function thin
	next
	ret
	function odd
	lea -0x48(%rsp), %rsp
	xor %ebp, %ebp
	dec %rbp
	next
	lea 0x48(%rsp), %rsp
	ret
	function waits
	push %r14
	sub $0x20, %rsp
	xor %ebp, %ebp
	dec %rbp
2:	mov $34, %eax
	syscall
	jmp 2b
	.section .note.GNU-stack, "", @progbits
S
cat > "$work/m.c" <<'C'
typedef void fn(void **);
fn codec, hash, thin, odd, waits;
static volatile long sum;
__attribute__((noinline)) static void calls(void **next)
{
	long a = sum, b = sum, c = sum, d = sum, e = sum;
	((fn *)*next)(next + 1);
	sum = a + b + c + d + e;
}
int main(int argc, char **argv)
{
	void *plain[] = { calls, codec, calls, hash, thin, hash, calls, codec, waits }, *not[] = { odd, waits };
	calls(argc > 1 ? not : plain);
	return (int)sum;
}
C
gcc -O2 -o "$work/named" "$work/m.c" "$work/a.s" || exit 1
strip -o "$work/bare" "$work/named"

start() {
	"$@" &
	pid=$!
	for _ in {1..100}; do [[ $(cut -d' ' -f1 "/proc/$pid/syscall" 2> /dev/null) == 34 ]] && break; sleep 0.05; done
}

for program in named bare; do
	start "$work/$program"
	"$offwind" unwind -q --format tsv --no-inline --pid $pid > "$work/$program.tsv" || fail "$program: exit $?"
	"$offwind" explain -q --json --pid $pid > "$work/$program.json" || fail "$program: explain"
	grep -q '"differs"' "$work/$program.json" && fail "$program: explained otherwise"
	kill $pid
	wait $pid 2> /dev/null
done
got=$(sed 1d "$work/named.tsv" | cut -f5 | head -n 11 | tr '\n' ' ')
[ "$got" = "waits codec calls hash thin hash calls codec calls calls main " ] || fail "frames: $got"
got=$(sed 1d "$work/named.tsv" | cut -f7 | head -n 12 | tr '\n' ' ')
[ "$got" = "context prologue prologue cfi prologue prologue prologue cfi prologue cfi cfi cfi " ] || fail "by: $got"
[ "$(cut -f8 "$work/named.tsv" | sort -u | tr '\n' ' ')" = "root stop " ] || fail "$(cat "$work/named.tsv")"
diff <(cut -f2,4,7-9 "$work/named.tsv") <(cut -f2,4,7-9 "$work/bare.tsv") || fail "symbols matter"
# What it saved is the caller's again: main's and the C library's frames are found by it.
python3 - "$work/named.json" <<'P' || failed=1
import json, sys
frames = json.load(open(sys.argv[1]))['frames']
codec = next(f for f in frames if f.get('function') == 'codec')
saved = {r['register'] for r in codec['registers'] if 'address' in r}
sys.exit(0 if saved == {'rbx', 'rbp', 'r12', 'r15'} else 'codec saved %s' % codec)
P

start "$work/named" not
"$offwind" unwind -q --format tsv --no-inline --pid $pid > "$work/odd.tsv"
got=$(sed 1d "$work/odd.tsv" | cut -f5,7,8 | tr '\t\n' '  ')
[ "$got" = "waits context no_unwind_info odd prologue no_unwind_info " ] || fail "not plain: $got"
"$offwind" explain -q --pid $pid > "$work/odd.txt"
grep -q 'prologue.*no beginning of a function' "$work/odd.txt" || fail "$(tail -n 9 "$work/odd.txt")"
exit $failed
