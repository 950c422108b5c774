#!/usr/bin/env bash
# Tests walks through hand-written x86_64 code without call frame information, by the beginnings of
# its functions, with and without symbols: code as in codecs and in hash functions, without a frame,
# interrupted, and in a call. If the beginning of a function is not clear, the walk ends, and
# explain says that this way was tried.
set -u
. tests/wait.sh
offwind=$(realpath "$BUILD")/offwind
work=$(realpath "$BUILD")/prologue
rm -rf "$work"
mkdir -p "$work"
failed=0 pid=
fail() { echo "$*"; failed=1; }
trap '[ -z "$pid" ] || kill "$pid"' EXIT
export OFFWIND_DB=

# Each function calls the first of the functions at rdi with the rest of them.
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
	add $-0x48, %rsp
	xor %ebp, %ebp
	dec %rbp
	next
	sub $-0x48, %rsp
	ret
	function keeps
	push %rbp
	mov %rsp, %rbp
	next
	pop %rbp
	ret
	function pushes
	push %rbx
	next
	pop %rbx
	ret
	function room
	lea -0x48(%rsp), %rsp
	next
	lea 0x48(%rsp), %rsp
	ret
	function large
	push %r12
	lea -0x1008(%rsp), %rsp
	next
	lea 0x1008(%rsp), %rsp
	pop %r12
	ret
	function zero
	add $-0x48, %rsp
	xor %ebp, %ebp
	next
	sub $-0x48, %rsp
	ret
	function holds
	push %r14
3:	mov $34, %eax
	syscall
	jmp 3b
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
fn codec, hash, thin, odd, waits, keeps, pushes, room, large, zero, holds;
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
	void *kept[] = { calls, keeps, large, pushes, keeps, room, pushes, holds };
	void *ended[] = { calls, zero, holds };
	calls(argc > 3 ? ended : argc > 2 ? kept : argc > 1 ? not : plain);
	return (int)sum;
}
C
gcc -O2 -o "$work/named" "$work/m.c" "$work/a.s" || exit 1
strip -o "$work/bare" "$work/named"

start() {
	"$@" &
	pid=$!
	until_or_dead $pid in_pause $pid || exit 1
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
# The registers that it saved are the caller's again: they lead to main's and the C library's frames.
python3 - "$work/named.json" <<'P' || failed=1
import json, sys
frames = json.load(open(sys.argv[1]))['frames']
codec = next(f for f in frames if f.get('function') == 'codec')
saved = {r['register'] for r in codec['registers'] if 'address' in r}
sys.exit(0 if saved == {'rbx', 'rbp', 'r12', 'r15'} else 'codec saved %s' % codec)
P

# rbp belongs to a frame further out, whose call is an indirect one: the pushes of the functions between are better
# evidence, and lea makes room as sub does.
start "$work/named" frame pointer
"$offwind" unwind -q --format tsv --no-inline --pid $pid > "$work/kept.tsv"
"$offwind" explain -q --json --pid $pid | grep -q '"differs"' && fail "kept: explained otherwise"
kill $pid
wait $pid 2> /dev/null
got=$(sed 1d "$work/kept.tsv" | cut -f5 | head -n 10 | tr '\n' ' ')
[ "$got" = "holds pushes room keeps pushes large keeps calls calls main " ] || fail "rbp of another frame: $got"
[ "$(sed 1d "$work/kept.tsv" | cut -f8 | sort -u)" = root ] || fail "$(cat "$work/kept.tsv")"

# A frame pointer of 0 proves nothing: every place that reports why stacks ended distinguishes these two.
start "$work/named" frame pointer 0
"$offwind" unwind -q --format tsv --no-inline --pid $pid > "$work/ended.tsv"
"$offwind" unwind -q -o "$work/ended.pb.gz" --pid $pid
"$offwind" explain -q --pid $pid > "$work/ended.txt"
kill $pid
wait $pid 2> /dev/null
got=$(sed 1d "$work/ended.tsv" | cut -f5,8 | tr '\t\n' '  ')
[ "$got" = "holds guess_ended zero guess_ended " ] || fail "a frame pointer of 0: $got"
grep -q '^stop: guess_ended: .*nothing proves' "$work/ended.txt" || fail "$(tail -n 3 "$work/ended.txt")"
"$offwind" report --by stop "$work/ended.pb.gz" | grep -q 'guess_ended$' || fail "report: $("$offwind" report --by stop "$work/ended.pb.gz")"
"$offwind" flamegraph -o "$work/ended.html" "$work/ended.pb.gz" && grep -q guess_ended "$work/ended.html" || fail "page"

start "$work/named" not
"$offwind" unwind -q --format tsv --no-inline --pid $pid > "$work/odd.tsv"
got=$(sed 1d "$work/odd.tsv" | cut -f5,7,8 | tr '\t\n' '  ')
[ "$got" = "waits context no_unwind_info odd prologue no_unwind_info " ] || fail "not plain: $got"
"$offwind" explain -q --pid $pid > "$work/odd.txt"
grep -q 'prologue.*no function start' "$work/odd.txt" || fail "$(tail -n 9 "$work/odd.txt")"
exit $failed
