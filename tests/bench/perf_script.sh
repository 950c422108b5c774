#!/usr/bin/env bash
# CPU time of `offwind unwind`, symbols included, beside that of `perf script --no-inline` on the
# same recordings of real programs.  Nothing fails for being slow: figures of a busy machine are
# poor ones.  Each program runs ROUNDS times, the two in turn; the median of user + sys counts.
#
# Samples and frames stand beside the times, because who stops early is fast.  The kernel needs
# tens of ms to write /proc/kallsyms, which a kept copy of it saves: `kept` has one, as perf record
# without --buildid-mmap leaves it and offwind itself; `fresh` has none at the start of each run.
set -eu
export LC_ALL=C
ROUNDS=${ROUNDS:-5}
work=$(mktemp -d "${TMPDIR:-/tmp}/offwind-bench.XXXXXX")
trap 'rm -rf "$work"' EXIT
. tests/workload.sh
export WORKLOAD_DIR=$work
unset XDG_CACHE_HOME
offwind=$(realpath "$BUILD/offwind")

# ms of user + sys, then peak KiB, appended to $1; the rest is the command.
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

# GNU time may be missing: what wait4 tells of a child, in a program of four lines.
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

printf '%-9s %-5s %8s %8s %6s  %7s  %8s %8s  %7s %7s\n' program copy offwind perf ratio \
	samples frames of-perf MiB of-perf
for program in clang python3 node sqlite3 git openssl; do
	workload "$program"
	HOME=$work perf record -q --buildid-mmap -F 499 --call-graph dwarf,65528 -o "$work/perf.data" -- \
		"${argv[@]}" > "$work/out" 2> "$work/err" || true # git's differences are its exit code
	"$offwind" unwind "$work/perf.data" --format tsv > "$work/tsv" 2> "$work/err"
	perf script --no-inline -i "$work/perf.data" -F ip,sym > "$work/script" 2> "$work/err"
	samples=$(tail -n +2 "$work/tsv" | cut -f1 | uniq | wc -l)
	frames=$(($(wc -l < "$work/tsv") - 1))
	perf_frames=$(grep -c '^[[:space:]]*[0-9a-f]' "$work/script" || true)
	for copy in kept fresh; do
		export HOME=$work/$copy
		mkdir -p "$HOME"
		if [ $copy = kept ]; then
			id=$(perf buildid-list --kernel)
			mkdir -p "$HOME/.debug/.build-id/${id:0:2}/${id:2}"
			cat /proc/kallsyms > "$HOME/.debug/.build-id/${id:0:2}/${id:2}/kallsyms"
		fi
		rm -f "$work/ours" "$work/theirs"
		for ((i = 0; i < ROUNDS; i++)); do
			rm -rf "$HOME/.cache" # where offwind keeps its own
			measure "$work/ours" "$offwind" unwind "$work/perf.data" -o "$work/p.pb.gz"
			measure "$work/theirs" perf script --no-inline -i "$work/perf.data"
		done
		read -r ours our_kib <<< "$(median "$work/ours")"
		read -r theirs their_kib <<< "$(median "$work/theirs")"
		echo "$copy $ours $theirs" >> "$work/all"
		awk -v p="$program" -v c=$copy -v o="$ours" -v t="$theirs" -v s="$samples" -v f="$frames" \
			-v pf="$perf_frames" -v ok="$our_kib" -v tk="$their_kib" 'BEGIN {
			printf "%-9s %-5s %5.0f ms %5.0f ms %6.2f  %7d  %8d %8d  %7.0f %7.0f\n", p, c, o, t,
				t ? o / t : 0, s, f, pf, ok / 1024, tk / 1024 }'
	done
done
awk '{ log_sum[$1] += log($2 / $3); n[$1]++ }
     END { for (c in n) printf "geometric mean of the ratios, %s: %.2f\n", c, exp(log_sum[c] / n[c]) }' "$work/all"
