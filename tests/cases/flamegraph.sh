#!/usr/bin/env bash
# Tests offwind flamegraph: its command line, and its page in a headless Chromium.
set -u
offwind=$BUILD/offwind
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
failures=0

fail() {
	echo "FAIL: $*"
	failures=$((failures + 1))
}

# expect CODE PATTERN COMMAND…: the exit code, and one line on standard error that matches.
expect() {
	local code=$1 pattern=$2 rc
	shift 2
	"$@" 2>"$dir/err"
	rc=$?
	[ $rc = "$code" ] && [ "$(wc -l <"$dir/err")" = 1 ] && grep -qE -- "$pattern" "$dir/err" || fail "exit $rc: $*: $(cat "$dir/err")"
}

"$offwind" unwind -q -o "$dir/a.pb.gz" tests/cases/perfdata/file.data || fail "no profile"
samples=$("$offwind" report "$dir/a.pb.gz" | sed -n 's/^# \([0-9]*\) samples,.*/\1/p')
"$offwind" flamegraph -o "$dir/a.html" "$dir/a.pb.gz" || fail "a profile"
grep -q "\"samples\":$samples," "$dir/a.html" || fail "other samples than $samples"
"$offwind" flamegraph -o - "$dir/a.pb.gz" | cmp - "$dir/a.html" || fail "on standard output it is another page"
gzip -dc "$dir/a.pb.gz" | "$offwind" flamegraph --title a.pb.gz -o - - | cmp - "$dir/a.html" || fail "from standard input it is another page"
"$offwind" flamegraph -o "$dir/two.html" "$dir/a.pb.gz" "$dir/a.pb.gz" && grep -q "\"samples\":$((2 * samples))," "$dir/two.html" || fail "two profiles are not one"
"$offwind" flamegraph --type samples --by pid -o "$dir/pid.html" "$dir/a.pb.gz" && grep -q '"unit":"count"' "$dir/pid.html" || fail "--type, --by"

expect 1 'no sample type .nothing' "$offwind" flamegraph --type nothing -o "$dir/x.html" "$dir/a.pb.gz"
expect 1 'label .nothing' "$offwind" flamegraph --by nothing -o "$dir/x.html" "$dir/a.pb.gz"
expect 1 'absent: No such file' "$offwind" flamegraph -o "$dir/x.html" "$dir/absent"
expect 1 'absent: No such file' "$offwind" flamegraph -o "$dir/x.html" --diff "$dir/absent" "$dir/a.pb.gz"
head -c 1000 "$dir/a.pb.gz" >"$dir/torn"
expect 1 '/torn: ' "$offwind" flamegraph -o "$dir/x.html" "$dir/torn"
expect 1 '/dev/full: cannot be written: No space' "$offwind" flamegraph -o /dev/full "$dir/a.pb.gz"
[ ! -e "$dir/x.html" ] || fail "a page in spite of an error"
expect 2 'no profile' "$offwind" flamegraph -o "$dir/x.html"

timeout 300 python3 tests/cases/flamegraph.py "$offwind" "$BUILD/asan/offwind" "$dir" || fail "in the browser"

[ $failures = 0 ] || { echo "$failures failures"; exit 1; }
