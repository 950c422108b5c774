#!/usr/bin/env bash
# Tests the daemon as a service: what it tells the service manager, other settings while it runs, and
# sockets that the service manager opened.
set -u
. tests/recorder.sh
. tests/wait.sh
export NOTIFY_SOCKET="$dir/notify" WATCHDOG_USEC=2000000
port=$(free_port) more=$(free_port)
python3 tests/live/notify.py "$dir/notify" >"$dir/told" & manager=$!
until_or_dead $manager [ -S "$dir/notify" ] || exit 1
cat >"$dir/conf" <<CONF
[server]
listen = 127.0.0.1:$port
listen = unix:$dir/socket
[store]
db = $dir/store.db
CONF
"$offwind" daemon --config "$dir/conf" 2>"$dir/log" & daemon=$!
told() { [ "$(grep -c "$1" "$dir/told")" -ge "$2" ]; } # WORD TIMES
healthy() { [ "$(curl -s "$@")" = ok ]; }
worker() { pgrep -P $daemon offwind-worker; }
windows() { sqlite3 "file:$dir/store-history.db?mode=ro" 'SELECT count(*) FROM windows' 2>/dev/null || echo 0; }

echo "== ready"
until_or_dead $daemon told ^READY=1 1 || fail "READY: $(cat "$dir/told" "$dir/log")"
grep -q "STATUS=.* 127.0.0.1:$port unix:$dir/socket" "$dir/told" || fail "the status: $(cat "$dir/told")"
# It says so when it can be asked, not before.
healthy "127.0.0.1:$port/healthz" || fail "ready, but not served"
healthy --unix-socket "$dir/socket" http://localhost/healthz || fail "ready, but the socket is not served"
[ "$(stat -c %a "$dir/socket")" = 660 ] || fail "the socket's mode"
# What the image and the manifest ask it with.
deploy/probe.sh /healthz "$port" || fail "the probe of a daemon that is well"
deploy/probe.sh /nothing "$port" && fail "the probe of a request that fails"
deploy/probe.sh /healthz "$more" 2>/dev/null && fail "the probe of a daemon that is not there"

# A second one with the same history waits for the end of the first one, but not for long.
NOTIFY_SOCKET='' "$offwind" daemon --config "$dir/conf" --listen "unix:$dir/second" 2>"$dir/other" & second=$!

echo "== watchdog"
until_or_dead $daemon told WATCHDOG=1 2 || fail "WATCHDOG: $(cat "$dir/told")"
kill -STOP "$(worker)"
sleep 2 # what was sent before is printed by now
n=$(grep -c WATCHDOG=1 "$dir/told")
sleep 5 # two and more messages would come; a slow machine only makes them fewer
[ "$(grep -c WATCHDOG=1 "$dir/told")" -le $((n + 1)) ] || fail "the worker stands still, and the daemon says that it lives"
kill -CONT "$(worker)"
wait $second && fail "a second daemon records into the same history"
grep -q 'another daemon records into this history' "$dir/other" || fail "why not: $(cat "$dir/other")"
until_or_dead $daemon told WATCHDOG=1 $((n + 2)) || fail "WATCHDOG after the worker went on"

echo "== wrong settings change nothing"
before=$(worker)
echo 'nonsense = 1' >>"$dir/conf"
kill -HUP $daemon
until_or_dead $daemon grep -q "conf:6: there is no setting 'nonsense'" "$dir/log" || fail "a wrong setting: $(cat "$dir/log")"
until_or_dead $daemon grep -q 'recording goes on' "$dir/log" || fail "a wrong setting: $(cat "$dir/log")"
[ "$(worker)" = "$before" ] && ! told RELOADING=1 1 || fail "wrong settings: the daemon began again"
# What this machine lacks does not end the daemon either.
refused() { [ "$(grep -c 'recording goes on' "$dir/log")" = "$1" ]; }
k=1
cp "$dir/conf" "$dir/wrong"
for lacking in 'event = sched:nothing' "uprobe = $offwind:no_such_function" 'cpu = 4095'; do
	sed "\$s,.*,[record]\n$lacking," "$dir/wrong" >"$dir/conf"
	kill -HUP $daemon
	until_or_dead $daemon refused $((++k)) || fail "$lacking: $(cat "$dir/log")"
done
grep -q 'event sched:nothing: there is no such tracepoint' "$dir/log" && grep -q 'no_such_function' "$dir/log" && grep -q 'none of the CPUs' "$dir/log" || fail "what is lacking: $(cat "$dir/log")"
[ "$(worker)" = "$before" ] && ! told RELOADING=1 1 || fail "what is lacking: the daemon began again"
cp "$dir/wrong" "$dir/conf"

echo "== other settings"
sed -i "\$d; s/^listen = 127.*/&\nlisten = 127.0.0.1:$more/; s,^listen = unix.*,," "$dir/conf"
printf '[history]\nage = 9d\nbytes = 2M\n' >>"$dir/conf"
limits() { sqlite3 "file:$dir/store-history.db?mode=ro" "SELECT name, value FROM settings WHERE name LIKE '%_ns' OR name = 'bytes' ORDER BY name" | paste -sd' '; }
[ "$(limits | sed 's/swept_ns|[0-9]*//')" = '' ] || fail "limits that nobody set: $(limits)"
have=$(windows)
# Who connects while the daemon begins again has to wait, but is not refused.
while [ ! -e "$dir/enough" ]; do
	curl -s -o /dev/null "127.0.0.1:$port/healthz"
	[ $? != 7 ] || echo refused
done >"$dir/refused" & asking=$!
kill -HUP $daemon
until_or_dead $daemon told ^READY=1 2 || fail "READY after SIGHUP: $(cat "$dir/told" "$dir/log")"
touch "$dir/enough"
wait $asking
[ ! -s "$dir/refused" ] || fail "connections were refused: $(wc -l <"$dir/refused")"
grep -q '^RELOADING=1 MONOTONIC_USEC=[0-9]* ' "$dir/told" || fail "RELOADING: $(cat "$dir/told")"
[ "$(windows)" -gt "$have" ] || fail "the window in flight is lost: $(windows) windows, $have before"
[ "$(worker)" != "$before" ] || fail "the worker is the same"
healthy "127.0.0.1:$port/healthz" && healthy "127.0.0.1:$more/healthz" || fail "the addresses"
limits | grep -q 'age_ns|777600000000000 bytes|2097152' || fail "the history's limits: $(limits)"
[ ! -e "$dir/socket" ] || fail "a socket that is no longer wanted stays"
until_or_dead $daemon told WATCHDOG=1 $((n + 3)) || fail "WATCHDOG after SIGHUP"

echo "== twice in a row, and the end"
kill -HUP $daemon
kill -HUP $daemon
until_or_dead $daemon told ^READY=1 3 || fail "READY after two more: $(cat "$dir/told" "$dir/log")"
have=$(windows)
kill -TERM $daemon
wait $daemon || fail "the exit code is $?: $(cat "$dir/log")"
until_or_dead $manager told STOPPING=1 1 || fail "STOPPING: $(cat "$dir/told")"
[ "$(windows)" -gt "$have" ] || fail "the last window is lost"

echo "== sockets of the service manager"
sh -c 'export LISTEN_PID=$$ LISTEN_FDS=1; exec "$0" daemon --config "$1" 3</dev/null' "$offwind" "$dir/conf" 2>"$dir/other" && fail "a passed file is listened on"
grep -q 'the service manager passed descriptor 3, which is no socket: ' "$dir/other" || fail "a passed file: $(cat "$dir/other")"
listening() { grep -q ":$(printf %04X "$port") 00000000:0000 0A" /proc/net/tcp; }
systemd-socket-activate -E NOTIFY_SOCKET -E WATCHDOG_USEC -l "127.0.0.1:$port" -l "$dir/passed" "$offwind" daemon --config "$dir/conf" 2>"$dir/log" & daemon=$!
until_or_dead $daemon listening || exit 1
: >"$dir/told"
# The first connection starts the daemon, and then is answered.
healthy "127.0.0.1:$port/healthz" || fail "a passed socket: $(cat "$dir/log")"
healthy --unix-socket "$dir/passed" http://localhost/healthz || fail "a passed UNIX socket"
healthy "127.0.0.1:$more/healthz" && fail "the settings' address, too"
grep -q 'listen are not used' "$dir/log" || fail "no word about the settings' address: $(cat "$dir/log")"
until_or_dead $daemon told "READY=1 STATUS=.* 127.0.0.1:$port unix:$dir/passed" 1 || fail "READY: $(cat "$dir/told")"
kill -HUP $daemon
until_or_dead $daemon told ^READY=1 2 || fail "READY after SIGHUP: $(cat "$dir/told" "$dir/log")"
healthy "127.0.0.1:$port/healthz" && healthy --unix-socket "$dir/passed" http://localhost/healthz || fail "passed sockets after SIGHUP"
kill -TERM $daemon
wait $daemon || fail "the exit code is $?: $(cat "$dir/log")"
[ -S "$dir/passed" ] || fail "the service manager's socket is removed"
kill $manager
[ $failures = 0 ] || { echo "$failures failures"; exit 1; }
