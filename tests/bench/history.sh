#!/usr/bin/env bash
# Measures how long a history takes to read and to keep small, and how large it is: an hour and a day of
# two busy CPUs, an hour out of a long history, and a week of 64 CPUs. WEEK_STACKS: how many different
# stacks that week has (200000); 0: it is left out.
set -eu
make -s BUILD="$BUILD" "$BUILD"/tests/bench/history_bench
bench=$BUILD/tests/bench/history_bench
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
week=${WEEK_STACKS:-200000}

run() { # what, CPUs, hertz, hours to make, different stacks, hours to read
	echo "-- $1"
	"$bench" make "$dir/offwind-history.db" "$2" "$3" "$4" "$5"
	"$bench" read "$dir/offwind-history.db" "$6"
	"$bench" ask "$dir/offwind-history.db" "$6"
}

run "an hour of 2 CPUs at 19 Hz   (wanted: < 200 ms)" 2 19 1 200000 1
rm "$dir"/offwind*
run "a day of 2 CPUs at 19 Hz   (wanted: < 1 s)" 2 19 24 1000000 24
if [ "$(id -u)" = 0 ] && command -v chromium >/dev/null; then
	echo "-- the page of that day   (wanted: < 1 s)"
	cp "$dir/offwind-history.db" "$dir/copy.db" # the daemon adds windows
	python3 tests/bench/history_page.py "$BUILD/offwind" "$dir" 24
	mv "$dir/copy.db" "$dir/offwind-history.db"
	rm -f "$dir"/offwind-history.db-*
fi
echo "-- an hour out of that day   (wanted: < 200 ms)"
"$bench" read "$dir/offwind-history.db" 1
echo "-- merging that day   (wanted: no step > 100 ms)"
"$bench" keep "$dir/offwind-history.db"
rm "$dir"/offwind*
if [ "${RECORDED:-}" ]; then
	echo "-- recorded windows, and a day of them again and again   (wanted: < 1 s)"
	sqlite3 "$RECORDED" "VACUUM INTO '$dir/offwind-history.db'"
	"$bench" ask "$dir/offwind-history.db" 1
	"$bench" replay "$dir/offwind-history.db" 24
	"$bench" read "$dir/offwind-history.db" 24
	"$bench" ask "$dir/offwind-history.db" 24
	rm "$dir"/offwind*
fi
if [ "$week" != 0 ]; then
	run "a week of 64 CPUs at 19 Hz, $week stacks   (wanted: < 5 s)" 64 19 168 "$week" 168
	"$bench" keep "$dir/offwind-history.db"
fi
