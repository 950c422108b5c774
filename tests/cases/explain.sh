#!/usr/bin/env bash
# Tests that `offwind explain` agrees with the walk that it explains, frame by frame, and with
# readelf about the rules.
set -u
. tests/corpus.sh
work=$BUILD/explain
mkdir -p "$work"
failed=0

check() { # PROGRAM TSV-NAME EXPLAIN-ARGUMENTS…: against `unwind --format tsv --no-inline` of the same
	local program=$1 name=$2
	shift 2
	if ! "$program" explain -q --json "$@" > "$work/steps.json" 2> "$work/err"; then
		cat "$work/err"
		failed=1
	fi
	rm -f "$work/steps.txt"
	[ "$program" != "$BUILD/offwind" ] || "$program" explain -q "$@" > "$work/steps.txt" 2> "$work/err" || failed=1
	python3 tests/cases/explain.py "$name" "$work/steps.json" "$work/steps.txt" "$work/frames.tsv" || failed=1
}

# The path of the program in the recording.
data=$corpus/perfparser/vector_static_gcc/perf.data
place=$work/root/home/milian/projects/kdab/rnd/hotspot/3rdparty/perfparser/tests/auto/perfdata/vector_static_gcc
mkdir -p "$place"
cp "$corpus"/perfparser/vector_static_gcc/vector_static_gcc_v9.1.0 "$place"

n=0
for program in "$BUILD/offwind" "$BUILD/asan/offwind"; do
	for folder in "$corpus"/libunwindstack/*64* "$corpus"/libbacktrace/cases/*64*; do
		"$program" unwind -q --format tsv --no-inline "$folder" > "$work/frames.tsv" 2> "$work/err"
		check "$program" "$(basename "$folder")" "$folder"
		n=$((n + 1))
	done
	for case in backtrace.x86_64 backtrace.aarch64.fp; do
		core=$corpus/elfutils/$case.core exe=$corpus/elfutils/$case.exec
		"$program" unwind -q --format tsv --no-inline --exe "$exe" "$core" > "$work/frames.tsv" 2> "$work/err"
		for name in $(cut -f1 "$work/frames.tsv" | sort -u | grep :); do
			check "$program" "$name" --exe "$exe" --sample ":${name##*:}" "$core"
			n=$((n + 1))
		done
	done
	"$program" unwind -q --format tsv --no-inline --symfs "$work/root" "$data" > "$work/frames.tsv" 2> "$work/err"
	for sample in 1 5 20; do
		check "$program" $sample --symfs "$work/root" --sample $sample "$data"
		n=$((n + 1))
	done
done
echo "$n samples explained as they were walked"

# The rules of one frame, as readelf prints them.
"$BUILD/offwind" explain -q --json "$corpus/libunwindstack/eh_frame_hdr_begin_x86_64" > "$work/steps.json"
python3 tests/cases/explain.py --readelf "$work/steps.json" "$corpus/libunwindstack/eh_frame_hdr_begin_x86_64/unwind_test64" || failed=1

"$BUILD/offwind" explain -q --sample 99 "$corpus/libunwindstack/straddle_arm64" 2> "$work/err" && failed=1
grep -q 'has no sample 99$' "$work/err" || { cat "$work/err"; failed=1; }

# Output that cannot be written is reported once.
"$BUILD/offwind" explain -q "$corpus/libunwindstack/straddle_arm64" > /dev/full 2> "$work/err" && failed=1
[ "$(grep -c 'cannot be written' "$work/err")" = 1 ] || { cat "$work/err"; failed=1; }
exit $failed
