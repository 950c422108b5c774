#!/usr/bin/env bash
# Tests that samples have the labels that their threads have set themselves: what OpenTelemetry's libraries publish, in
# all the ways in which a thread-local variable can be there.
set -u
. tests/wait.sh
[ "$(id -u)" = 0 ] || { echo "needs root"; exit 77; }
"$BUILD/offwind" doctor > /dev/null 2>&1 || [ $? = 3 ] || { echo "live recording does not work here; see offwind doctor"; exit 77; }
dir=$(mktemp -d)
trap 'kill $(jobs -p) 2> /dev/null; wait 2> /dev/null; rm -rf "$dir"' EXIT
offwind=$(realpath "$BUILD/offwind")
sources=tests/live/contexts
export PPROF_TMPDIR=$dir HOME=$dir OFFWIND_DB=

fail() {
	echo "$1"
	tail -n 15 "$dir/log"
	exit 1
}

raw() { # PROFILE: print it, without what may differ between a recording and its capture
	go tool pprof -symbolize=none -raw "$1" 2> "$dir/log" | grep -vE '^(Comment: source: (live|capture)|Time: .*|Duration: .*)$'
}

# Record a program while it runs; compare the labels of its samples with what it wrote.
check() { # NAME MINIMUM SAMPLES PROGRAM…
	local name=$1 minimum=$2 enough=$3
	shift 3
	"$@" > "$dir/truth" &
	local pid=$!
	until_or_dead $pid grep -q begun "$dir/truth" || fail "$name does not begin"
	"$offwind" record -q -p $pid -F 299 -d "$enough" --raw="$dir/a.owc" --stats "$dir/stats" -o "$dir/a.pb.gz" 2> "$dir/log" || fail "$name: record"
	runs $pid || fail "$name ended"
	kill $pid
	wait $pid 2> /dev/null
	raw "$dir/a.pb.gz" > "$dir/raw"
	python3 "$sources/compare.py" "$dir/truth" "$dir/raw" "$minimum" > "$dir/log" || fail "$name"
	echo "$name: $(tail -n 1 "$dir/log")"
	# A capture gives the same labels later, without the process.
	"$offwind" unwind -q -o "$dir/later.pb.gz" "$dir/a.owc" 2> "$dir/log" || fail "$name: unwind"
	raw "$dir/later.pb.gz" | diff "$dir/raw" - > "$dir/log" || fail "$name: live and later differ"
}

program() { # NAME OPTION…
	gcc -O1 -g -pthread "${@:2}" -o "$dir/$1" 2> "$dir/log" || fail "gcc $1"
}
program in_program $sources/work.c $sources/library.c -Wl,--export-dynamic-symbol=otel_thread_ctx_v1
program descriptor.so -fPIC -shared -mtls-dialect=gnu2 $sources/library.c
program general.so -fPIC -shared -mtls-dialect=gnu $sources/library.c
program initial.so -fPIC -shared -DINITIAL_EXEC $sources/library.c
program linked $sources/work.c -L"$dir" -l:descriptor.so -Wl,-rpath,"$dir"
program loaded -DLOADED $sources/work.c -ldl

check "in the program" 2 4 "$dir/in_program"
grep -q '"thread_labels": {"samples": [1-9][0-9]*, "changing": [1-9][0-9]*, "unreadable": 0}' "$dir/stats" || fail "stats: $(cat "$dir/stats")"
check "in a linked library" 1 2 "$dir/linked"
for library in descriptor general initial; do
	check "in a loaded library, $library" 1 2 "$dir/loaded" "$dir/$library.so"
done
