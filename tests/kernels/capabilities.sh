#!/usr/bin/env bash
# Runs on another kernel, by tests/kernels.sh: which capabilities recording needs there, with perf_event_paranoid as the
# kernel has it by default (Debian's: 3), and with 2. PREBUILT is the directory of the programs.
set -u
offwind=$PWD/$BUILD/offwind
dir=$(mktemp -d)
chmod 755 "$dir"
failures=0
fail() {
	echo "FAIL: $*"
	failures=$((failures + 1))
}
"$PREBUILT/target" spin >/dev/null & busy=$!
trap 'kill $busy; rm -rf "$dir"' EXIT
level=/proc/sys/kernel/perf_event_paranoid
as_user() {
	setpriv --reuid 65534 --regid 65534 --clear-groups --inh-caps=+bpf,+perfmon --ambient-caps=+bpf,+perfmon \
		"$offwind" record -a -F 99 -d 300ms -o /dev/null 2>"$dir/log"
}
as_service() { # FILE…: of the unit and its drop-ins
	local held
	held=$(sed -n 's/^CapabilityBoundingSet=//p' "$@" | tr ' ' '\n' | sed 's/^CAP_/+/' | tr 'A-Z\n' 'a-z,')
	setpriv --no-new-privs --bounding-set "-all,${held%,}" "$offwind" record -a -F 99 -d 1 -o "$dir/p.pb.gz" --stats "$dir/stats" 2>"$dir/log"
}
is_refused() { [ "$(wc -l <"$dir/log")" = 1 ] && grep -q 'perf_event_paranoid' "$dir/log"; }
recorded() {
	"$offwind" report -n 0 "$dir/p.pb.gz" | grep -q 'target' || fail "what runs is not in the profile: $(cat "$dir/log")"
	python3 - "$dir/stats" <<-'PY' || fail "the account"
	import json, sys
	c = json.load(open(sys.argv[1]))["total"]
	assert c["fired"] == sum(sum(c[k].values()) for k in ("filtered", "lost", "unwound")) + c["waiting"] and sum(c["unwound"].values()), c
	PY
	rm -f "$dir/p.pb.gz"
}
ulimit -l unlimited

echo "== perf_event_paranoid $(cat $level), as by default"
if [ "$(cat $level)" -gt 2 ]; then
	as_user && fail "a user with CAP_BPF and CAP_PERFMON can record" || is_refused || fail "why: $(cat "$dir/log")"
	as_service deploy/offwind.service && fail "the service needs no drop-in" || is_refused || fail "why: $(cat "$dir/log")"
fi
as_service deploy/offwind.service deploy/perf-event-paranoid.conf && recorded || fail "with the drop-in: $(cat "$dir/log")"

echo "== perf_event_paranoid 2"
echo 2 >$level
as_user || fail "CAP_BPF and CAP_PERFMON do not do: $(cat "$dir/log")"
(ulimit -l 64 && as_user)
[ $? = 1 ] && grep -q 'ulimit -l' "$dir/log" && [ "$(wc -l <"$dir/log")" = 1 ] || fail "a low limit of locked memory: $(cat "$dir/log")"
as_service deploy/offwind.service && recorded || fail "the service's capabilities do not do: $(cat "$dir/log")"
[ $failures = 0 ] || { echo "$failures failures"; exit 1; }
