#!/usr/bin/env bash
# Tests that new recordings of this machine's perf, and stored recordings of other versions, give
# the same events in the same order as `perf script -D`.
set -u
. tests/corpus.sh
dump=$BUILD/tests/diff/perfdata_dump
dir=$BUILD/diff-perfdata
failures=0 n=0
rm -rf "$dir"
mkdir -p "$dir"
export HOME=$PWD/$dir # where perf record stores files

compare() { # file; 2: perf itself cannot read it
	local events
	# A stream has no table of build-ids, and perf 6.1 may crash while it looks for one.
	: >"$dir/ids"
	[ "$(od -A n -t u1 -j 8 -N 1 "$1")" -eq 16 ] || perf buildid-list -i "$1" >"$dir/ids" 2>/dev/null
	perf script -D -F event,period -i "$1" >"$dir/dump" 2>/dev/null || return 2
	tests/diff/perfdata_expect.py "$dir/ids" <"$dir/dump" >"$dir/perf"
	"$dump" "$1" >"$dir/ours" 2>"$dir/errors"
	events=$(wc -l <"$dir/ours")
	# An old stream names a tracepoint by number; perf asks the running kernel's tracefs.
	sed -i 's/ probe_untitled1:main cpu/ tracepoint:1329 cpu/' "$dir/perf" "$dir/ours"
	if [ "$events" -lt 10 ] || [ -s "$dir/errors" ] || ! diff "$dir/perf" "$dir/ours" >"$dir/diff"; then
		echo "$1: $events events; $(cat "$dir/errors")"
		head -n 6 "$dir/diff" | cut -c1-300
		failures=$((failures + 1))
	fi
	n=$((n + 1))
	[ -z "${V:-}" ] || echo "$SECONDS s: $1, $events events, $(grep -c ^lost "$dir/ours") losses"
}

work='python3 -c "sum(i * i for i in range(50000))"; true'
# While another program on this machine watches with build-ids, the kernel also marks records of events that did not ask
# for them, and perf 6.1 crashes on these (stack smashing). So most recordings ask for build-ids; the others are tried
# again, and left out if perf crashes each time.
record() { # name, perf record's arguments
	local data=$dir/$1.data out=$dir/$1.data
	[[ $1 != *pipe ]] || out=-
	shift
	for _ in 1 2 3 4; do
		if perf record -q -o "$out" "$@" -- sh -c "$work" >"$dir/stream" 2>"$dir/errors"; then
			[ "$out" != - ] || mv "$dir/stream" "$data"
			compare "$data" && return
		fi
		sleep 0.5
	done 2>/dev/null
	echo "perf itself fails: record $*"
}

record file -F 499 --call-graph dwarf,8192 -e cpu-clock
record two --buildid-mmap -F 199 --call-graph dwarf,4096 -e cpu-clock,page-faults
record all --buildid-mmap -a -F 199 --call-graph dwarf,8192
record zstd --buildid-mmap -z -F 199 --call-graph dwarf,65528 -e cpu-clock
record fields --buildid-mmap -F 499 -g -d --phys-data --data-page-size --code-page-size \
	--sample-cpu -k monotonic --intr-regs=ax,bx -e cpu-clock
record group --buildid-mmap -F 499 -s -T -W --transaction --all-cgroups --user-regs=ip,sp,ax \
	--call-graph dwarf,2048 -e '{cpu-clock,page-faults}:S'
record lost --buildid-mmap -a -m 1 -F 4000 --call-graph dwarf,2048 -e cpu-clock
record pipe -F 499 --call-graph dwarf,8192 -e cpu-clock
record zstd-pipe --buildid-mmap -z -F 499 --call-graph dwarf,8192 -e cpu-clock
for data in "$corpus"/formats/quipper/* "$corpus"/formats/linux-perf-data/*pipe.data "$corpus"/perfparser/probe.*; do
	compare "$data" || { echo "perf cannot read $data"; failures=$((failures + 1)); }
done

# From a running perf, without a file between.
for _ in 1 2 3 4 5; do # perf 6.1 crashes at times
	perf record -q -o - -F 499 --call-graph dwarf,8192 -e cpu-clock -- sh -c "$work" |
		"$dump" - >"$dir/ours" 2>"$dir/errors"
	ends=("${PIPESTATUS[@]}")
	[ "${ends[0]}" -ge 128 ] || break
done
[ "${ends[1]}" = 0 ] || failures=$((failures + 1))
grep -q ^sample "$dir/ours" || { echo "no sample from a running perf"; failures=$((failures + 1)); }

# These two are newer than Debian's perf: the expected values come from their own headers and from the parser's tests.
for told in sleep.data:7:4 sleep.compressed.data:8:49; do
	IFS=: read -r name samples mappings <<<"$told"
	"$dump" "$corpus/formats/linux-perf-data/$name" >"$dir/ours" 2>"$dir/errors" || cat "$dir/errors"
	if [ "$(grep -c ^sample "$dir/ours")" != "$samples" ] || [ "$(grep -c ^mapping "$dir/ours")" != "$mappings" ]; then
		echo "$name: not $samples samples and $mappings mappings"
		failures=$((failures + 1))
	fi
done
echo "$n recordings compared, $failures differ"
[ $failures -eq 0 ] && [ $n -ge 13 ] && rm -rf "$dir"
