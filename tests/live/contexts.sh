#!/usr/bin/env bash
# Tests that samples have the labels that their threads have set themselves: what OpenTelemetry's libraries publish, in
# all the ways in which a thread-local variable can be there, and Go's pprof labels.
set -u
. tests/wait.sh
[ "$(id -u)" = 0 ] || { echo "needs root"; exit 77; }
"$BUILD/offwind" doctor > /dev/null 2>&1 || [ $? = 3 ] || { echo "live recording does not work here; see offwind doctor"; exit 77; }
command -v sqlite3 > /dev/null || { echo "needs sqlite3"; exit 77; }
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

raw() { go tool pprof -symbolize=none -raw "$1" 2> "$dir/log"; } # PROFILE
samples() { sed -n '/^Samples:/,/^Locations/p'; } # with their labels; names and lines of Go may need more time than there is

# Record a program while it runs; compare the labels of its samples with what it wrote.
check() { # NAME PROGRAM…
	local name=$1 seconds rc
	shift
	"$@" > "$dir/truth" &
	local pid=$!
	until_or_dead $pid grep -q begun "$dir/truth" || fail "$name does not begin"
	for seconds in 1 2 4 8 16 32; do # until each function has samples, also on a busy machine
		"$offwind" record -q -p $pid -F 299 -d $seconds --raw="$dir/a.owc" --stats "$dir/stats" -o "$dir/a.pb.gz" 2> "$dir/log" ||
			grep -q 'no samples were recorded' "$dir/log" || fail "$name: record"
		runs $pid || fail "$name ended"
		raw "$dir/a.pb.gz" > "$dir/raw"
		python3 "$sources/compare.py" "$dir/truth" "$dir/raw" > "$dir/log"
		rc=$?
		[ $rc = 2 ] || break
	done
	[ $rc = 0 ] || fail "$name"
	kill $pid
	wait $pid 2> /dev/null
	echo "$name: $(tail -n 1 "$dir/log")"
	# A capture gives the same labels later, without the process.
	"$offwind" unwind -q -o "$dir/later.pb.gz" "$dir/a.owc" 2> "$dir/log" || fail "$name: unwind"
	diff <(samples < "$dir/raw") <(raw "$dir/later.pb.gz" | samples) > "$dir/log" || fail "$name: live and later differ"
}

program() { # NAME OPTION…
	gcc -O1 -g -pthread "${@:2}" -o "$dir/$1" 2> "$dir/log" || fail "gcc $1"
}
program in_program $sources/work.c $sources/library.c -Wl,--export-dynamic-symbol=otel_thread_ctx_v1
program descriptor.so -fPIC -shared -mtls-dialect=gnu2 $sources/library.c
program general.so -fPIC -shared -mtls-dialect=gnu $sources/library.c
program initial.so -fPIC -shared -DINITIAL_EXEC $sources/library.c
# A history has them, too, unless they are dropped.
"$dir/in_program" > "$dir/truth" & pid=$!
until_or_dead $pid grep -q begun "$dir/truth" || fail "the program does not begin"
keys() { sqlite3 "$1" "SELECT DISTINCT key FROM labels, json_each(labels) WHERE key IN ('trace_id', 'span_id', 'http_route', 'region') ORDER BY key" 2> "$dir/log"; }
has_keys() { [ "$(keys "$1" | tr '\n' ' ')" = "$2" ]; }
for drop in '' trace_id,span_id; do
	wanted='http_route region span_id trace_id '
	[ -z "$drop" ] || wanted='http_route region '
	"$offwind" record -q -p $pid -F 299 --rotate 1 ${drop:+--drop-labels "$drop"} --history "$dir/h$drop.db" 2> "$dir/log" & recorder=$!
	until_or_dead $recorder has_keys "$dir/h$drop.db" "$wanted" || fail "the history has $(keys "$dir/h$drop.db")"
	kill $recorder
	wait $recorder
done
kill $pid
program linked $sources/work.c -L"$dir" -l:descriptor.so -Wl,-rpath,"$dir"
program loaded -DLOADED $sources/work.c -ldl

check 'in the program' "$dir/in_program"
grep -q '"thread_labels": {"samples": [1-9][0-9]*, "changing": [1-9][0-9]*, "unreadable": 0}' "$dir/stats" || fail "stats: $(cat "$dir/stats")"
check 'in a linked library' "$dir/linked"
for library in descriptor general initial; do
	check "in a loaded library, $library" "$dir/loaded" "$dir/$library.so"
done

# Frames of Python and labels, by one plan: each sample that has a function's frame has its labels.
check 'a Python program' /usr/bin/python3 $sources/work.py "$dir/descriptor.so"

# Go's own linker, and the system's with C code that has thread-local variables, too.
build_go() { # NAME OPTION…
	(cd "$dir/goroutines" && HOME=$dir GOFLAGS=-mod=mod go build "${@:2}" -o "$dir/$1" .) > "$dir/log" 2>&1 || fail "go build $1"
}
mkdir "$dir/goroutines"
cp $sources/work.go "$dir/goroutines"
printf 'module work\ngo 1.18\n' > "$dir/goroutines/go.mod"
build_go go_own
check 'a Go program' "$dir/go_own"
cat > "$dir/goroutines/c.go" << 'GO'
package main

/*
static __thread int before[20] = { 1 };
static int f(int i) { return before[i % 20]; }
*/
import "C"

func init() { sums[7] = int(C.f(3)) }
GO
build_go go_cgo -ldflags '-linkmode=external -extldflags=-static'
check 'a Go program with C code' "$dir/go_cgo"

# More plans than there can be at a time: later processes have theirs when those have ended.
python3 - "$dir/go_cgo" "$dir/other" 66 <<'PY'
import os, struct, sys
program = bytearray(open(sys.argv[1], 'rb').read())
start, = struct.unpack_from('<Q', program, 40)
count, = struct.unpack_from('<H', program, 60)
sections = [struct.unpack_from('<IIQQQQIIQQ', program, start + 64 * i) for i in range(count)]
table = next(s for s in sections if s[1] == 2)  # SHT_SYMTAB
texts = sections[table[6]][4]
for at in range(table[4], table[4] + table[5], 24):
    name, = struct.unpack_from('<I', program, at)
    if program[texts + name:].startswith(b'runtime.tlsg\0'):
        break
else:
    sys.exit('no runtime.tlsg')
for i in range(int(sys.argv[3])):  # the code itself does not use the symbol
    struct.pack_into('<Q', program, at + 8, i)
    with open(f'{sys.argv[2]}{i}', 'wb') as file:
        file.write(program)
    os.chmod(f'{sys.argv[2]}{i}', 0o755)
PY
"$offwind" record -a -F 199 --rotate 1 -o "$dir/windows" 2> "$dir/log.record" & recorder=$!
has_window() { compgen -G "$dir/windows/*.pb.gz" > /dev/null; }
until_or_dead $recorder has_window || fail "no window"
others=()
for i in $(seq 0 65); do
	GOMAXPROCS=1 "$dir/other$i" > /dev/null & others+=($!)
done
until_or_dead $recorder grep -q 'too many different memory plans' "$dir/log.record" || fail "66 plans"
kill "${others[@]}"
wait "${others[@]}" 2> /dev/null
"$dir/go_cgo" > "$dir/truth" & pid=$!
has_labels() {
	raw "$(ls "$dir"/windows/*.pb.gz | tail -n 1)" | samples | grep -q 'comm:\[go_cgo\].* route:\['
}
until_or_dead $pid has_labels || fail "no labels after other processes had all plans"
kill $pid $recorder
wait $recorder || fail "exit $?: $(cat "$dir/log.record")"
