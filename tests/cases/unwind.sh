#!/usr/bin/env bash
# Recorded threads of other projects' test suites, unwound as built and under
# sanitizers; the corpus README tells their layout.
set -u
corpus=../shared/corpus
if [ ! -f $corpus/corpus.tar.zst ]; then
	echo "no recorded cases: $corpus is absent"
	exit 77
fi
if [ ! -d "$BUILD/corpus/libunwindstack" ]; then
	mkdir -p "$BUILD/corpus"
	tar --zstd -xf $corpus/corpus.tar.zst -C "$BUILD/corpus" || exit 1
fi
work=$BUILD/cases
mkdir -p "$work"
failed=0

for build in "$BUILD" "$BUILD/asan"; do
	"$build/tests/cases/step_cases" $corpus/expected/framehop.tsv "$BUILD/corpus/framehop" || failed=1
	: > "$work/frames.tsv"
	for folder in "$BUILD"/corpus/libunwindstack/*64* "$BUILD"/corpus/libbacktrace/cases/*64*; do
		"$build/tests/cases/snapshot_walk" "$(basename "$folder")" "$folder" >> "$work/frames.tsv" || failed=1
	done
	# Of load_bias_ro_rx_x86_64 one module is absent: seven frames can be had with certainty.
	grep -Pv '^load_bias_ro_rx_x86_64\t([7-9]|1[0-9])\t' $corpus/expected/libunwindstack.tsv > "$work/expected.tsv"
	python3 $corpus/compare.py -v --only '_x86_64|_arm64' --extra 10 "$work/expected.tsv" "$work/frames.tsv" |
		grep -v ' name: ' > "$work/compared" 2>&1
	# This one's library is in captured memory alone, which is not read as a file yet.
	grep -v shared_lib_in_apk_memory_only_arm64 "$work/compared" | grep -A20 ^FAIL && failed=1
	tail -n 1 "$work/compared"
	# Frames beyond the expected ones: only into that module, and where a library is absent.
	awk '/ extra [1-9]/ && !/load_bias_ro_rx_x86_64|eh_frame_x86_64/ { print; bad = 1 } END { exit bad }' "$work/compared" || failed=1
	python3 $corpus/compare.py -v --only '_x86_64|_arm64' --extra 1 $corpus/expected/libbacktrace.tsv "$work/frames.tsv" |
		grep -v ' name: ' > "$work/compared" 2>&1
	grep -A20 ^FAIL "$work/compared" && failed=1
	tail -n 1 "$work/compared"
done
exit $failed
