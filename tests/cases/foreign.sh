#!/usr/bin/env bash
# Tests files that other programs wrote: perf of other versions and machines, Android's simpleperf,
# call stacks that the CPU recorded, traces without samples, cores without a list of mapped files.
set -u
. tests/wait.sh
offwind=$(realpath "$BUILD")/offwind
work=$(realpath "$BUILD")/foreign
here=$PWD
rm -rf "$work"
mkdir -p "$work"
failed=0 pid=
fail() { echo "FAIL: $*"; failed=1; }
trap '[ -z "$pid" ] || kill $pid 2> /dev/null' EXIT

cat > "$work/a.c" <<'C'
#include <unistd.h>
volatile int n;
__attribute__((noinline, noclone)) int leaf(int a) { while (a) pause(); return n + a; }
__attribute__((noinline, noclone)) int middle(int a) { return leaf(a) + n; }
int main(int argc, char **argv) { (void)argv; return middle(argc) + n; }
C
gcc -O1 -fno-pie -no-pie -Wl,--build-id=md5 -o "$work/program" "$work/a.c" || exit 1
id=$(readelf -n "$work/program" | sed -n 's/.*Build ID: //p')
[ ${#id} = 32 ] || { echo "no build-id of 16 bytes: $id"; exit 1; }
symbols=()
for name in main middle leaf; do symbols+=("$name=$(nm "$work/program" | awk -v n=$name '$3 == n { print $1 }')"); done
make_file() { python3 tests/cases/foreign.py "$1" "$work/$1" "$work/program" "$id" "${symbols[@]}" || exit 1; }
# functions KIND [OPTION…]: "frames of each sample, how often" and the exit status
functions() {
	timeout 60 "$offwind" unwind -q --no-inline --format folded "${@:2}" "$work/$1" 2> "$work/err"
	echo "exit $?"
}
is() { # KIND WANTED [OPTION…]
	local got
	got=$(functions "$1" "${@:3}")
	[ "$got" = "$2" ] || fail "$1 ${*:3}: $got; $(cat "$work/err")"
}

for kind in padded simpleperf lbr first trace; do make_file $kind; done
is padded $'-;main 10\nexit 0'
is simpleperf $'-;main 10\nexit 0'
# Only the first address of the kernel's own chain counts, as in perf.
is lbr $'-;main;middle;leaf;[kernel]_[k] 10\nexit 0'
is first 'exit 1'
grep -q 'first: offset 0x0: written by perf before Linux 3.2' "$work/err" || fail "first: $(cat "$work/err")"
is trace 'exit 3'
grep -q 'trace: .*only hardware trace (ETM, Intel PT), and no sample' "$work/err" || fail "trace: $(cat "$work/err")"

# Recordings without build-ids: from this machine, from another one, and from an unknown one.
for kind in pipe pipe-elsewhere pipe-untold; do make_file $kind; done
is pipe $'-;main 10\nexit 0'
is pipe-elsewhere $'-;[program] 10\nexit 0'
is pipe-elsewhere $'-;main 10\nexit 0' --symfs /
is pipe-untold $'-;main 10\nexit 0'
warned() { "$offwind" unwind --format folded "$work/$1" 2>&1 > "$work/out" | grep warning; }
[ -z "$(warned pipe)" ] || fail "a recording of this machine: $(warned pipe)"
[[ $(warned pipe-elsewhere) == *"program: recorded on another-machine without build-ids: this machine's files are not used"* ]] || fail "another machine: $(warned pipe-elsewhere)"
[[ $(warned pipe-untold) == *"program: the recording tells neither its machine nor build-ids"* ]] || fail "no machine told: $(warned pipe-untold)"
for kind in pipe-elsewhere pipe-untold; do [ "$(warned $kind | wc -l)" = 1 ] || fail "$kind: $(warned $kind)"; done
# A file that is mapped as code need not be an ELF file.
head -c 8192 /dev/zero > "$work/image"
python3 tests/cases/foreign.py pipe "$work/no-elf" "$work/image" "$id" "${symbols[@]}" || exit 1
[[ $(warned no-elf) == *"image: cannot be used (not an ELF file)"* ]] || fail "no ELF file: $(warned no-elf)"

# A capture stores nothing of a 32-bit file, and a message says so.
gcc -m32 -O1 -nostdlib -shared -fPIC -o "$work/narrow.so" -x c - <<< 'int f(void) { return 1; }' || exit 1
"$offwind" cache prefetch --db "$work/store.db" "$work/narrow.so" 2> "$work/err"
grep -q '1 files\?: 0 stored' "$work/err" && grep -q '1 were skipped: 32-bit' "$work/err" || fail "prefetch: $(cat "$work/err")"

# A core of a program that waits in a library, as gcore writes it, and with its list of mapped files removed or changed.
cat > "$work/b.c" <<'C'
#include <stdlib.h>
int leaf(int a);
static int compare(const void *a, const void *b) { (void)b; return leaf(*(const int *)a); }
int main(void) { int v[2] = { 1, 2 }; qsort(v, 2, sizeof(v[0]), compare); return v[0]; }
C
gcc -O1 -fPIC -shared -o "$work/libleaf.so" "$work/a.c" &&
	gcc -O1 -o "$work/loaded" "$work/b.c" -L"$work" -lleaf -Wl,-rpath,"$work" || exit 1
"$work/loaded" &
pid=$!
until_or_dead $pid in_pause $pid || exit 1
gcore -o "$work/core" $pid > "$work/gcore.log" 2>&1 || { cat "$work/gcore.log"; exit 1; }
kill $pid
wait $pid 2> /dev/null
pid=
core=$(echo "$work"/core.*)
for kind in no-files relative; do python3 tests/cases/foreign.py $kind "$work/$kind" "$core" || exit 1; done
stack() { # CORE [OPTION…]: module and function of each frame, where it ends
	timeout 60 "$offwind" unwind -q --no-inline --format tsv "${@:2}" "$1" 2> "$work/err" | sed 1d | cut -f3,5,9
}
stack "$core" > "$work/want"
grep -q "^libleaf.so	leaf" "$work/want" && grep -q '^libc.so.6	qsort' "$work/want" && grep -q '^loaded	main' "$work/want" ||
	fail "the core itself: $(cat "$work/want" "$work/err")"
diff "$work/want" <(stack "$work/no-files") || fail "without a list of files: $(cat "$work/err")"
# Names of files in a directory, in which the first character is x instead of a slash.
mkdir "$work/root"
for file in "$work/libleaf.so" "$work/loaded" $(ldd "$work/loaded" | grep -o '/[^ ]*'); do
	real=$(realpath "$file")
	mkdir -p "$work/root/x$(dirname "${real#/}")" && cp "$real" "$work/root/x${real#/}" || exit 1
done
diff "$work/want" <(stack "$work/relative" --sysroot "$work/root") || fail "relative names below a folder: $(cat "$work/err")"
rm "$work/root/x${work#/}/loaded"
diff "$work/want" <(stack "$work/relative" --sysroot "$work/root" --exe "$work/loaded") || fail "a relative name and --exe: $(cat "$work/err")"
exit $failed
