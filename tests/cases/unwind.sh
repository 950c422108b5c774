#!/usr/bin/env bash
# Unwinds recorded threads and cores of other projects' test suites, with the program as built and
# with the sanitizer build; the README of the corpus describes their layout.
set -u
. tests/corpus.sh
expected=../shared/corpus/expected
compare=../shared/corpus/compare.py
work=$BUILD/cases
mkdir -p "$work"
failed=0
rm -f "$work/perfparser.tsv"

fail() {
	echo "$*"
	failed=1
}

# compared EXPECTED FRAMES [OPTION…]: print the differences and the sum
compared() {
	local want=$1 got=$2
	shift 2
	python3 $compare -v "$@" "$want" "$got" > "$work/compared" || failed=1
	grep -A20 ^FAIL "$work/compared"
	! grep " name: " "$work/compared" || failed=1
	tail -n 1 "$work/compared"
}

# The elfutils cores: their whole stacks; the thread's number is in the case's name.
cores() { # PROGRAM OUTPUT
	: > "$2"
	local name
	for name in backtrace.x86_64 backtrace.aarch64.fp; do
		"$1" unwind -q --format tsv --no-inline --exe "$corpus/elfutils/$name.exec" "$corpus/elfutils/$name.core" \
			> "$work/core.tsv" || fail "$name: exit $?"
		sed 's/\.core:/:/' "$work/core.tsv" >> "$2"
	done
	"$1" unwind -q --format tsv --no-inline --exe "$corpus/elfutils/testfiledwarfinlines" \
		"$corpus/elfutils/testfiledwarfinlines.core" > "$work/inlines.tsv" 2> "$work/inlines.err" || fail "inlines: exit $?"
	# Its libc is missing: two frames, then the return into libc.
	cut -f2-5 "$work/inlines.tsv" | head -n 3 > "$work/inlines"
	awk -F'\t' 'NR > 1 && $1 ~ /^testfiledwarfinlines/ { print $3 "\ttestfiledwarfinlines\t" $5 "\t" $6 }' $expected/elfutils.tsv |
		diff - <(tail -n +2 "$work/inlines") || fail "testfiledwarfinlines"
}

for build in "$BUILD" "$BUILD/asan"; do
	program=$build/offwind
	"$build/tests/cases/step_cases" $expected/framehop.tsv "$corpus/framehop" || failed=1

	# 32-bit threads are reported and left out: the result is incomplete.
	"$program" unwind -q --format tsv --no-inline "$corpus/libunwindstack" > "$work/frames.tsv" 2> "$work/err"
	[ $? = 3 ] || fail "libunwindstack: not done in part"
	[ "$(grep -c ': 32-bit .* cannot be unwound yet$' "$work/err")" = 6 ] || fail "$(cat "$work/err")"
	# One module of load_bias_ro_rx_x86_64 is missing: seven frames are certain; the others are compared below by their
	# run-time addresses, because their module's offsets are unknown.
	grep -Pv '^load_bias_ro_rx_x86_64\t([7-9]|1[0-9])\t' $expected/libunwindstack.tsv > "$work/expected.tsv"
	grep -v ^load_bias_ro_rx_x86_64 "$work/expected.tsv" > "$work/most.tsv"
	compared "$work/most.tsv" "$work/frames.tsv" --only '_x86_64|_arm64'
	compared "$work/expected.tsv" "$work/frames.tsv" --only load_bias_ro_rx_x86_64 --extra 10

	"$program" unwind -q --format tsv --no-inline "$corpus"/libbacktrace/cases/*64* > "$work/frames.tsv" 2> "$work/err" || fail "libbacktrace: exit $?"
	# Both end where the recording ended: in a missing module, and where the stack was cut off.
	compared $expected/libbacktrace.tsv "$work/frames.tsv" --only '_x86_64|_arm64' --extra 1

	# __clone, which libdw does not reach through the last frame record.
	cores "$program" "$work/frames.tsv"
	compared $expected/elfutils_full.tsv "$work/frames.tsv" --extra 1
done

# The same threads, when the kernel had more information about their files, or when a loader left a hole.
rm -rf "$work/told"
mkdir -p "$work/told"
cp -r "$corpus"/libunwindstack/shared_lib_in_apk{,_memory_only}_arm64 "$work/told"
for folder in "$work"/told/*; do
	mv "$folder/vdso.so" "$folder/[vdso]"
	sed -i 's/vdso\.so$/[vdso]/; s/\(linker64\|\.apk\)$/& (deleted)/; s/^\(7dabc03000-7dabc3\)f\(.* r--p .*\)/\1e\2\n7dabc3e000-7dabc3f000 ---p 0 00:00 0/' "$folder/maps.txt"
done
"$BUILD/offwind" unwind -q --format tsv --no-inline "$work"/told/* > "$work/frames.tsv" 2> "$work/err" || fail "$(cat "$work/err")"
sed 's/vdso\.so/[vdso]/; s/\(memory_only.*\.apk\) (offset/\1 (deleted) (offset/' $expected/libunwindstack.tsv > "$work/told.tsv"
compared "$work/told.tsv" "$work/frames.tsv" --only shared_lib_in_apk
# The vDSO is missing: the code to which a handler returns is recognised, but its name is not known.
rm "$work"/told/*/'[vdso]'
"$BUILD/offwind" unwind -q --format tsv --no-inline "$work"/told/* > "$work/frames.tsv" 2> "$work/err" || fail "$(cat "$work/err")"
python3 $compare --only shared_lib_in_apk "$work/told.tsv" "$work/frames.tsv" > "$work/compared" || { cat "$work/compared"; failed=1; }

# The rest of load_bias_ro_rx_x86_64 by frame pointers, which its code has.
"$BUILD/offwind" unwind -q --format text --no-inline "$corpus/libunwindstack/load_bias_ro_rx_x86_64" 2> "$work/err" |
	awk '$1 ~ /^[0-9a-f]+$/ && NF > 2 { print $1 }' > "$work/pcs"
python3 - $expected/libunwindstack.tsv "$work/pcs" <<'PY' || failed=1
import sys
want = [r[7] for r in (l.rstrip('\n').split('\t') for l in open(sys.argv[1])) if r[0] == 'load_bias_ro_rx_x86_64']
got = open(sys.argv[2]).read().split()
bad = [(w, g) for w, g in zip(want, got) if not 0 <= int(g, 16) - int(w, 16) <= 1]
sys.exit('run-time addresses differ: %d of %d, %s' % (len(got), len(want), bad) if bad or len(want) != len(got) else 0)
PY

# perf.data of programs in the same directory; samples are counted from 0 and have no kernel frames.
for name in vector_static_gcc/perf.data{,.zstd} fork_static_gcc/perf.data.zstd; do
	"$BUILD/offwind" unwind -q --format tsv --no-inline --symfs "$corpus/perfparser/$(dirname "$name")" "$corpus/perfparser/$name" 2> "$work/err" |
		awk -F'\t' -v OFS='\t' -v name="$name" '$3 != "[kernel]" && NR > 1 { if ($1 != last) n = 0; last = $1; $1 = name "#" $1 - 1; $2 = n++; print }' >> "$work/perfparser.tsv"
done
# Two are in PLT entries, which have no symbol: _init is the last symbol before them.
sed 's/\t_init\t[0-9]*\t/\t-\t-\t/' $expected/perfparser.tsv > "$work/expected.tsv"
compared "$work/expected.tsv" "$work/perfparser.tsv"
grep -q '^total: 173 of 173 ' "$work/compared" || fail "not 173 stacks of perf.data"
exit $failed
