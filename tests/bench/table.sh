#!/usr/bin/env bash
# Measures compiled tables of the 15 largest installed libraries: size, time to make them, and
# look-ups of sampled addresses in the largest table beside a binary search.
set -u
work=$BUILD/bench
mkdir -p "$work"
make -s BUILD="$BUILD" "$BUILD"/tests/bench/table_bench || exit 1
find /usr/lib/x86_64-linux-gnu -maxdepth 1 -name '*.so*' -type f -size +1M -print0 |
	while IFS= read -r -d '' f; do
		size=$(readelf -SW "$f" 2> "$work/readelf.err" | sed -n 's/^.* \.eh_frame  *[A-Z0-9_]*  *[0-9a-f]*  *[0-9a-f]*  *\([0-9a-f]*\) .*/\1/p')
		[ -n "$size" ] && echo "$((16#$size)) $f"
	done | sort -rn | head -n 15 | cut -d' ' -f2 > "$work/largest"
xargs "$BUILD/tests/bench/table_bench" < "$work/largest"

. tests/workload.sh
workload clang
perf record -q -F 4999 -e cpu-clock:u --call-graph dwarf,16384 -o "$work/clang.data" -- "${argv[@]}" \
	> "$work/clang.out" 2>&1
llvm=$(ldd "$(readlink -f "$(command -v clang++)")" | sed -n 's/.*libLLVM[^ ]* => \([^ ]*\) .*/\1/p')
"$BUILD/offwind" unwind --format tsv --no-inline "$work/clang.data" 2> "$work/unwind.err" |
	awk -F '\t' '$3 ~ /libLLVM/ { sub(/^0x/, "", $4); print $4 }' > "$work/pcs"
"$BUILD/tests/bench/table_bench" -p "$work/pcs" "$(readlink -f "$llvm")"
rm -f "$work/clang.data"
