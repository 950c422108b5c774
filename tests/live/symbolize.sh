#!/usr/bin/env bash
# Tests offwind symbolize: a daemon sends addresses only, and one place gives them names, from files and from Debian's debuginfod.
set -u
. tests/recorder.sh
. tests/wait.sh
. tests/clickhouse.sh
for tool in clickhouse-server debuginfod curl; do command -v $tool >/dev/null || { echo "skipped: $tool is not installed"; exit 77; }; done
trap 'for p in ${ch_pid[*]} ${daemon:-} ${symbolized:-} ${server:-}; do kill -KILL $p; done 2>/dev/null; wait 2>/dev/null; rm -rf "$dir"' EXIT
unset DEBUGINFOD_URLS
export DEBUGINFOD_CACHE_PATH=$dir/cache

cat >"$dir/main.c" <<'C'
#include <unistd.h>
static volatile unsigned long sum;
static inline __attribute__((always_inline)) void inlined(unsigned long n)
{
	for (unsigned long i = 0; i < n; i++)
		sum += i * i;
}
__attribute__((noinline)) static void first(void) { inlined(100000); }
int main(void)
{
	alarm(600);
	for (;;)
		first();
}
C
mkdir "$dir/host" "$dir/debug" "$dir/served"
gcc -O1 -g -Wl,--build-id -o "$dir/host/symbolized" "$dir/main.c" && objcopy --only-keep-debug "$dir/host/symbolized" "$dir/debug/symbolized.debug" && strip "$dir/host/symbolized" || exit 1
# Nobody has anything of this one.
gcc -O1 -Wl,--build-id=0x1234567890abcdef1234567890abcdef12345678 -o "$dir/host/unknown" "$dir/main.c" && strip "$dir/host/unknown" || exit 1
id=$(readelf -n "$dir/host/symbolized" | sed -n 's/.*Build ID: //p')

clickhouse_prepare 1
clickhouse_start 1 || exit 1
url=http://127.0.0.1:${ch_http[1]}
"$offwind" fleet init -q $url || fail "the tables"
ask() { clickhouse_ask 1 offwind "$1"; }
symbolize() { "$offwind" symbolize --fleet $url "$@" >"$dir/out" 2>"$dir/err"; }
symbolize --no-cache || fail "an empty fleet: $(cat "$dir/err")"
grep -q ' 0 addresses of 0 files' "$dir/err" || fail "an empty fleet: $(cat "$dir/err")"

echo "== addresses only"
"$dir/host/symbolized" & symbolized=$!
"$dir/host/unknown" & symbolized="$symbolized $!"
printf "[record]\nrotate = 1\nevent = cpu-clock\nfreq = 199\ncomm = symbolized,unknown\n[export clickhouse]\nurl = $url\ninterval = 1s\nnames = no\n" >"$dir/conf"
"$offwind" daemon --config "$dir/conf" --db "$dir/o.db" --listen "unix:$dir/socket" 2>"$dir/log" & daemon=$!
# Names come before the samples: on a busy machine the daemon could end in between.
has_both() { [ "$(ask "SELECT uniqExact(build_id) FROM names WHERE module LIKE '$dir/host/%'")" = 2 ] && [ "$(ask "SELECT sum(n) FROM samples")" -ge 400 ]; }
until_or_dead $daemon has_both || fail "nothing is sent: $(cat "$dir/log")"
kill -TERM $daemon
wait $daemon || fail "the daemon: $(cat "$dir/log")"
daemon=
kill $symbolized
[ "$(ask "SELECT count() FROM names WHERE build_id != '' AND module LIKE '/%' AND notEmpty(functions)")" = 0 ] || fail "names are sent"
top() { "$offwind" query top --fleet $url --from -1h -n 0 "$@" >"$dir/top"; }
top && grep -q "\[symbolized\]\|symbolized+0x" "$dir/top" && ! grep -qw first "$dir/top" || fail "top of addresses: $(cat "$dir/top")"
counts() { ask "SELECT count(), sum(n), sum(value) FROM samples FINAL"; }
counts >"$dir/before"

echo "== nothing of the programs is here"
mv "$dir/host" "$dir/elsewhere"
symbolize --db "$dir/s.db" || fail "$(cat "$dir/err")"
grep -q " $id  $dir/host/symbolized: no such file any more" "$dir/out" || fail "a missing file: $(cat "$dir/out" "$dir/err")"
grep -qE 'files that cannot be read' "$dir/err" || fail "$(cat "$dir/err")"

echo "== debuginfod"
port=$(free_port)
mv "$dir/debug/symbolized.debug" "$dir/served/"
debuginfod -p $port -d "$dir/debuginfod.db" -F "$dir/served" >"$dir/debuginfod.log" 2>&1 & server=$!
serves() { [ "$(curl -s -o /dev/null -w '%{http_code}' "http://127.0.0.1:$port/buildid/$id/debuginfo")" = 200 ]; }
until_or_dead $server serves || fail "debuginfod: $(tail -3 "$dir/debuginfod.log")"
misses() { grep -c "buildid/1234567890abcdef1234567890abcdef12345678/debuginfo" "$dir/debuginfod.log"; }
export DEBUGINFOD_URLS=http://127.0.0.1:$port
symbolize --db "$dir/s.db" || fail "$(cat "$dir/err")"
grep -qE "^ *[1-9][0-9]* +0  $id  $dir/host/symbolized$" "$dir/out" || fail "with debuginfod: $(cat "$dir/out" "$dir/err")"
grep -q ' 1234567890abcdef.*host/unknown: no such file' "$dir/out" || fail "nobody has this: $(cat "$dir/out")"
top && grep -qw first "$dir/top" && grep -qw inlined "$dir/top" && ! grep -q '\[symbolized\]\|symbolized+0x' "$dir/top" || fail "names of old samples: $(cat "$dir/top")"
top --by source && grep -q main.c "$dir/top" || fail "source lines: $(cat "$dir/top")"
"$offwind" query labels comm --focus '^inlined$' --fleet $url | grep -q 'symbolized$' || fail "the index of functions"
counts | cmp - "$dir/before" || fail "samples have changed"
# What the servers do not have is remembered.
asked=$(misses)
[ "$asked" -ge 1 ] || fail "debuginfod was not asked: $(tail -3 "$dir/debuginfod.log")"
symbolize --db "$dir/s.db" || fail "$(cat "$dir/err")"
grep -q "$id" "$dir/out" && fail "addresses with names are asked for again: $(cat "$dir/out")"
[ "$(misses)" = "$asked" ] || fail "debuginfod was asked again for what it does not have"
# A server that is away costs names, nothing else.
DEBUGINFOD_URLS=http://127.0.0.1:1 symbolize --no-cache || fail "a debuginfod that is away: $(cat "$dir/err")"

echo "== all addresses of a file again"
ask "INSERT INTO names SELECT frame, build_id, vaddr, module, ['wrong'], [''], [toUInt32(7)], version + 1 FROM names FINAL WHERE build_id = '$id' AND lines[1] > 0"
asked=$(ask "SELECT count() FROM names FINAL WHERE has(functions, 'wrong')")
[ "$asked" -ge 2 ] || fail "$asked addresses have wrong names"
# Of names that are as good, newer ones stay.
is_later() { [ "$(date +%s)" -gt "$(ask "SELECT max(version) % 4294967296 FROM names")" ]; }
until_or_dead $server is_later
symbolize --db "$dir/s.db" --build-id "$id" || fail "$(cat "$dir/err")"
grep -qE "^ *[1-9][0-9]* +0  $id" "$dir/out" || fail "--build-id: $(cat "$dir/out" "$dir/err")"
[ "$(wc -l <"$dir/out")" = 2 ] || fail "--build-id has other files: $(cat "$dir/out")"
ask "OPTIMIZE TABLE names FINAL"
[ "$(ask "SELECT count() FROM names WHERE has(functions, 'wrong')")" = 0 ] || fail "wrong names stay"
symbolize --db "$dir/s.db" --all || fail "$(cat "$dir/err")"
grep -q "$id" "$dir/out" && grep -q libc.so "$dir/out" || fail "--all: $(cat "$dir/out")"
# In one process, from a debug file that stands in for the program.
mkdir -p "$dir/debug/.build-id/${id:0:2}" && cp "$dir/served/symbolized.debug" "$dir/debug/.build-id/${id:0:2}/${id:2}.debug"
DEBUGINFOD_URLS= OFFWIND_SANDBOX=off symbolize --no-cache --debug-dir "$dir/debug" --build-id "$id" || fail "$(cat "$dir/err")"
grep -qE "^ *[1-9][0-9]* +0  $id  $dir/host/symbolized$" "$dir/out" || fail "--debug-dir: $(cat "$dir/out" "$dir/err")"
DEBUGINFOD_URLS= symbolize --no-cache --symfs "$dir/elsewhere" --build-id "$id" || fail "$(cat "$dir/err")"
grep -qE "^ *0 +[1-9][0-9]*  $id  $dir/host/symbolized$" "$dir/out" || fail "--symfs, of a program without symbols: $(cat "$dir/out" "$dir/err")"

echo "== what is wrong is said"
"$offwind" symbolize 2>"$dir/err"; [ $? = 2 ] && grep -q -- '--fleet' "$dir/err" || fail "no URL: $(cat "$dir/err")"
"$offwind" symbolize --fleet ftp://x 2>"$dir/err"; [ $? = 2 ] || fail "no URL of HTTP: $(cat "$dir/err")"
"$offwind" symbolize --fleet http://127.0.0.1:1 2>"$dir/err"; [ $? = 1 ] && grep -q 'not all addresses' "$dir/err" || fail "nobody there: $(cat "$dir/err")"
[ $failures = 0 ]
