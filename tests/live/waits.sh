#!/usr/bin/env bash
# Tests how long threads waited: the sums for 20 long-lived and 500 short-lived processes equal
# those of their own clocks and of the scheduler's statistics, also if short waits are left out, and
# every wait that began is accounted for.
set -u
. "$(dirname "$0")/../recorder.sh"
waits=$PWD/$BUILD/tests/live/waits

cat >"$dir/sums.py" <<'PY'
import json, sys
truth, folded, stats, least = sys.argv[1:]
told, n = {}, 0
for line in open(folded, encoding='utf-8', errors='replace'):
    stack, _, value = line.rpartition(' ')
    name = stack.split(';')[0]
    told[name] = told.get(name, 0) + int(value)
for line in open(truth):
    name, off, delayed, low, high = line.split()
    low, high = (int(low), int(high)) if int(least) else (int(off) - int(delayed), int(off))
    got = told.pop(name, 0)
    print(name, 'waited', got, 'ns, by the scheduler', low, 'to', high)
    assert low * 0.98 <= got <= high * 1.02, name
# Everything outside of the measured time has other thread names.
assert not told, told
total = json.load(open(stats))['total']
waits = total['waits']
print(waits, total['wakes'])
begun = waits.pop('begun')
assert begun == sum(waits.values()), (begun, waits)
# A sleep is no wait if its timer fires before its thread has left the CPU (do_nanosleep): one in a thousand.
assert begun >= 0.99 * (20 * 80 + 500 * 6), begun
assert waits['still_waiting'] == 0 and waits['end_unknown'] == 0, waits
assert (waits['too_short'] > 0) == (int(least) > 0), waits
PY
sums() { # what, least in ns, options
	local what=$1 least=$2
	shift 2
	"$offwind" record --no-cache -F 99 --comm w_long,w_short "$@" --sample-type off_cpu -f folded --stats "$dir/stats" -o "$dir/folded" \
		-- "$waits" "$least" >"$dir/truth" 2>"$dir/log" || { fail "$what: $(cat "$dir/log")"; return; }
	if [ -d "$dir/folded" ]; then # of all windows together
		cat "$dir/folded"/* >"$dir/all"
		rm -r "$dir/folded"
		mv "$dir/all" "$dir/folded"
	fi
	python3 "$dir/sums.py" "$dir/truth" "$dir/folded" "$dir/stats" "$least" >"$dir/py" 2>&1 || fail "$what: $(cat "$dir/py")"
	cat "$dir/py"
	grep -qE '^offwind: waits [0-9]+ = ended [0-9]+ \+ too short [0-9]+ \+ still waiting at the end 0 \+ lost 0$' "$dir/log" || fail "$what: $(cat "$dir/log")"
	rm "$dir/folded"
}
sums "all waits" 0 --off-cpu
sums "waits of 5 ms and more" 5000000 --off-cpu=5ms
sums "waits in windows of a second" 0 --off-cpu --rotate 1

echo "== a wait that goes on"
"$offwind" record --no-cache --comm sleep -d 2 --off-cpu=200ms --sample-type off_cpu -f folded --stats "$dir/stats" -o "$dir/folded" \
	-- bash -c 'sleep 0.02; sleep 0.02; sleep 0.02; sleep 1000' 2>"$dir/log" || fail "$(cat "$dir/log")"
python3 - "$dir/folded" "$dir/stats" <<'PY' || fail "a wait that goes on: $(cat "$dir/log")"
import json, sys
told = sum(int(line.rpartition(' ')[2]) for line in open(sys.argv[1], encoding='utf-8', errors='replace'))
waits = json.load(open(sys.argv[2]))['total']['waits']
print(told, waits)
begun = waits.pop('begun')
assert begun == sum(waits.values()), waits
assert waits['still_waiting'] == 1, waits
assert 0 < told < 100e9, told
PY
[ $failures = 0 ] || { echo "$failures failures"; exit 1; }
