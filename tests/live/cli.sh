#!/usr/bin/env bash
# Tests offwind record as users of perf, time and shells expect it: exit codes, durations, messages
# about lost samples and about recordings without samples, and its priority beside very many
# threads.
set -u
. "$(dirname "$0")/../recorder.sh"

echo "== the exit code is the command's"
for case in "0 true" "1 false" "7 exit 7" "137 kill -9 \$\$" "143 kill \$\$"; do
	"$offwind" record -q -o "$dir/x.pb.gz" -- sh -c "${case#* }" 2>"$dir/log"
	rc=$?
	[ $rc = "${case%% *}" ] || fail "$case: exit $rc: $(cat "$dir/log")"
done
"$offwind" record -q -o "$dir/x.pb.gz" -- /etc/passwd 2>"$dir/log"
rc=$?
[ $rc = 126 ] || fail "not a program: exit $rc: $(cat "$dir/log")"
"$offwind" record -q -o "$dir/x.pb.gz" -d 200ms -- sh -c 'trap "exit 5" TERM; while :; do :; done' 2>"$dir/log"
rc=$?
[ $rc = 0 ] || fail "a command ended with its recording: exit $rc: $(cat "$dir/log")"

# A program to record, even if nothing else runs.
sh -c 'while :; do :; done' &
busy=$!

echo "== durations"
"$offwind" record -a -F 999 -d 0.01m -o "$dir/x.pb.gz" 2>"$dir/log" || fail "-d 0.01m: $(cat "$dir/log")"

echo "== nothing was recorded"
"$offwind" record --comm nosuch -F 999 -d 0.6 -o "$dir/none.pb.gz" 2>"$dir/log"
[ $? = 1 ] && grep -q 'warning: no samples were recorded: .* whose name' "$dir/log" || fail "--comm nosuch: $(cat "$dir/log")"
"$offwind" report "$dir/none.pb.gz" | grep -q '^# no samples$' || fail "a report of nothing"
kill $busy
"$offwind" record -q -a -d 10ms -o "$dir/x.pb.gz" 2>"$dir/log" || fail "a machine on which nothing ran: $(cat "$dir/log")"

echo "== what a recording says at its end"
cat >"$dir/busy.sh" <<'SH'
i=0
while [ $i -lt 300000 ]; do i=$((i + 1)); done
SH
end='^offwind: [1-9][0-9,]* samples?, [0-9.]* s of CPU in [0-9.]* s, none lost, [0-9.]* % whole stacks → .*end.pb.gz; see: offwind report .*end.pb.gz$'
"$offwind" record -g -o "$dir/end.pb.gz" -- sh "$dir/busy.sh" 2>"$dir/log" || fail "record: $(cat "$dir/log")"
grep -qE "$end" "$dir/log" || fail "no line in words: $(cat "$dir/log")"
grep -q '^offwind: captured [0-9]* = ' "$dir/log" || fail "no sums in a log: $(cat "$dir/log")"
grep -q -- '-g: stacks are always recorded' "$dir/log" || fail "no note on -g: $(cat "$dir/log")"
script -qec "$offwind record -o $dir/end.pb.gz -- sh $dir/busy.sh" /dev/null </dev/null | tr -d '\r' | sed 's/.*\x1b\[K//' >"$dir/log"
grep -qE "$end" "$dir/log" && ! grep -q 'captured\|fired' "$dir/log" || fail "on a terminal: $(cat "$dir/log")"
script -qec "$offwind record -v -o $dir/end.pb.gz -- sh $dir/busy.sh" /dev/null </dev/null | grep -q 'captured [0-9]* = ' || fail "no sums with -v"

echo "== rates"
rate() { "$offwind" record -q "$@" 2>"$dir/log" || fail "record $*: $(cat "$dir/log")"; "$offwind" report "$dir/x.pb.gz" | sed -n 's/^# event: cpu-clock, \([0-9]*\) .*/\1/p'; }
[ "$(rate -o "$dir/x.pb.gz" -- sh "$dir/busy.sh")" = 997 ] || fail "a command has 997 Hz"
[ "$(rate -F 49 -o "$dir/x.pb.gz" -- sh "$dir/busy.sh")" = 49 ] || fail "-F 49"
sh -c 'while :; do :; done' &
busy=$!
[ "$(rate -d 0.5 -a -o "$dir/x.pb.gz")" = 99 ] || fail "the system has 99 Hz"
kill $busy
for _ in 1 2 3 4 5; do # the kernel may lower it at any time
	most=$(cat /proc/sys/kernel/perf_event_max_sample_rate)
	got=$(rate -F max -o "$dir/x.pb.gz" -- true)
	[ "$most" != "$(cat /proc/sys/kernel/perf_event_max_sample_rate)" ] || break
done
[ "$got" = $((most < 50000 ? most : 50000)) ] || fail "-F max: $got of $most"

echo "== standard streams that are closed"
# What the program opens must not take their numbers: messages would go there.
for closed in '>&-' '<&- >&-' '<&- 2>&-' '<&- >&- 2>&-'; do
	eval "timeout 100 \"$offwind\" record -q -o \"$dir/closed.pb.gz\" -- sh \"$dir/busy.sh\" $closed" 2>"$dir/log" && "$offwind" report --check "$dir/closed.pb.gz" >"$dir/said" || fail "$closed: $(cat "$dir/log")"
	rm -f "$dir/closed.pb.gz"
done
"$offwind" report "$dir/end.pb.gz" 2>"$dir/log" >&-
[ $? = 1 ] && grep -q 'standard output: cannot be written: Bad file descriptor' "$dir/log" || fail "a report without standard output: $(cat "$dir/log")"

echo "== what was waited for, not how"
year=$(date +%Y)
"$offwind" record -q --off-cpu -o "$dir/wait.pb.gz" -- sh -c 'sleep 0.3; sleep 0.3' 2>"$dir/log" || fail "record: $(cat "$dir/log")"
row() { "$offwind" report -n 1 "$@" "$dir/wait.pb.gz" | sed -n '/FUNCTION/{n;s/.* //p}'; }
row | grep -qE '^(do_nanosleep|hrtimer_nanosleep|do_wait)' || fail "the first row is $(row)"
row --all-frames | grep -q '^__schedule$' || fail "--all-frames begins with $(row --all-frames)"

echo "== what a profile says of its recording"
"$offwind" report "$dir/wait.pb.gz" >"$dir/text"
grep -q '^# command: offwind record -q --off-cpu .*sleep 0.3$' "$dir/text" && grep -q '^# event: cpu-clock, 997 samples a second' "$dir/text" &&
	grep -qE "^# begun: ($year|$(date +%Y))-" "$dir/text" || fail "$(cat "$dir/text")"
"$offwind" record -q -F 999 -o "$dir/x.owc" -- sh -c 'i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done' 2>"$dir/log" || fail "-o x.owc: $(cat "$dir/log")"
"$offwind" report "$dir/x.owc" | grep -q '^# command: offwind record -q -F 999 ' || fail "a capture file does not have the command line"

echo "== what was lost is said aloud"
# Stacks of half a MiB, 20,000 per second, with a ring of 4 MiB.
cat >"$dir/deep.c" <<'C'
#include <alloca.h>
#include <string.h>
int main(void)
{
	volatile char *room = alloca(700 << 10);
	memset((void *)room, 1, 700 << 10);
	for (;;)
		room[4096]++;
}
C
gcc -O1 -o "$dir/deep" "$dir/deep.c" || fail "gcc"
timeout 300 "$dir/deep" & deep=$!
says() { # REGEX OPTION…: record, longer on a busy machine, until this is said
	local seconds
	for seconds in 1 4 16; do
		"$offwind" record -q -d $seconds -p $deep "${@:2}" 2>"$dir/log" || grep -q 'no samples were recorded' "$dir/log" || break
		grep -q "$1" "$dir/log" && return
	done
	fail "not said: $1: $(cat "$dir/log")"
}
says 'warning: [0-9.]* % of the samples were lost ([0-9]* of [0-9]*), because offwind could not keep up: .*-F.*-m.*-r' -F 20000 -m 4M --stack-max 1M --raw -o "$dir/x.owc"
says 'stacks were larger than the copy .*--stack-max' -F 499 --stack-max 64K -o "$dir/x.pb.gz"
kill $deep

echo "== beside many runnable threads"
cat >"$dir/spin.c" <<'C'
#include <pthread.h>
#include <unistd.h>
static void *spin(void *arg)
{
	for (;;)
		;
	return arg;
}
int main(void)
{
	pthread_attr_t small;
	pthread_t thread;

	alarm(180);
	pthread_attr_init(&small);
	pthread_attr_setstacksize(&small, 65536);
	for (int i = 0; i < 800; i++)
		pthread_create(&thread, &small, spin, NULL);
	pause();
}
C
gcc -O1 -pthread -o "$dir/spin" "$dir/spin.c" || fail "gcc"
"$offwind" record -a -d 2 --raw="$dir/many.owc" -o "$dir/many.pb.gz" 2>"$dir/log" & recorder=$!
until [ -s "$dir/many.owc" ] || ! kill -0 $recorder 2>/dev/null; do sleep 0.02; done
"$dir/spin" & spin=$!
limit=$((SECONDS + 100))
renice -n -20 $$ >/dev/null # this script must not starve either
# It takes 2 s, and as long again on a quiet machine; the limit is for a recorder that starves.
until [ $SECONDS -ge $limit ] || ! kill -0 $recorder 2>/dev/null; do sleep 0.05; done
if kill -0 $recorder 2>/dev/null; then fail "it does not end beside 800 runnable threads"; fi
kill -9 $spin
wait $recorder || fail "it failed: $(cat "$dir/log")"
"$offwind" record -q -r 1 -o "$dir/x.pb.gz" -- sh -c "chrt -p \$\$; nice" >"$dir/said" 2>"$dir/log" || fail "-r: $(cat "$dir/log")"
grep -q SCHED_OTHER "$dir/said" || fail "the command inherits -r: $(cat "$dir/said")"

echo "== interpreters"
cp "$(command -v sqlite3)" "$dir/lua5.4" # an interpreter is recognised by its name
"$offwind" record -o "$dir/x.pb.gz" -- "$dir/lua5.4" :memory: 'WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x+1 FROM c LIMIT 3000000) SELECT sum(x) FROM c' > /dev/null 2>"$dir/log" || fail "record: $(cat "$dir/log")"
[ "$(grep -c 'lua (pid [0-9]*): its Lua functions are not named, only the' "$dir/log")" = 1 ] || fail "lua: $(cat "$dir/log")"
"$offwind" record -o "$dir/x.pb.gz" -- /usr/bin/python3 -c 'sum(i * i for i in range(8000000))' 2>"$dir/log" || fail "record: $(cat "$dir/log")"
! grep 'functions are not named' "$dir/log" || fail "python, which is named"
"$offwind" report -n 0 "$dir/x.pb.gz" | grep -q '\[cpython\] *<genexpr>' || fail "python: $("$offwind" report "$dir/x.pb.gz")"

echo "== without rights"
chmod 755 "$dir" && install -m 755 "$offwind" "$dir/offwind" # other users may be unable to enter the source tree
setpriv --reuid 65534 --regid 65534 --clear-groups "$dir/offwind" record -d 1 -o /dev/null 2>"$dir/log"
[ $? = 1 ] && [ "$(wc -l <"$dir/log")" = 1 ] && grep -q '^offwind: record needs root: sudo offwind record .*setcap .*perf record --call-graph dwarf' "$dir/log" ||
	fail "without rights: $(cat "$dir/log")"

[ $failures = 0 ] || { echo "$failures failures"; exit 1; }
