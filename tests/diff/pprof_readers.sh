#!/usr/bin/env bash
# Tests how other programs read our files: go tool pprof with each of its views, and pprof-format
# and speedscope from npm.
set -u
work=$BUILD/diff/readers
rm -rf "$work"; mkdir -p "$work"
samples=tests/cases/perfdata
offwind=$BUILD/offwind

# Profiles of one input, of several inputs, of several events, with inlined calls, and converted from others'.
"$offwind" unwind -q -o "$work/one.pb.gz" $samples/file.data 2>/dev/null || exit 1
"$offwind" unwind -q -o "$work/two.pb.gz" $samples/file.data $samples/pipe.data 2>/dev/null || exit 1
"$offwind" unwind -q -o "$work/events.pb.gz" $samples/events.data 2>/dev/null || exit 1
"$offwind" report --merge -o "$work/merged.pb.gz" "$work/one.pb.gz" "$work/two.pb.gz" || exit 1
"$offwind" report -f pprof --diff "$work/one.pb.gz" -o "$work/diff.pb.gz" "$work/two.pb.gz" || exit 1

# Equal inputs give equal bytes: make every format once more.
for format in pprof folded text tsv jsonl speedscope firefox parquet; do
	for p in one two events; do
		cmp <("$offwind" report -f $format "$work/$p.pb.gz") <("$offwind" report -f $format "$work/$p.pb.gz") ||
			{ echo "$format of $p: other bytes"; exit 1; }
	done
	cmp <("$offwind" unwind -q -f $format -o - $samples/file.data 2>/dev/null) \
		<("$offwind" unwind -q -f $format -o - $samples/file.data 2>/dev/null) || { echo "unwind -f $format: other bytes"; exit 1; }
done
# A profile that was read and written again is the same to the byte from the second time on.
"$offwind" report --merge "$work/merged.pb.gz" | cmp - "$work/merged.pb.gz" || { echo "merging one changes it"; exit 1; }
exec timeout 400 python3 tests/diff/pprof_readers.py "$offwind" "$work" "$BUILD/npm/tests/node_modules"
