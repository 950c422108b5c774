#!/usr/bin/env bash
# Tests page faults and context switches: the totals equal the programs' own usage (getrusage), for
# one command, for some processes among others, and for few events.
set -u
. "$(dirname "$0")/../recorder.sh"

# usage: faults N | switches N: does so many between two changes of its name, and says how many it counts there.
cat >"$dir/usage.c" <<'C'
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <time.h>
int main(int argc, char **argv)
{
	const int faults = argc > 2 && !strcmp(argv[1], "faults");
	const long n = argc > 2 ? atol(argv[2]) : 0, pages = 1000;
	const struct timespec nap = { .tv_nsec = 1000 };
	char *area = mmap(NULL, (size_t)pages * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct rusage before, after;

	madvise(area, (size_t)pages * 4096, MADV_NOHUGEPAGE);
	/* All that is used between the count and the name has had its page faults. */
	prctl(PR_SET_NAME, "other");
	getrusage(RUSAGE_SELF, &after);
	getrusage(RUSAGE_SELF, &before);
	prctl(PR_SET_NAME, argc > 3 ? argv[3] : "counted");
	for (long i = 0; i < n; i++) {
		if (!faults) {
			nanosleep(&nap, NULL);
			continue;
		}
		if (i % pages == 0)
			madvise(area, (size_t)pages * 4096, MADV_DONTNEED);
		area[i % pages * 4096] = 1;
	}
	prctl(PR_SET_NAME, "other");
	getrusage(RUSAGE_SELF, &after);
	printf("%ld\n", faults ? after.ru_minflt - before.ru_minflt + after.ru_majflt - before.ru_majflt :
				 after.ru_nvcsw - before.ru_nvcsw + after.ru_nivcsw - before.ru_nivcsw);
	return 0;
}
C
gcc -O1 -o "$dir/usage" "$dir/usage.c" || exit 1

# Check that the profile's total is within 1 % of the program's own count, which is in $dir/truth.
total() { # what, COMM
	local want got
	want=$(cat "$dir/truth")
	got=$(awk -v comm="$2;" 'index($0, comm) == 1 { n += $NF } END { print n + 0 }' "$dir/folded")
	echo "$1: $got, counted by the program: $want"
	awk -v got="$got" -v want="$want" 'BEGIN { exit !(want > 0 && got >= 0.99 * want && got <= 1.01 * want) }' || fail "$1: $got, not $want: $(cat "$dir/log")"
}

# What a busy machine loses is not in the total: record again.
record_whole() { # option…, --, command…
	for _ in 1 2 3 4 5 6 7 8; do
		"$offwind" record --no-cache -m 128M --comm counted -f folded -o "$dir/folded" "$@" >"$dir/truth" 2>"$dir/log" || fail "$(cat "$dir/log")"
		grep -q 'samples were lost' "$dir/log" || break
	done
}

for n in 30 3000 200000; do
	record_whole -e page-faults --sample-type page-faults --stats "$dir/stats" -- "$dir/usage" faults $n
	total "$n page faults" counted
	grep -q 'its figures are rough' "$dir/log" && fail "exact figures are called rough: $(cat "$dir/log")"
done
python3 - "$dir/stats" "$(cat "$dir/truth")" <<'PY' || fail "what the statistics say: $(cat "$dir/stats")"
import json, sys
event, = json.load(open(sys.argv[1]))['events']
want = int(sys.argv[2])
assert event['name'] == 'page-faults' and 20 < event['samples'] < want / 2, event
assert want * 0.999 <= event['counted'] <= want * 1.001 and event['sum'] <= event['counted'], event
PY
record_whole -e context-switches --sample-type context-switches -- "$dir/usage" switches 5000
total "context switches" counted

echo "== one program among others"
"$dir/usage" faults 1000000000 noise >/dev/null &
record_whole -e page-faults,minor-faults --sample-type minor-faults -- "$dir/usage" faults 50000
total "page faults beside others'" counted
kill %1

echo "== few samples, each of many"
"$offwind" record --no-cache -e page-faults -c 10000 --comm counted -f folded -o "$dir/folded" -- "$dir/usage" faults 100000 >"$dir/truth" 2>"$dir/log" || fail "$(cat "$dir/log")"
grep -qE '^offwind: warning: only [0-9]+ samples? of page-faults: its figures are rough; .*a lower -c' "$dir/log" || fail "no word of few samples: $(cat "$dir/log")"
[ $failures = 0 ] || { echo "$failures failures"; exit 1; }
