#!/usr/bin/env bash
# Times walks of fresh samples of real programs by offwind, libunwind, libdwfl and a minimal loop,
# then counts instructions per frame, and prints all ratios in one table. README.md in this
# directory says how to read it. It never fails because something is slow.
#   usage: walks.sh [PROGRAM…]
set -u
export LC_ALL=C
work=$(mktemp -d "${TMPDIR:-/tmp}/offwind-walks.XXXXXX")
trap 'rm -rf "$work"' EXIT
. tests/workload.sh
export WORKLOAD_DIR=$work
make -s BUILD="$BUILD" "$BUILD/tests/bench/walks" || exit 1

# $1 program, $2 samples a second, to $3
record() {
	local rc
	workload "$1"
	for _ in 1 2 3 4 5; do # perf dies at times, of processes that end while it starts
		timeout -s INT -k 10 "${SECONDS_EACH:-4}" perf record -q --buildid-mmap -F "$2" -e cpu-clock:u \
			--call-graph dwarf,16384 -o "$work/$3.data" -- "${argv[@]}" > "$work/$3.out" 2>&1
		rc=$?
		[ $rc -lt 128 ] && return
	done
	echo "$1: perf record died: $rc"
	tail -n 5 "$work/$3.out"
	return 1
}

[ $# -gt 0 ] || set -- clang gcc git sqlite3 python3 node jit
all=()
for program; do
	record "$program" 1997 "$program" || exit 1
	# Generated code is walked in other ways; it is shown separately.
	name=$program
	[ "$program" = jit ] && name='(jit)'
	all+=("$name=$work/$program.data")
done

# Other programs do not disturb a count of instructions.
record git 499 count || exit 1
echo "instructions a frame, git:"
for way in table file floor libunwind libdwfl; do
	frames=$(valgrind --tool=callgrind --collect-atstart=no --toggle-collect=counted \
		--callgrind-out-file="$work/$way.callgrind" "$BUILD/tests/bench/walks" -i $way \
		"$work/count.data" 2> "$work/$way.err") || { tail -n 5 "$work/$way.err"; exit 1; }
	awk -v way=$way -v frames="$frames" '/^summary:|^totals:/ { n = $2 }
		END { printf "  %-10s %7.1f  (%d frames)\n", way, n / frames, frames }' "$work/$way.callgrind" |
		tee -a "$work/instructions"
done
{
	awk '$1 == "table" { printf "%-30s %62s  %8.1f  <= 150\n", "instructions a frame, git", "", $2 }' \
		"$work/instructions"
	# The results of table.sh, if `make bench` ran it just before.
	[ ! -f "$BUILD/bench/table.txt" ] || grep -E '^all: |sampled addresses' "$BUILD/bench/table.txt"
} > "$work/figures"

"$BUILD/tests/bench/walks" -f "$work/figures" "${all[@]}" 2> "$work/err"
rc=$?
cat "$work/err"
exit $rc
