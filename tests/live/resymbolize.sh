#!/usr/bin/env bash
# Tests offwind resymbolize: names of a history from debug files that come after it was recorded, also while a daemon
# records and serves it.
set -u
. tests/recorder.sh
. tests/wait.sh
cat >"$dir/main.c" <<'C'
#include <unistd.h>
static volatile unsigned long sum;
static inline __attribute__((always_inline)) void inlined(unsigned long n)
{
	for (unsigned long i = 0; i < n; i++)
		sum += i * i;
}
__attribute__((noinline)) static void first(void) { inlined(100000); }
__attribute__((noinline)) static void second(void)
{
	for (int i = 0; i < 100000; i++)
		sum ^= i;
}
int main(void)
{
	alarm(600);
	for (;;) {
		first();
		second();
	}
}
C
gcc -O1 -g -Wl,--build-id -o "$dir/resymbolized" "$dir/main.c" && objcopy --only-keep-debug "$dir/resymbolized" "$dir/resymbolized.debug" && strip "$dir/resymbolized" || exit 1
id=$(readelf -n "$dir/resymbolized" | sed -n 's/.*Build ID: //p')
file=.build-id/${id:0:2}/${id:2}.debug
db=$dir/o.db history=$dir/o-history.db socket=$dir/socket
printf '[record]\nrotate = 1\nevent = cpu-clock\nfreq = 199\ncomm = resymbolized\ndebug-dir = %s\n' "$dir/debug" >"$dir/conf"
resymbolize() { "$offwind" resymbolize --db "$db" "$@" "$history" >"$dir/out" 2>&1; } # option…
# All that a window is, but what its functions are called.
windows() { sqlite3 -cmd ".timeout 10000" "$history" "SELECT id, start_ns, end_ns, level, n_samples, hex(samples) FROM windows WHERE id <= $1; SELECT window, what, reason, n FROM counters WHERE window <= $1"; } # last
newest() { sqlite3 -cmd ".timeout 10000" "$history" "SELECT coalesce(max(id), 0) FROM windows"; }
top() { curl -s --unix-socket "$socket" "http://localhost/api/v1/top?n=0&comm=resymbolized&$1"; }
has() { top "$1" | grep -q "\"function\":\"$2\""; } # arguments, function

"$dir/resymbolized" & resymbolized=$!
"$offwind" daemon --config "$dir/conf" --db "$db" --listen "unix:$socket" 2>"$dir/log" & daemon=$!
# 60 samples of both functions, which have no names yet: each runs half of the time.
has_samples() { top 'sort=self&module=resymbolized' | python3 -c 'import json, sys; sys.exit(sum(r["self"] for r in json.load(sys.stdin)["rows"] if r["function"].startswith("resymbolized+0x")) < 3e8)' 2>/dev/null; }
until_or_dead $daemon has_samples || fail "nothing is recorded: $(cat "$dir/log")"

echo "== there is nothing new yet"
resymbolize || fail "$(cat "$dir/out")"
grep -q ' addresses of [1-9][0-9]* mappings of files: 0 got names, 0 have better names or lines' "$dir/out" || fail "without debug files: $(cat "$dir/out")"

echo "== a debug file comes, while the daemon records and serves"
last=$(newest)
windows "$last" >"$dir/before"
named() { has "$1" first && has "$1" second && has "$1" inlined && ! has "$1" 'resymbolized+0x[0-9a-f]*'; }
mkdir -p "$dir/debug/${file%/*}"
cp "$dir/resymbolized.debug" "$dir/debug/$file"
from=$(sqlite3 -cmd ".timeout 10000" "$history" "SELECT min(start_ns) FROM windows")
to=$(sqlite3 -cmd ".timeout 10000" "$history" "SELECT end_ns FROM windows WHERE id = $last")
# Names are cached by what serves until they change.
has "from=${from}ns&to=${to}ns" first && fail "the daemon found the debug file by itself"
resymbolize --debug-dir "$dir/debug" || fail "$(cat "$dir/out")"
grep -qE ': [1-9][0-9]* got names' "$dir/out" || fail "with a debug file: $(cat "$dir/out")"
named "from=${from}ns&to=${to}ns" || fail "names after resymbolize: $(top "from=${from}ns&to=${to}ns")"
top "from=${from}ns&to=${to}ns&by=source&sort=self" | grep -q 'main.c' || fail "source lines: $(top "from=${from}ns&to=${to}ns&by=source")"
curl -s --unix-socket "$socket" "http://localhost/api/v1/profile?format=folded&comm=resymbolized&from=${from}ns&to=${to}ns" | grep -q 'main;first;inlined_\[i\] ' || fail "inlined calls"
curl -s --unix-socket "$socket" "http://localhost/api/v1/labels?key=comm&focus=^inlined$&from=${from}ns&to=${to}ns" | grep -q '"value":"resymbolized"' || fail "single samples do not have the names"
windows "$last" | cmp "$dir/before" || fail "windows have changed"
# The worker of the daemon has read the program without the file. It does not take the names back.
grew() { [ "$(newest)" -ge $((last + 3)) ]; }
last=$(newest)
until_or_dead $daemon grew
named "from=${from}ns&to=${to}ns" || fail "the daemon took names back: $(top "from=${from}ns&to=${to}ns")"
[ "$(sqlite3 -cmd ".timeout 10000" "$history" "SELECT count(*) FROM (SELECT window, sum(n * (what = 'fired')) AS fired, sum(n * (what IN ('unwound', 'waiting', 'filtered', 'lost'))) AS settled FROM counters GROUP BY window HAVING fired <> settled)")" = 0 ] || fail "sums of windows"
kill -TERM $daemon
wait $daemon || fail "exit $?: $(cat "$dir/log")"
kill $resymbolized

echo "== what says more stays, and other ways to find the file"
# Addresses that ran for the first time after that do not have names yet.
resymbolize --debug-dir "$dir/debug" || fail "$(cat "$dir/out")"
"$offwind" report --from -1h -n 0 "$history" >"$dir/report"
grep -q ' first$' "$dir/report" && ! grep -q 'resymbolized+0x' "$dir/report" || fail "report: $(cat "$dir/report")"
resymbolize --no-lines || fail "$(cat "$dir/out")"
grep -qE ' [1-9][0-9]* keep names that say more' "$dir/out" || fail "without the debug file: $(cat "$dir/out")"
"$offwind" report --from -1h -n 0 "$history" | cmp - "$dir/report" || fail "names were taken back"
"$offwind" report --time 0,1 "$history" >"$dir/out" 2>"$dir/err"
[ $? = 1 ] && grep -q -- '--time is for recordings; a history takes --from and --to' "$dir/err" || fail "--time of a history: $(cat "$dir/err")"
# Many histories are one profile; of one with a damaged window, the others are reported, and the exit code says so.
sqlite3 "$history" "VACUUM INTO '$dir/copy-01.db'" && for i in {02..20}; do cp "$dir/copy-01.db" "$dir/copy-$i.db"; done
samples() { sed -n 's/^# \([0-9]*\) samples.*/\1/p' "$1"; }
"$offwind" report -n 1 "$dir"/copy-*.db >"$dir/out" 2>"$dir/err" && [ "$(samples "$dir/out")" = $((20 * $(samples "$dir/report"))) ] || fail "20 histories: $(cat "$dir/out" "$dir/err")"
sqlite3 "$dir/copy-01.db" "UPDATE windows SET samples = x'ff' WHERE id = (SELECT max(id) FROM windows)"
"$offwind" report -n 1 "$dir/copy-01.db" >"$dir/out" 2>"$dir/err"
[ $? = 3 ] && grep -q damaged "$dir/err" && [ "$(samples "$dir/out")" -gt 0 ] || fail "a damaged window: $(cat "$dir/out" "$dir/err")"
# Each of these begins with what was recorded without names: the debug file below --symfs, and from a server.
"$dir/resymbolized" & resymbolized=$!
begin() {
	local seconds n
	for seconds in 2 8 32; do # until both of its functions have samples
		rm -f "$history"* "$dir"/o.db*
		"$offwind" record -q --db "$db" --history "$history" --rotate 1 -d $seconds -F 199 -p $resymbolized && "$offwind" report --from -1h -n 0 "$history" >"$dir/report"
		n=$(samples "$dir/report")
		[ "${n:-0}" -lt 40 ] || break
	done
	grep -q 'resymbolized+0x' "$dir/report" || fail "nothing without a name: $(cat "$dir/report")"
}
comes() { # how
	"$offwind" report --from -1h -n 0 "$history" >"$dir/report"
	grep -qE ': [1-9][0-9]* got names' "$dir/out" && grep -q ' first$' "$dir/report" && grep -q ' inlined$' "$dir/report" || fail "$1: $(cat "$dir/out" "$dir/report")"
}
begin
mkdir -p "$dir/sys/usr/lib/debug/${file%/*}" && cp "$dir/resymbolized.debug" "$dir/sys/usr/lib/debug/$file"
resymbolize --symfs "$dir/sys" && comes --symfs
begin
mkdir -p "$dir/server/buildid/$id" && cp "$dir/resymbolized.debug" "$dir/server/buildid/$id/debuginfo"
DEBUGINFOD_URLS="file://$dir/server" DEBUGINFOD_CACHE_PATH=$dir/cache resymbolize && comes debuginfod
# A range of time: functions that did not run in it are not looked up.
begin
resymbolize --debug-dir "$dir/debug" --from -2h --to -1h && grep -q '^offwind: 0 addresses of 0 ' "$dir/out" || fail "another time: $(cat "$dir/out")"
resymbolize --debug-dir "$dir/debug" --from -1h && comes "a range of time"
# The program itself is gone.
begin
kill $resymbolized
mv "$dir/resymbolized" "$dir/elsewhere"
resymbolize --no-cache && grep -q "$dir/resymbolized, build-id $id, with [1-9]" "$dir/out" || fail "a program that is gone: $(cat "$dir/out")"
mkdir "$dir/moved" && mv "$dir/elsewhere" "$dir/moved/resymbolized"
resymbolize --no-cache --symfs "$dir/moved" --debug-dir "$dir/debug" && comes "a program that was moved"

echo "== what is wrong is said"
echo nothing >"$dir/nothing"
"$offwind" resymbolize "$dir/nothing" 2>"$dir/out"; [ $? = 1 ] && grep -q 'this is no history' "$dir/out" || fail "no history: $(cat "$dir/out")"
"$offwind" resymbolize "$history" "$history" 2>"$dir/out"; [ $? = 2 ] || fail "two histories"
OFFWIND_DB=$dir/none.db "$offwind" resymbolize 2>"$dir/out"; [ $? = 1 ] && grep -q 'offwind daemon makes it' "$dir/out" || fail "no default history: $(cat "$dir/out")"
[ $failures = 0 ] || { echo "$failures failures"; exit 1; }
