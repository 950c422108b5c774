#!/usr/bin/env bash
# Tests that the recordings of cases/perfdata give the events that perf itself found in them; those
# without a seekable header are also read through a pipe.
set -u
dump=$BUILD/asan/tests/diff/perfdata_dump
failures=0 n=0

same() { # name, expected events; the program's are in $BUILD/perfdata.events
	if ! diff "$2" "$BUILD/perfdata.events" >"$BUILD/perfdata.diff"; then
		echo "$1: perf and offwind differ:"
		head -n 6 "$BUILD/perfdata.diff" | cut -c1-300
		failures=$((failures + 1))
	fi
	n=$((n + 1))
}

for data in tests/cases/perfdata/*.data; do
	events=${data%.data}.events
	"$dump" "$data" >"$BUILD/perfdata.events" 2>&1
	same "$data" "$events"
	case $data in
	*pipe.data)
		cat "$data" | "$dump" - >"$BUILD/perfdata.events" 2>&1
		same "$data (pipe)" "$events" ;;
	esac
done

# The header of a file has values that are known only at its end.
if "$dump" - < <(cat tests/cases/perfdata/file.data) >/dev/null 2>"$BUILD/perfdata.err" ||
	! grep -q 'cannot be read from a pipe' "$BUILD/perfdata.err"; then
	echo "a file through a pipe: $(cat "$BUILD/perfdata.err")"
	failures=$((failures + 1))
fi
echo "$n recordings read, $failures failures"
[ $failures -eq 0 ] && [ $n -ge 10 ]
