#!/usr/bin/env bash
# Compares the CPU time of `offwind unwind`, including symbols, with that of `perf script
# --no-inline` on the same recordings of real programs. It never fails because something is slow:
# figures from a busy machine are poor. Each program runs ROUNDS times, the two in turn; the result
# is the median of user + sys.
#
# The table also shows samples and frames, because a walk that stops early is fast. `kept`: what
# earlier runs leave is there, which is offwind's unwind tables and a copy of kallsyms, as perf
# record without --buildid-mmap leaves it, too. `alone`: there is this copy, but offwind caches and
# finds nothing (--no-cache). `fresh`: neither is there when a run starts. The kernel's writing of
# /proc/kallsyms then makes the run tens of ms longer, and making tables for later runs makes it
# some hundred ms longer.
#
# The last recordings are of clang, about 100 MB each, with perf's default of 8 KiB of each stack
# and with 64 KiB: there, look at the times and at the memory beyond the input.
set -eu
export LC_ALL=C
ROUNDS=${ROUNDS:-5}
work=$(mktemp -d "${TMPDIR:-/tmp}/offwind-bench.XXXXXX")
trap 'rm -rf "$work"' EXIT
. tests/workload.sh
export WORKLOAD_DIR=$work
unset XDG_CACHE_HOME
offwind=$(realpath "$BUILD/offwind")

# measure FILE COMMAND…: append ms of user + sys, and peak KiB, to FILE.
measure() {
	local to=$1
	shift
	perf stat -x, -e user_time,system_time -o "$work/stat" -- \
		"$work/peak" "$work/kib" "$@" > /dev/null 2> "$work/err" || {
		tail -n 5 "$work/err" >&2
		return 1
	}
	awk -F, '/_time/ { ns += $1 } END { printf "%.1f ", ns / 1e6 }' "$work/stat" >> "$to"
	cat "$work/kib" >> "$to"
}
median() { sort -n "$1" | awk '{ a[NR] = $1; if ($2 > kib) kib = $2 } END { print a[int((NR + 1) / 2)], kib }'; }

# GNU time may be missing: use wait4 in a program of four lines.
cat > "$work/peak.c" <<'C'
#include <stdio.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>
int main(int argc, char **argv)
{
	struct rusage used;
	int status = 1;
	FILE *out;
	pid_t pid = vfork();

	if (argc < 3)
		return 2;
	if (!pid) {
		execvp(argv[2], argv + 2);
		_exit(127);
	}
	wait4(pid, &status, 0, &used);
	out = fopen(argv[1], "w");
	if (!out || fprintf(out, "%ld\n", used.ru_maxrss) < 0 || fclose(out))
		return 2;
	return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}
C
cc -O1 -o "$work/peak" "$work/peak.c"

# Peak MiB of `offwind unwind` without the pages of the mapped input, measured every few ms; in one process.
beyond() {
	local pid peak=0 now
	OFFWIND_SANDBOX=off "$offwind" unwind -q --no-lines "$@" "$work/perf.data" -o "$work/p.pb.gz" 2> "$work/err" &
	pid=$!
	while now=$(awk -v input="$work/perf.data" '/^[0-9a-f]+-[0-9a-f]+ / { counts = $NF != input }
		/^Rss:/ && counts { kib += $2 } END { print kib + 0 }' "/proc/$pid/smaps" 2> "$work/smaps.err") &&
		[ "${now:-0}" -gt 0 ]; do
		[ "$now" -le "$peak" ] || peak=$now
	done
	wait "$pid"
	echo $(((peak + 1023) / 1024))
}

# Set HOME to a directory in this state.
home() {
	local id
	export HOME=$work/$1
	mkdir -p "$HOME"
	if [ "$1" != fresh ]; then
		id=$(perf buildid-list --kernel)
		mkdir -p "$HOME/.debug/.build-id/${id:0:2}/${id:2}"
		cat /proc/kallsyms > "$HOME/.debug/.build-id/${id:0:2}/${id:2}/kallsyms"
	fi
}

header() {
	printf '%-9s %-5s %8s %8s %6s  %7s  %8s %8s  %7s %7s\n' program copy offwind perf ratio \
		samples frames of-perf MiB of-perf
}

# name: run on $work/perf.data in each of the following states.
compare() {
	local name=$1 copy samples frames perf_frames options i ours theirs our_kib their_kib
	shift
	home kept
	"$offwind" unwind "$work/perf.data" --format tsv --no-inline > "$work/tsv" 2> "$work/err"
	perf script --no-inline -i "$work/perf.data" -F ip,sym > "$work/script" 2> "$work/err"
	samples=$(tail -n +2 "$work/tsv" | cut -f1 | uniq | wc -l)
	frames=$(($(wc -l < "$work/tsv") - 1))
	perf_frames=$(grep -c '^[[:space:]]*[0-9a-f]' "$work/script" || true)
	for copy in "$@"; do
		home "$copy"
		options=(--no-lines) # perf does not read any
		[ "$copy" != alone ] || options+=(--no-cache)
		# The first run fills the cache.
		"$offwind" unwind "${options[@]}" "$work/perf.data" -o "$work/p.pb.gz" 2> "$work/err"
		rm -f "$work/ours" "$work/theirs"
		for ((i = 0; i < ROUNDS; i++)); do
			[ "$copy" != fresh ] || rm -rf "$HOME/.cache"
			measure "$work/ours" "$offwind" unwind "${options[@]}" "$work/perf.data" -o "$work/p.pb.gz"
			measure "$work/theirs" perf script --no-inline -i "$work/perf.data"
		done
		ratio=$(paste -d' ' "$work/ours" "$work/theirs" | awk '{ print $1 / $3 }' | sort -n |
			awk '{ a[NR] = $1 } END { print a[int((NR + 1) / 2)] }')
		read -r ours our_kib <<< "$(median "$work/ours")"
		read -r theirs their_kib <<< "$(median "$work/theirs")"
		echo "$copy $ratio" >> "$work/all"
		awk -v p="$name" -v c="$copy" -v o="$ours" -v t="$theirs" -v r="$ratio" -v s="$samples" \
			-v f="$frames" -v pf="$perf_frames" -v ok="$our_kib" -v tk="$their_kib" 'BEGIN {
			printf "%-9s %-5s %5.0f ms %5.0f ms %6.3f  %7d  %8d %8d  %7.0f %7.0f\n", p, c, o, t,
				r, s, f, pf, ok / 1024, tk / 1024 }'
	done
}

record() {
	# perf 6.1 may crash if another program listens; git exits with 1 for differences.
	HOME=$work perf record -q --buildid-mmap -o "$work/perf.data" "$@" > "$work/out" 2> "$work/err" || true
}

header
for program in ${PROGRAMS-clang python3 node sqlite3 git openssl}; do
	workload "$program"
	record -F 499 --call-graph dwarf,65528 -- "${argv[@]}"
	compare "$program" kept alone fresh
done
[ ! -f "$work/all" ] || awk '{ log_sum[$1] += log($2); n[$1]++ }
     END { for (c in n) printf "geometric mean of the ratios, %s: %.3f\n", c, exp(log_sum[c] / n[c]) }' "$work/all"

workload clang
mkdir -p "$work/clang"
for i in 1 2 3; do cp "${argv[-1]}" "$work/clang/$i.cc"; done
for size in 8192 65528; do
	# Three compilations at 749 Hz; one at 311 Hz.
	files=(1.cc)
	rate=311
	if [ $size = 8192 ]; then
		files=(1.cc 2.cc 3.cc)
		rate=749
	fi
	(cd "$work/clang" && record -F $rate --call-graph dwarf,$size -- clang++ -std=c++17 -O2 -c "${files[@]}")
	echo "== clang, copies of $size bytes, $(($(stat -c %s "$work/perf.data") / 1000000)) MB"
	header
	compare "clang" kept alone
	home alone
	echo "memory beyond the input, at its peak: $(beyond --no-cache) MiB"
done
