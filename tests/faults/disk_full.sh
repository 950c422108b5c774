#!/usr/bin/env bash
# Tests a full disk while a capture file is written: every captured sample is either in the file and
# can be read, or is counted as lost with the reason; also when a profile is written, too.
set -u
cd "$(dirname "$0")/../.." || exit 1
BUILD=${BUILD:-build}
offwind=$PWD/$BUILD/offwind
[ "$(id -u)" = 0 ] || { echo "needs root"; exit 77; }
"$offwind" doctor >/dev/null 2>&1 || [ $? = 3 ] || { echo "live recording does not work here; see offwind doctor"; exit 77; }
dir=$(mktemp -d)
cleanup() {
	kill $(jobs -p) 2>/dev/null
	wait 2>/dev/null
	umount "$dir/small" 2>/dev/null
	rm -rf "$dir"
}
trap cleanup EXIT
failures=0
fail() {
	echo "FAIL: $*"
	failures=$((failures + 1))
}
mkdir "$dir/small"
sh -c 'while :; do :; done' &
busy=$!

for size in 16k 96k; do
	mount -t tmpfs -o size=$size tmpfs "$dir/small" || exit 1
	timeout 300 "$offwind" record -p $busy -F 997 --raw -o "$dir/small/a.owc" --stats "$dir/stats" 2>"$dir/log"
	[ $? = 1 ] || fail "$size: it did not fail"
	grep -q 'recording stopped: No space left on device' "$dir/log" || fail "$size: $(cat "$dir/log")"
	read -r captured written lost not_written < <(sed -nE 's/^offwind: captured ([0-9]+) = written ([0-9]+) \+ lost ([0-9]+) \(.*not_written ([0-9]+)\).*/\1 \2 \3 \4/p' "$dir/log")
	fired=$(sed -nE 's/^offwind: fired .* \+ captured ([0-9]+)$/\1/p' "$dir/log")
	echo "$size: captured ${captured:-?} = written ${written:-?} + lost ${lost:-?}"
	[ "${captured:-0}" -gt 0 ] && [ "$captured" = "$((written + lost))" ] && [ "$captured" = "$fired" ] || fail "$size: the accounts: $(cat "$dir/log")"
	grep -q "a.owc has the first ${written:-x} of $((written + not_written)) samples" "$dir/log" || fail "$size: $(cat "$dir/log")"
	python3 -c 'import json, sys; assert json.load(open(sys.argv[1]))["not_written"] == int(sys.argv[2])' "$dir/stats" "${not_written:--1}" || fail "$size: the statistics"
	: >"$dir/samples"
	"$offwind" unwind -q --format jsonl -o "$dir/samples" "$dir/small/a.owc" 2>"$dir/log"
	n=$(wc -l <"$dir/samples")
	[ "$n" = "${written:-x}" ] || fail "$size: $n samples can be read, not ${written:-?}: $(cat "$dir/log")"
	umount "$dir/small"
done
[ "$n" -gt 0 ] || fail "what was written before cannot be read"

echo "== beside a profile"
for seconds in 2 8 32; do # on a busy machine it takes longer until samples fill the disk
	mount -t tmpfs -o size=16k tmpfs "$dir/small" || exit 1
	timeout 300 "$offwind" record -p $busy -F 997 -d $seconds --raw="$dir/small/a.owc" -o "$dir/a.pb.gz" 2>"$dir/log"
	rc=$?
	umount "$dir/small"
	! grep -q 'a.owc has the first' "$dir/log" || break
done
[ $rc = 1 ] || fail "it did not fail"
grep -qE 'captured ([0-9]+) = unwound \1 ' "$dir/log" || fail "the profile: $(cat "$dir/log")"
grep -qE 'a.owc has the first [0-9]+ of [0-9]+ samples' "$dir/log" || fail "the file beside it: $(cat "$dir/log")"
[ $failures = 0 ] || { echo "$failures failures"; exit 1; }
