#!/usr/bin/env bash
# Tests recording, and the daemon, with no more rights than the systemd unit leaves: whole stacks with names,
# of other users' programs too, and of those that are deleted.
set -u
. tests/recorder.sh
. tests/wait.sh
chmod 755 "$dir"
unit=deploy/offwind.service
capabilities=$(sed -n 's/^CapabilityBoundingSet=//p' $unit | tr ' ' '\n' | sed 's/^CAP_//; s/^/+/' | tr 'A-Z\n' 'a-z,')
with=(setpriv --no-new-privs --inh-caps=-all --bounding-set="-all,${capabilities%,}")
# What was not possible; not with the hostile files of another test that runs on this machine.
missing() { awk -v dir="$dir" 'tolower($0) ~ /not permitted|cannot be/ && (index($0, dir) || $0 !~ /: \/(tmp|var\/tmp)\/|\/memfd:|: names of generated code/)' "$dir/log" | grep .; }
hot_program "$dir/main.c"
gcc -O1 -g -o "$dir/prog" "$dir/main.c" && cp "$dir/prog" "$dir/deleted" || exit 1
setpriv --reuid 4242 --regid 4242 --clear-groups "$dir/prog" & users=$!
"$dir/deleted" & own=$!
until [ "$(readlink /proc/$own/exe)" = "$dir/deleted" ] || ! kill -0 $own; do sleep 0.01; done
rm "$dir/deleted"
"${with[@]}" grep -q "^CapEff:.0*$(grep -o '^CapBnd:.*' <("${with[@]}" cat /proc/self/status) | sed 's/.*\t0*//')\$" /proc/self/status || fail "the capabilities"
for seconds in 1 4 16; do # a busy machine gives few samples
	"${with[@]}" "$offwind" record -a -d $seconds --db "$dir/store.db" -o "$dir/p.pb.gz" 2>"$dir/log" || fail "record: exit $?: $(cat "$dir/log")"
	"$offwind" report -n 0 "$dir/p.pb.gz" >"$dir/rows"
	grep -q ' prog .*hot' "$dir/rows" && grep -q ' deleted .*hot' "$dir/rows" && break
done
grep -q ' prog .*hot' "$dir/rows" || fail "another user's program has no names: $(cat "$dir/log" "$dir/rows")"
grep -q ' deleted .*hot' "$dir/rows" || fail "a deleted program has no names: $(cat "$dir/log" "$dir/rows")"
grep -q '\[kernel\]' "$dir/rows" && ! grep -q '\[kernel\] *\[kernel\]' "$dir/rows" || echo "no samples in the kernel, or they have no names"
missing && fail "something is missing"

# The daemon has no network either: its sockets are passed to it.
socket=$dir/daemon.sock
ask() { curl -s --unix-socket "$socket" "http://localhost$1"; }
systemd-socket-activate -l "$socket" unshare --net "${with[@]}" "$offwind" daemon --config /dev/null --db "$dir/daemon.db" 2>"$dir/log" & daemon=$!
until_or_dead $daemon [ -S "$socket" ] || exit 1
served() { ask '/api/v1/profile?format=folded&from=-1h' >"$dir/stacks" && grep -q 'prog;.*hot' "$dir/stacks" && grep -q 'deleted;.*hot' "$dir/stacks"; }
ask "/debug/pprof/profile?seconds=2" >/dev/null
until_or_dead $daemon served || fail "the daemon serves no stacks with names: $(head -c 2000 "$dir/stacks") $(cat "$dir/log")"
# It can end its processes, which have no users that it is, and begin again.
of() { pgrep -P $daemon "$1"; }
began_again() { [ -n "$(of offwind-worker)" ] && [ -n "$(of offwind-server)" ] && [ "$(of offwind-worker)" != "$before" ] && [ "$(of offwind-server)" != "$server" ]; }
before=$(of offwind-worker) server=$(of offwind-server)
kill -HUP $daemon
until_or_dead $daemon began_again || fail "the daemon does not begin again: $(cat "$dir/log")"
until_or_dead $daemon served || fail "the daemon does not serve again: $(cat "$dir/log")"
kill $daemon
wait $daemon || fail "the daemon: exit $?: $(cat "$dir/log")"
missing && fail "something is missing for the daemon"
kill $users $own
exit $((failures > 0))
