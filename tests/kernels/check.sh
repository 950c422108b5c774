#!/usr/bin/env bash
# Runs the checks of tests/kernels.sh on another kernel, beside stacks.sh and short.sh of
# tests/live: every kind of event, filters, allocations, real programs, accounting. It needs no
# compiler: PREBUILT is the directory of the programs.
set -u
offwind=$PWD/$BUILD/offwind
dir=$(mktemp -d)
trap 'kill $(jobs -p) 2>/dev/null; rm -rf "$dir"' EXIT
chmod 755 "$dir"
failures=0 runs=0

fail() {
	echo "FAIL: $*"
	failures=$((failures + 1))
}

# Record, and check the accounting at the end; the last lines of output are in $dir/log.
record() { # name, options…
	local what=$1
	shift
	runs=$((runs + 1))
	"$offwind" record -o "$dir/e.pb.gz" --stats "$dir/stats.$runs.json" "$@" >/dev/null 2>"$dir/log" || { fail "$what: $(cat "$dir/log")"; return 1; }
	"$offwind" report --check "$dir/e.pb.gz" >/dev/null || fail "$what: the profile is not sound"
}
samples() { # TYPE: how many of it the profile has, in functions of programs and of the kernel
	"$offwind" report -n 0 --sort self --type "$1" "$dir/e.pb.gz" | awk '$1 ~ /%$/ { n += $2 } END { print n + 0 }'
}
is() { # what, seen, wanted
	[ "$2" = "$3" ] || fail "$1: $2, not $3: $(grep captured "$dir/log")"
}

echo "== events"
record "a tracepoint" -e sched:sched_process_exec -- sh -c 'for i in 1 2 3 4; do /bin/true; done' && is execs "$(samples samples)" 5
# Two forks of the shell, a fork and a thread of the other program.
record "several of a kind" -e sched:sched_process_exec,sched:sched_process_fork -e page-faults,cpu-clock \
	--uprobe "$PREBUILT/alloc:churn" --uprobe "$PREBUILT/alloc:leak" -- sh -c "/bin/true; $PREBUILT/alloc 10; exec /bin/true" &&
	for one in sched:sched_process_exec=4 sched:sched_process_fork=4 churn=1 leak=1; do is ${one%=*} "$(samples ${one%=*})" ${one#*=}; done
record "page faults" -e page-faults:u -c 1 -- "$PREBUILT/alloc" 10 && [ "$(samples samples)" -ge 100 ] || fail "page faults: $(cat "$dir/log")"

echo "== counts: what the program itself counted"
cat >"$dir/usage.py" <<'P'
# usage.py faults | switches: make many of them between two changes of its name; print how many it counts there.
import mmap, resource, sys, time
faults = sys.argv[1] == 'faults'
area = mmap.mmap(-1, 20000 * 4096, flags=mmap.MAP_PRIVATE)
area.madvise(mmap.MADV_NOHUGEPAGE)
def name(text):
    with open('/proc/self/comm', 'w') as f:
        f.write(text)
def count():
    u = resource.getrusage(resource.RUSAGE_SELF)
    return u.ru_minflt + u.ru_majflt if faults else u.ru_nvcsw + u.ru_nivcsw
before = count()
name('counted')
for i in range(20000 if faults else 2000):
    if faults:
        area[i * 4096] = 1
    else:
        time.sleep(1e-6)
name('other')
print(count() - before)
P
for one in faults:page-faults switches:context-switches; do
	record "${one#*:}" -e "${one#*:}" --comm counted -- sh -c "exec python3 '$dir/usage.py' ${one%:*} >'$dir/truth'" || continue
	got=$(samples "${one#*:}") want=$(cat "$dir/truth")
	echo "$one: $got, counted by the program: $want"
	[ "$got" -ge $((want * 98 / 100)) ] && [ "$got" -le $((want * 102 / 100)) ] || fail "${one#*:}: $got, not $want: $(cat "$dir/log")"
done

echo "== waiting"
record "off-cpu" --off-cpu=20ms -- sh -c 'sleep 0.05; sleep 0.05' || :
"$offwind" report -n 0 --type off_cpu_samples "$dir/e.pb.gz" | awk '$1 ~ /%$/ && $4' >"$dir/report"
n=$("$offwind" report --type off_cpu_samples --focus clock_nanosleep -n 0 "$dir/e.pb.gz" | awk '$1 ~ /%$/ { n += $2 } END { print n + 0 }')
is "naps of 20 ms and more" "$n" 2
! grep 'bpf' "$dir/report" || fail "it says what watches it"
cat >"$dir/naps.py" <<'P'
# Sleep between two changes of the name; print how many ns that took by its own clock.
import time
def name(text):
    with open('/proc/self/comm', 'w') as f:
        f.write(text)
name('naps')
before = time.monotonic_ns()
for i in range(20):
    time.sleep(0.1)
took = time.monotonic_ns() - before
name('other')
print(took)
P
record "how long" --comm naps --off-cpu -- sh -c "exec python3 '$dir/naps.py' >'$dir/truth'" &&
	got=$("$offwind" report -f folded --type off_cpu "$dir/e.pb.gz" | awk '{ n += $NF } END { printf "%.0f", n }') want=$(cat "$dir/truth") && echo "20 naps: told ${got} ns, by its own clock $want" &&
	# Time spent on the way into a nap and out of it is not waiting; when emulated, that may be much.
	{ awk -v got="$got" -v want="$want" 'BEGIN { exit !(want > 0 && got >= 0.7 * want && got <= 1.02 * want) }' || fail "20 naps: $got ns, not $want"; }
python3 - "$dir/stats.$runs.json" <<'P' || fail "the accounts of waits: $(cat "$dir/log")"
import json, sys
waits = json.load(open(sys.argv[1]))['total']['waits']
begun = waits.pop('begun')
assert begun >= 20 and begun == sum(waits.values()) == waits['ended'], (begun, waits)
P

cat >"$dir/pipe.py" <<'P'
# One process wakes another one by a pipe: the kernel's function for one is vfs_write, for the other vfs_read.
import os, time
def name(text):
    with open('/proc/self/comm', 'w') as f:
        f.write(text)
ends = os.pipe()
if os.fork() == 0:
    name('woken')
    for i in range(20):
        os.read(ends[0], 1)
    os._exit(0)
name('wakes')
for i in range(20):
    time.sleep(0.02)
    os.write(ends[1], b'x')
os.wait()
P
record "wakers" --off-cpu --wakers -- python3 "$dir/pipe.py" &&
	"$offwind" report -f folded --type off_cpu_samples "$dir/e.pb.gz" >"$dir/folded" &&
	n=$(awk '/^woken;.*_start;.*vfs_write.*;\[woken by\] wakes;.*vfs_read/ { n += $NF } END { print n + 0 }' "$dir/folded") && echo "wakers: $n of 20" &&
	{ [ "$n" -ge 18 ] || fail "the stacks of wakers: $n of 20: $(cat "$dir/folded")"; }

echo "== allocations"
record "allocations" --alloc=1 -- "$PREBUILT/alloc" 1000 &&
	for type in alloc_objects alloc_space inuse_objects inuse_space; do
		"$offwind" report -n 0 --type $type -f tsv "$dir/e.pb.gz" >"$dir/$type"
	done
# From the table at the head of tests/live/alloc.c: function, bytes in use.
"$offwind" report -n 0 --sort total --type inuse_objects "$dir/e.pb.gz" >"$dir/report"
for one in leak:1000 grow:1 zeroed:10 aligned:20 mapped:3 handed:10; do
	grep -qE "^ *[0-9.]+% +[0-9]+ +[0-9.]+% +${one#*:} +alloc +${one%:*}\$" "$dir/report" || fail "in use: ${one/:/: not }: $(grep "${one%:*}" "$dir/report")"
done
! grep -qE '[1-9][0-9]* +alloc +churn$' "$dir/report" || fail "what was given back is in use"
"$offwind" report -n 0 --sort total --type alloc_objects "$dir/e.pb.gz" >"$dir/report"
for one in leak:1000 churn:1000 grow:100 zeroed:10 aligned:27 mapped:4 handed:50; do
	grep -qE "^ *[0-9.]+% +[0-9]+ +[0-9.]+% +${one#*:} +alloc +${one%:*}\$" "$dir/report" || fail "allocated: ${one/:/: not }: $(grep "${one%:*}" "$dir/report")"
done

echo "== allocations of a running process, with breakpoints in no other"
mkfifo "$dir/go" "$dir/idle"
exec 8<>"$dir/go" 9<>"$dir/idle"
"$PREBUILT/alloc" 1000 wait <&8 & chosen=$!
# Print the address of malloc in this process.
python3 -c 'import ctypes, sys
print(ctypes.cast(ctypes.CDLL(None).malloc, ctypes.c_void_p).value, flush=True)
sys.stdin.readline()' <&9 >"$dir/malloc" & idle=$!
until [ -s "$dir/malloc" ]; do kill -0 $idle || break; sleep 0.1; done
code() { # PID: the first bytes of malloc as they are in its memory
	python3 -c 'import sys; m = open(f"/proc/{sys.argv[1]}/mem", "rb"); m.seek(int(sys.argv[2])); print(m.read(16).hex())' "$1" "$(cat "$dir/malloc")"
}
before=$(code $idle)
(
	until [ -s "$dir/chosen.owc" ]; do kill -0 $chosen || break; sleep 0.1; done
	code $idle >"$dir/during"
	echo >&8
) &
record "allocations of a running process" --alloc=1 --raw="$dir/chosen.owc" -p $chosen
echo >&8 # had the recording failed, the process would wait for it
[ -n "$before" ] && [ "$(cat "$dir/during")" = "$before" ] || fail "breakpoints in a process that was not chosen: '$before', '$(cat "$dir/during")'"
kill $idle
wait $idle 2>/dev/null
exec 8>&- 9>&-
"$offwind" report -n 0 --sort total --type inuse_objects "$dir/e.pb.gz" >"$dir/report"
for one in leak:1000 grow:1 zeroed:10 aligned:20 mapped:3 handed:10; do
	grep -qE "^ *[0-9.]+% +[0-9]+ +[0-9.]+% +${one#*:} +alloc +${one%:*}\$" "$dir/report" || fail "in use in a running process: ${one/:/: not }: $(grep "${one%:*}" "$dir/report")"
done

echo "== whom"
cp "$PREBUILT/target" "$dir/owc spinner"
"$dir/owc spinner" spin >/dev/null & plain=$!
setpriv --reuid 65534 --regid 65534 --clear-groups "$PREBUILT/target" spin >/dev/null 2>&1 & other=$!
mkdir -p /sys/fs/cgroup/offwind.scope/inner && echo $other >/sys/fs/cgroup/offwind.scope/inner/cgroup.procs || fail "no cgroup"
only() { # what, PID, options…
	local what=$1 pid=$2
	shift 2
	record "$what" -F 499 -d 700ms "$@" || return
	"$offwind" report --by pid -n 0 "$dir/e.pb.gz" | awk '$1 ~ /%$/ { for (i = 2; i < 5; i++) if ($i ~ /^[0-9]+$/) { print $i; next } }' >"$dir/who"
	[ "$(cat "$dir/who")" = "$pid" ] || fail "$what: of $(paste -sd' ' "$dir/who"), not $pid"
}
only "-p" $plain -p $plain
only "-t" $plain -t $plain
only "--comm" $plain --comm "owc spinner"
only "-u" $other -u nobody
only "--cgroup" $other --cgroup /offwind.scope
cpu=$(($(ps -o psr= -p $plain)))
record "-C" -F 499 -d 300ms -C $cpu -p $plain,$other
record "kernel stacks" -F 997 -- sh -c 'for i in 1 2 3; do ls -lR /usr/lib; done'
"$offwind" report -n 0 "$dir/e.pb.gz" >"$dir/report"
grep -q '\[kernel\] *do_syscall_64$' "$dir/report" || fail "no kernel functions"
kill $plain $other
wait $plain $other 2>/dev/null

echo "== real programs"
git init -q "$dir/repo" && cp -r tests/live tests/cases "$dir/repo/"
whole() { # name, command…
	local what=$1 line n root
	shift
	record "$what" -F 499 -- "$@" || return
	line=$(grep -o 'captured [0-9]* = unwound.*' "$dir/log")
	n=$(sed -nE 's/.*unwound ([0-9]+).*/\1/p' <<<"$line")
	none=$(grep -oE 'no_user_state [0-9]+' <<<"$line" | grep -oE '[0-9]+')
	root=$(grep -oE 'root [0-9]+' <<<"$line" | grep -oE '[0-9]+')
	n=$((n - ${none:-0}))
	echo "$what: ${root:-0} of $n samples to the root"
	[ "$n" -ge ${LEAST:-50} ] && [ $((${root:-0} * 100)) -ge $((n * 99)) ] || fail "$what: $line"
	! grep -q 'lost [1-9]' "$dir/log" || fail "$what: $line"
}
whole python3 "$(python3 -c 'import sys; print(sys.executable)')" -c '
import json, re
def fib(n): return n if n < 2 else fib(n - 1) + fib(n - 2)
fib(18)
for i in range(3):
    s = json.dumps({str(k): [k, k * 1.5, {"a": str(k)}] for k in range(1000)}, indent=1, sort_keys=True)
    json.loads(s)
    re.sub(r"(\d+)\.(\d+)", lambda m: m.group(2), s[:20000])
    sorted(s[:20000], key=lambda c: -ord(c))'
whole sqlite3 sqlite3 :memory: 'CREATE TABLE t AS WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 30000) SELECT i, i * 7919 % 10007 AS a, hex(i) AS b FROM n; CREATE INDEX x ON t(a, b); SELECT count(*), sum(a) FROM (SELECT a, group_concat(b) FROM t GROUP BY a);'
whole git git -C "$dir/repo" add .

echo "== what is missing is told in one line"
unshare -m sh -c "mount -t tmpfs none /sys/kernel/btf && exec '$offwind' record -d 1 -o '$dir/no.pb.gz'" 2>"$dir/log"
[ $? = 1 ] && grep -q 'CONFIG_DEBUG_INFO_BTF' "$dir/log" && [ "$(wc -l <"$dir/log")" = 1 ] || fail "without BTF: $(cat "$dir/log")"
setpriv --reuid 65534 --regid 65534 --clear-groups "$offwind" record -d 1 -o /dev/null 2>"$dir/log"
[ $? = 1 ] && grep -q root "$dir/log" && [ "$(wc -l <"$dir/log")" = 1 ] || fail "without rights: $(cat "$dir/log")"

echo "== accounts of $runs recordings"
python3 - "$dir"/stats.*.json <<'PY' || fail "the accounts"
import json, sys
fired = 0
for name in sys.argv[1:]:
    stats = json.load(open(name))
    for c in [stats["total"]] + stats["cpus"]:
        rest = sum(sum(c[k].values()) for k in ("filtered", "lost", "unwound")) + c["waiting"] + c.get("written", 0)
        assert c["fired"] == rest and c["waiting"] == 0, (name, c)
    fired += stats["total"]["fired"]
print(fired, "fired, each accounted for on its CPU")
PY
[ $failures = 0 ] || { echo "$failures failures"; exit 1; }
