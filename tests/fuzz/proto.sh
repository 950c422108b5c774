#!/usr/bin/env bash
# Fuzzes the readers of pprof profiles and capture files from sound ones.
# FUZZ_SECONDS (5) each; a finding is left in $BUILD/fuzz-findings/ and printed.
set -eu
seconds=${FUZZ_SECONDS:-5}
work=$BUILD/fuzz-seeds/proto
rm -rf "$work"
mkdir -p "$work"/{pprof,owc} "$BUILD/fuzz-findings"

printf 'a;ls/main;ls/f;libc.so/?;kernel:k 3\nb;ls/main;ls/main;ls/g 4\n' | "$BUILD/tests/diff/pprof_make" > "$work/pprof/gzip"
gunzip < "$work/pprof/gzip" > "$work/pprof/plain"
"$BUILD/tests/unit/test_owc" "$work/all.owc" 40
{ printf '\0'; cat "$work/all.owc"; } > "$work/owc/file"
tail -c +33 "$work/all.owc" | zstd -dcq > "$work/content"
for n in 200 1000 4000 16000 60000; do
	{ printf '\1'; head -c $n "$work/content"; } > "$work/owc/content$n"
	{ printf '\2'; head -c $n "$work/content"; } > "$work/owc/cut$n"
done
{ printf '\1'; head -c 100 "$work/content"; tail -c 100 "$work/content"; } > "$work/owc/ends"

for target in pprof owc; do
	log=$work/$target.log
	if ! "$BUILD/fuzz/tests/fuzz/fuzz_$target" -max_total_time="$seconds" -max_len=65536 -timeout=10 -verbosity=0 -close_fd_mask=2 \
		-print_final_stats=1 -rss_limit_mb=2048 -artifact_prefix="$BUILD/fuzz-findings/$target-" "$work/$target" > "$log" 2>&1; then
		echo "fuzz_$target found something:"
		tail -n 60 "$log"
		exit 1
	fi
	sed -n "s/^stat::number_of_executed_units:/$target: inputs run/p" "$log"
done
