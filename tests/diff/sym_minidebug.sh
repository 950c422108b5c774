#!/usr/bin/env bash
# Tests MiniDebugInfo as distributions make it: a stripped file whose .gnu_debugdata has the static
# functions. The names must be those of the file before stripping. If a section is damaged or
# unpacks to too much, only its own names are lost.
set -eu
trap 'echo "line $LINENO fails: $BASH_COMMAND"' ERR
work=$BUILD/minidebug
dump=$BUILD/asan/tests/diff/sym_dump
rm -rf "$work"
mkdir -p "$work"
cat > "$work/a.c" <<'C'
#include <stdio.h>
static __attribute__((noinline)) int inner(int n) { return n * printf("%d\n", n); }
static __attribute__((noinline)) int outer(int n) { return inner(n + 1) + 1; }
int exported(int n);
int exported(int n) { return outer(n) * 2; }
int main(int argc, char **argv) { (void)argv; return exported(argc); }
C
gcc -O1 -rdynamic -o "$work/full" "$work/a.c"
cp "$work/full" "$work/mini"
# gdb manual, "MiniDebugInfo": functions that .dynsym does not have.
nm -D "$work/full" --format=posix --defined-only | awk '{ print $1 }' | sort > "$work/dynsyms"
nm "$work/full" --format=posix --defined-only | awk '$2 ~ /[Tt]/ { print $1 }' | sort > "$work/funcsyms"
comm -13 "$work/dynsyms" "$work/funcsyms" > "$work/keep"
objcopy --only-keep-debug "$work/full" "$work/debug"
objcopy -S --remove-section .gdb_index --remove-section .comment --keep-symbols="$work/keep" "$work/debug" "$work/mini.debug" 2> /dev/null
strip --strip-all -R .comment "$work/mini"
"$dump" table "$work/mini" > "$work/stripped.names"
xz -k "$work/mini.debug"
objcopy --add-section .gnu_debugdata="$work/mini.debug.xz" "$work/mini" "$work/with"
"$dump" table "$work/with" > "$work/with.names"
"$dump" table "$work/full" > "$work/full.names"
if grep -q ' inner$' "$work/stripped.names" || ! grep -q ' exported$' "$work/stripped.names"; then
	echo "the stripped file is not what it should be"
	exit 1
fi
diff "$work/with.names" "$work/full.names"

# One flipped byte, and half of it.
for damage in flip cut; do
	cp "$work/mini.debug.xz" "$work/bad.xz"
	case $damage in
	flip) printf '\377' | dd of="$work/bad.xz" bs=1 seek=200 conv=notrunc status=none ;;
	cut) truncate -s 300 "$work/bad.xz" ;;
	esac
	objcopy --add-section .gnu_debugdata="$work/bad.xz" "$work/mini" "$work/bad"
	"$dump" table "$work/bad" > "$work/bad.names" 2> "$work/bad.err"
	diff "$work/bad.names" "$work/stripped.names"
	grep -q '^left out: Bad message$' "$work/bad.err"
done

# 600 MiB of zeros in a small section: reading stops at the limit, in bounded memory.
head -c 629145600 /dev/zero | xz -0 -T2 > "$work/bomb.xz"
objcopy --add-section .gnu_debugdata="$work/bomb.xz" "$work/mini" "$work/bomb"
(ulimit -v 1500000 && "$BUILD/tests/diff/sym_dump" table "$work/bomb" > "$work/bomb.names" 2> "$work/bomb.err")
diff "$work/bomb.names" "$work/stripped.names"
grep -q '^left out: Operation not supported$' "$work/bomb.err"
echo "$(wc -l < "$work/with.names") names; a bomb of $(stat -c %s "$work/bomb.xz") bytes was given up"
rm -f "$work"/bomb*
