#!/usr/bin/env bash
# Tests how long threads waited: the sums for 20 long-lived and 500 short-lived processes equal
# those of their own clocks and of the scheduler's statistics, also if short waits are left out, and
# every wait that began is accounted for. The sums stay true if only few of a million waits are
# captured. How long threads were ready to run before they ran, and who woke them, with the wakers' stacks.
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
assert waits['not_sampled'] == 0 and waits['still_waiting'] == 0 and waits['end_unknown'] == 0, waits
assert (waits['too_short'] > 0) == (int(least) > 0), waits
PY
sums() { # what, least in ns, options
	local what=$1 least=$2
	shift 2
	"$offwind" record --no-cache -F 99 --comm w_long,w_short "$@" --wait-rate 100000 --sample-type off_cpu -f folded --stats "$dir/stats" -o "$dir/folded" \
		-- "$waits" "$least" >"$dir/truth" 2>"$dir/log" || { fail "$what: $(cat "$dir/log")"; return; }
	if [ -d "$dir/folded" ]; then # of all windows together
		cat "$dir/folded"/* >"$dir/all"
		rm -r "$dir/folded"
		mv "$dir/all" "$dir/folded"
	fi
	python3 "$dir/sums.py" "$dir/truth" "$dir/folded" "$dir/stats" "$least" >"$dir/py" 2>&1 || fail "$what: $(cat "$dir/py")"
	cat "$dir/py"
	grep -qE '^offwind: waits [0-9]+ = ended [0-9]+ \+ too short [0-9]+ \+ not sampled 0 \+ still waiting at the end 0 \+ lost 0$' "$dir/log" || fail "$what: $(cat "$dir/log")"
	rm "$dir/folded"
}
sums "all waits" 0 --off-cpu
sums "waits of 5 ms and more" 5000000 --off-cpu=5ms
sums "waits in windows of a second" 0 --off-cpu --rotate 1

echo "== a wait that goes on"
for seconds in 2 8 30; do # on a busy machine the last sleep begins late
	"$offwind" record --no-cache --comm sleep -d $seconds --off-cpu=200ms --sample-type off_cpu -f folded --stats "$dir/stats" -o "$dir/folded" \
		-- bash -c 'sleep 0.02; sleep 0.02; sleep 0.02; sleep 1000' 2>"$dir/log" || fail "$(cat "$dir/log")"
	grep -q 'still waiting at the end 1 ' "$dir/log" && [ -s "$dir/folded" ] && break
done
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
echo "== many more waits than are captured"
"$offwind" record --no-cache -F 99 --comm w_pair,w_nap,w_rest --off-cpu --wait-rate 300 --stats "$dir/stats" -o "$dir/busy.pb.gz" \
	-- "$waits" busy 4 >"$dir/truth" 2>"$dir/log" || fail "$(cat "$dir/log")"
by() { # label, type, options
	local label=$1 type=$2
	shift 2
	"$offwind" report --json -n 0 --by "$label" --type "$type" "$@"
}
cat >"$dir/rows.py" <<'PY'
import json, os, sys
os.chdir(sys.argv[1])
def rows(name, key='comm'):
    return {row[key]: row['self'] for row in json.load(open(name + '.json'))['rows']}
PY
for type in off_cpu runnable off_cpu_samples; do by comm $type "$dir/busy.pb.gz" >"$dir/$type.json" || fail "$type"; done
by waker off_cpu --label comm=w_pair "$dir/busy.pb.gz" >"$dir/waker.json" || fail wakers
cat "$dir/rows.py" - >"$dir/busy.py" <<'PY'
told, runnable, counts, wakers = rows('off_cpu'), rows('runnable'), rows('off_cpu_samples'), rows('waker', 'waker')
waits = json.load(open('stats'))['total']['waits']
print(told, runnable, counts, wakers, waits)
assert waits['not_sampled'] > 20 * waits['ended'], 'nothing was left out'
# The first second may have several times as many as the others.
assert waits['ended'] < 300 * os.cpu_count() * 12, waits['ended']
# Each that was captured stands for as many as it should.
assert abs(sum(counts.values()) / waits['begun'] - 1) < 0.05, sum(counts.values())
for line in open('truth'):
    name, off, delayed = line.split()
    off, delayed = int(off), int(delayed)
    print(name, 'waited', told[name], 'ns, by the scheduler', off - delayed, 'to', off)
    # A pair's waits are as short as what the scheduler needs for them.
    near = 0.2 if name == 'w_pair' else 0.06
    assert (off - delayed) * (1 - near) <= told[name] <= off * (1 + near), name
assert wakers['w_pair'] > 0.8 * told['w_pair'], wakers
PY
python3 "$dir/busy.py" "$dir" || fail "many waits: $(cat "$dir/log")"

echo "== ready to run"
"$offwind" record --no-cache -F 99 --comm w_late --off-cpu --raw="$dir/late.owc" -o "$dir/late.pb.gz" \
	-- "$waits" late >"$dir/truth" 2>"$dir/log" || fail "$(cat "$dir/log")"
"$offwind" unwind -q -o "$dir/again.pb.gz" "$dir/late.owc" || fail unwind
for type in off_cpu blocked runnable off_cpu_samples; do
	by comm $type "$dir/late.pb.gz" >"$dir/$type.json" || fail "$type"
	[ "$(by waker $type "$dir/late.pb.gz" | grep -v '"files"')" = "$(by waker $type "$dir/again.pb.gz" | grep -v '"files"')" ] || fail "$type: the capture file has other waits"
done
"$offwind" flamegraph -o "$dir/late.html" "$dir/late.pb.gz" || fail flamegraph
for type in samples cpu off_cpu_samples off_cpu blocked runnable wall; do
	grep -q "\"$type\"" "$dir/late.html" || fail "the flame graph does not have $type"
done
by waker blocked "$dir/late.pb.gz" >"$dir/waker.json" || fail wakers
cat "$dir/rows.py" - >"$dir/late.py" <<'PY'
off, blocked, runnable = (rows(name)['w_late'] for name in ('off_cpu', 'blocked', 'runnable'))
wakers = rows('waker', 'waker')
name, delayed = open('truth').read().split()
print(off, blocked, runnable, wakers, delayed)
assert off == blocked + runnable, 'the parts are not the whole'
assert abs(runnable - int(delayed)) < 0.06 * int(delayed) + 5e6, 'not as long as the scheduler says'
assert runnable > 1e8, 'the other process did not compute'
# A timer ends each nap; it may come during a system call of whoever has the CPU.
assert wakers['[interrupt]'] > 0.2 * blocked, wakers
PY
python3 "$dir/late.py" "$dir" || fail "ready to run: $(cat "$dir/log")"
echo "== the stacks of wakers"
cat >"$dir/wake.py" <<'PY'
import json, re, sys
folded, stats = sys.argv[1:3]
WAKES = 40
total = json.load(open(stats))['total']
waits, wakes, wakers = total['waits'], total['wakes'], total['wakers']
print(waits, wakes, wakers)
assert waits['not_sampled'] == 0 and waits['end_unknown'] == 0, waits
lacking = {key: wakers[key] for key in ('too_short', 'not_selected', 'ring_full', 'unreadable')}
assert wakers['seen'] == wakers['captured'] + sum(lacking.values()), wakers
found, whole, alone, without, interrupts = {}, 0, 0, 0, 0
for line in open(folded, encoding='utf-8', errors='replace'):
    stack, _, n = line.rpartition(' ')
    n, frames = int(n), stack.split(';')
    places = [i for i, frame in enumerate(frames) if frame.startswith('[woken by] ')]
    assert len(places) <= 1, stack
    if not places:
        without += n
        continue
    # The thread's name comes first, then the waker, outermost frame first.
    waker, waiter, by = frames[1:places[0]], frames[places[0] + 1:], frames[places[0]][11:]
    if by == '[interrupt]':
        assert not waker, stack
        interrupts += n
        continue
    whole += n if waker else 0
    alone += 0 if waker else n
    a = [frame for frame in waker if re.match('a_[a-z]+_gives', frame)]
    b = [frame for frame in waiter if re.match('b_[a-z]+_takes', frame)]
    if a and b:
        assert by == 'wk_a', stack
        assert any(frame.endswith('_[k]') for frame in waker), 'the kernel part is missing: ' + stack
        key = frames[0], b[0], a[0], waker[0] == '_start' or 'start_thread' in waker or 'clone' in waker[0]
        found[key] = found.get(key, 0) + n
print(found, 'whole', whole, 'alone', alone, 'without', without, 'interrupts', interrupts)
# Each wait has a waker's stack, or the reason why it has none.
assert whole + alone == wakers['seen'], (whole, alone)
assert alone == sum(lacking.values()), (alone, lacking)
assert without == wakes['waker_unknown'] + waits['still_waiting'], (without, wakes)
assert whole + alone + without + interrupts == waits['ended'] + waits['still_waiting']
for key in ('wk_pipe', 'b_pipe_takes', 'a_pipe_gives', True), ('wk_futex', 'b_futex_takes', 'a_futex_gives', True), \
        ('wk_cond', 'b_cond_takes', 'a_cond_gives', True), ('wk_deep', 'b_pipe_takes', 'a_deep_gives', False):
    # One that finds what it waits for does not wait. The stack of a_deep_gives is longer than what is copied.
    assert 0.8 * WAKES <= found.get(key, 0) <= 2 * WAKES, key
# It seldom runs, so that several have given something meanwhile; they have all ended then.
assert found.get(('wk_gone', 'b_pipe_takes', 'a_pipe_gives', True), 0) >= 10, 'wk_gone'
assert ('wk_gone', 'b_pipe_takes', 'a_pipe_gives', False) not in found, 'wk_gone'
PY
"$offwind" record --no-cache -F 99 --comm wk_pipe,wk_futex,wk_cond,wk_gone,wk_deep --off-cpu --wakers --wait-rate 100000 --stack-max 65536 \
	--raw="$dir/wake.owc" --stats "$dir/stats" -o "$dir/wake.pb.gz" -- "$waits" wake 2>"$dir/log" || fail "$(cat "$dir/log")"
"$offwind" report -f folded --type off_cpu_samples -o "$dir/folded" "$dir/wake.pb.gz" || fail "report"
python3 "$dir/wake.py" "$dir/folded" "$dir/stats" || fail "wakers: $(cat "$dir/log")"
"$offwind" unwind -q -o "$dir/again.pb.gz" "$dir/wake.owc" && "$offwind" report -f folded --type off_cpu_samples -o "$dir/again" "$dir/again.pb.gz" || fail unwind
cmp "$dir/folded" "$dir/again" || fail "the capture file has other wakers"
by comm off_cpu_samples --label waker_stack=truncated "$dir/wake.pb.gz" >"$dir/cut.json" || fail "cut stacks"
grep -q '"comm":"wk_deep"' "$dir/cut.json" || fail "no stack was cut: $(cat "$dir/cut.json")"
"$offwind" unwind -q -f firefox -o "$dir/firefox.json" "$dir/wake.owc" && grep -q '"\[woken by\] wk_a"' "$dir/firefox.json" || fail "Firefox's format does not have wakers"
"$offwind" flamegraph -o "$dir/wake.html" "$dir/wake.pb.gz" && grep -q 'woken by. wk_a' "$dir/wake.html" || fail "the flame graph does not have wakers"
n=$("$offwind" unwind -q -f jsonl -o - "$dir/wake.owc" | grep -c '"function":"\[woken by\] wk_a"')
[ "$n" -gt 150 ] || fail "single samples: $n wakers"
"$offwind" record --no-cache --wakers -o "$dir/none.pb.gz" -- true 2>"$dir/log" && fail "--wakers without --off-cpu"
grep -q -- '--wakers needs --off-cpu' "$dir/log" || fail "$(cat "$dir/log")"
"$offwind" record --wait-rate 100 -d 1 -o "$dir/no.pb.gz" 2>"$dir/log"
[ $? = 2 ] && grep -q -- '--wait-rate needs --off-cpu' "$dir/log" || fail "$(cat "$dir/log")"
[ $failures = 0 ] || { echo "$failures failures"; exit 1; }
