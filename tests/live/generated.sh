#!/usr/bin/env bash
# Tests code that programs generate at run time: what they register with Debian's libunwind and by
# GDB's JIT interface (LLVM's lli) gives names and callers; live, later from the capture file, and
# in a core.
set -u
. tests/wait.sh
[ "$(id -u)" = 0 ] || { echo "needs root"; exit 77; }
"$BUILD/offwind" doctor > /dev/null 2>&1 || [ $? = 3 ] || { echo "live recording does not work here; see offwind doctor"; exit 77; }
dir=$(mktemp -d)
touch "$dir/began"
trap 'kill $(jobs -p) 2> /dev/null; wait 2> /dev/null; find /tmp -maxdepth 1 -name "perf-*.map" -user root -newer "$dir/began" -delete; rm -rf "$dir"' EXIT
offwind=$(realpath "$BUILD/offwind")

fail() {
	echo "$1"
	tail -n 5 "$dir/log"
	head -n 40 "$dir/text" 2> /dev/null
	exit 1
}

# Count the samples that have these functions next to each other, anywhere. The input is a TSV of frames.
count() {
	awk -F '\t' -v want="$2" '
		BEGIN { n = split(want, chain, " ") }
		$1 == "sample" { for (i = 1; i <= NF; i++) if ($i == "function") column = i; next }
		$1 != sample { sample = $1; at = 1; samples++ }
		{ name = $column; sub(/\(.*/, "", name)
		  if (at <= n && name == chain[at]) { if (++at > n) whole++ } else if (at <= n && at > 1) at = name == chain[1] ? 2 : 1 }
		END { print samples + 0, whole + 0 }' "$1"
}

# Record a program into FILE.owc, and look at the capture. So many per cent of the samples have the chain: while the program
# starts there are others. What is generated is not read while samples are late on a busy machine: then another recording tells.
recorded() { # FILE CHAIN PER_CENT OPTION… -- COMMAND…
	"$offwind" record -q -F 499 "${@:4}" 2> "$dir/log" || fail "record $1"
	"$offwind" unwind -q --format tsv --no-inline -o "$1.tsv" "$1.owc" 2> "$dir/log" || fail "unwind $1"
	read -r all whole < <(count "$1.tsv" "$2")
	[ "$whole" -gt 20 ] && [ $((whole * 100)) -ge $((all * $3)) ] || return 2
}
has() { # WHAT FILE CHAIN PER_CENT OPTION… -- COMMAND…
	again recorded "${@:2}" || { cp "$2.tsv" "$dir/text"; fail "$1: of $all samples $whole have $3"; }
}

gcc -O2 -o "$dir/generator" tests/live/generated/generator.c -lunwind 2> "$dir/log" || fail "generator.c"
chain=burn
for i in 11 10 9 8 7 6 5 4 3 2 1 0; do chain+=" generated_$i"; done
chain+=" main"
has "captured with a profile" "$dir/a" "$chain" 90 --raw="$dir/a.owc" -f folded --no-inline -o "$dir/live" -- "$dir/generator"
"$offwind" unwind -q --format folded --no-inline -o "$dir/later" "$dir/a.owc" 2> "$dir/log" || fail "folded"
diff <(sort "$dir/live") <(sort "$dir/later") > "$dir/text" || fail "live and later differ"

# Capture only, so that nothing is walked during the recording; our header, libunwind's library.
gcc -O2 -I. -DOURS -o "$dir/mixed" tests/live/generated/generator.c -lunwind 2> "$dir/log" || fail "our header"
has "captured alone" "$dir/b" "$chain" 90 --raw -o "$dir/b.owc" -- "$dir/mixed"
grep -q "$(printf '\tdynamic')" "$dir/b.tsv" || fail "no frame says that it was found by what was registered"

# Our own library, also with libunwind's header; running, and as a core.
gcc -O2 -o "$dir/ours" tests/live/generated/generator.c "$BUILD/lib/liboffwind-dynamic.a" -lpthread 2> "$dir/log" || fail "our library"
gcc -O2 -I. -DOURS -o "$dir/shared" tests/live/generated/generator.c -L"$BUILD/lib" -Wl,-rpath,"$(realpath "$BUILD/lib")" -loffwind-dynamic 2> "$dir/log" || fail "our shared library"
has "registered with our library" "$dir/c" "$chain" 90 --raw -o "$dir/c.owc" -- "$dir/shared"
"$dir/ours" endless > "$dir/ready" &
pid=$!
until_or_dead $pid test -s "$dir/ready" || exit 1
"$offwind" unwind -q --format tsv --no-inline -o "$dir/pid.tsv" --pid $pid 2> "$dir/log" || fail "--pid"
[ "$(count "$dir/pid.tsv" "$chain")" = "1 1" ] || { cp "$dir/pid.tsv" "$dir/text"; fail "--pid"; }
gdb -nx -batch -p $pid -ex "gcore $dir/core" > "$dir/log" 2>&1
kill $pid
"$offwind" unwind -q --format tsv --no-inline -o "$dir/core.tsv" "$dir/core" 2> "$dir/log" || fail "core"
[ "$(count "$dir/core.tsv" "$chain")" = "1 1" ] || { cp "$dir/core.tsv" "$dir/text"; fail "core"; }

# LLVM: the code that it compiled, with the call frame information in the object.
cat > "$dir/jit.c" << 'C'
unsigned long spun;
__attribute__((noinline)) void jit_burn(unsigned long n) { for (unsigned long i = 0; i < n; i++) __asm__ volatile("" : "+r"(spun)); }
__attribute__((noinline)) void jit_middle(unsigned long n) { jit_burn(n); __asm__ volatile(""); }
__attribute__((noinline)) void jit_outer(unsigned long n) { jit_middle(n); __asm__ volatile(""); }
int main(void) { for (int i = 0; i < 10; i++) jit_outer(100000000); return 0; }
C
clang -O1 -fomit-frame-pointer -S -emit-llvm -o "$dir/jit.ll" "$dir/jit.c" 2> "$dir/log" || fail "clang"
for kind in mcjit orc; do
	has "lli $kind" "$dir/$kind" "jit_burn jit_middle jit_outer main" 0 --raw -o "$dir/$kind.owc" -- lli -jit-kind=$kind "$dir/jit.ll"
done

# perf-PID.map, which node writes as it runs and java at its end, and jitdump: names are found.
cat > "$dir/spin.js" << 'JS'
function hot_inner(n) { let s = 0; for (let i = 0; i < n; i++) s += i % 7; return s }
function hot_outer(n) { let t = 0; for (let i = 0; i < 50; i++) t += hot_inner(n); return t }
let x = 0; for (let i = 0; i < 1500; i++) x += hot_outer(20000)
process.exitCode = x > 0 ? 0 : 1
JS
cat > "$dir/Spin.java" << 'JAVA'
public class Spin {
	static long hotInner(int n) { long s = 0; for (int i = 0; i < n; i++) s += i % 7 * (s | 1); return s; }
	static long hotOuter(int n) { long t = 0; for (int i = 0; i < 50; i++) t += hotInner(n); return t; }
	public static void main(String[] a) {
		long x = 0;
		for (int i = 0; i < 1500 || a.length > 0; i++) {
			x += hotOuter(20000);
			if (i == 300 && a.length > 0) System.out.println("compiled");
		}
		System.exit(x == 42 ? 1 : 0);
	}
}
JAVA
(cd "$dir" && javac Spin.java) > "$dir/log" 2>&1 || fail "javac"
java=(java -XX:+PreserveFramePointer -XX:+UnlockDiagnosticVMOptions -XX:+DumpPerfMapAtExit -cp "$dir" Spin)
in_function() { awk -v f="$2" '{ n += $NF } index($0, f) { m += $NF } END { exit !(n > 100 && m > n / 3) }' "$1"; } # FOLDED FUNCTION
has_roots() { sed -n 's/.*unwound \([0-9]*\) (root \([0-9]*\).*/\1 \2/p' "$1" | awk '{ exit !($2 >= $1 * 0.95) }'; } # REPORT
mapped() { # NAME FUNCTION COMMAND…
	"$offwind" record -q -F 499 --raw="$dir/$1.owc" -o "$dir/$1.pb.gz" -- "${@:3}" > "$dir/log" 2>&1 || fail "record $1"
	"$offwind" unwind -q --format folded -o "$dir/folded" "$dir/$1.owc" 2> "$dir/log" || fail "unwind $1"
	"$offwind" report -n 0 "$dir/$1.pb.gz" > "$dir/text" 2> "$dir/log" || fail "report $1"
	# Many of its samples are in this function, in both cases, and nearly all lead to a root.
	in_function "$dir/folded" "$2" && grep -q "$2" "$dir/text" && has_roots "$dir/text" || return 2
}
perf_map() { # NAME FUNCTION COMMAND…
	again mapped "$@" && return
	in_function "$dir/folded" "$2" || { cp "$dir/folded" "$dir/text"; fail "$1: $2"; }
	grep -q "$2" "$dir/text" || fail "$1: $2 live"
	fail "$1: less than 95 % lead to a root"
}
has "in a jitdump file" "$dir/d" "$chain" 90 --raw -o "$dir/d.owc" -- "$dir/generator" "$dir/jit-1.dump"
# In a directory of its own: node writes a log of its code to the working directory.
(cd "$dir" && perf_map node hot_outer node --perf-basic-prof "$dir/spin.js") || exit 1
perf_map java hotInner "${java[@]}"
# java without options: its compiled code is read from its memory, and later from its core.
perf_map plain Spin.hot java -cp "$dir" Spin
# gdb would write all memory that Java reserves: gigabytes, and more on larger machines.
MALLOC_ARENA_MAX=1 java -Xmx16m -XX:CompressedClassSpaceSize=16m -cp "$dir" Spin endless > "$dir/spinning" &
plain=$!
until_or_dead $plain test -s "$dir/spinning" || exit 1
gcore -o "$dir/core" $plain > "$dir/log" 2>&1 || fail "gcore of java"
kill $plain
"$offwind" unwind -q --format folded -o "$dir/text" "$dir/core.$plain" 2> "$dir/log" || fail "java's core"
grep -q '_start;.*JavaMain;.*Spin\.hot\|clone.*JavaMain;.*Spin\.hot' "$dir/text" || fail "java's core names no method"
"$offwind" unwind -q --format tsv -o "$dir/text" "$dir/core.$plain" 2> "$dir/log" || fail "java's core"
awk -F '\t' '$3 == "[jvm]" && $5 == "Spin.main" && $11 > 5 && $11 < 9 { n++ } END { exit !n }' "$dir/text" || fail "java's core has no lines: $(grep Spin "$dir/text")"
rm -f "$dir/core.$plain"
(cd "$dir" && perf_map dump hot_outer node --perf-prof --perf-prof-unwinding-info "$dir/spin.js") || exit 1
