#!/usr/bin/env bash
# Fuzzes the reader of perf.data with mutations of the stored recordings, as files and through
# pipes.
set -u
seeds=$BUILD/fuzz/perfdata.seeds
rm -rf "$seeds"
mkdir -p "$seeds"
for data in tests/cases/perfdata/*.data; do
	for mode in 0 1; do
		{ printf "\\$mode"; head -c 12000 "$data"; } >"$seeds/$(basename "$data" .data)$mode"
	done
done
tests/fuzz/run perfdata 25000 16000 "$seeds"
