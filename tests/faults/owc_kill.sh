#!/usr/bin/env bash
# Tests kill -9 while a capture file is written: all but about the last second can be read, one line
# says where the file ends, and the exit code says "in part".
set -u
. tests/wait.sh
work=$BUILD/faults/owc_kill
rm -rf "$work"; mkdir -p "$work"
sh -c 'while :; do :; done' & busy=$!
"$BUILD/offwind" record -p $busy -F 199 -d 600 --raw -o "$work/a.owc" > "$work/log" 2>&1 & recorder=$!
trap 'kill -9 $busy $recorder 2> /dev/null' EXIT
until_or_dead $recorder larger "$work/a.owc" 3000 || { cat "$work/log"; exit 1; } # a second of samples
# 1.5 s of CPU time, however long they take.
ticks() { awk '{ sub(/.*\) /, ""); print $12 + $13 }' /proc/$busy/stat; }
from=$(ticks)
worked() { [ $(($(ticks) - from)) -ge 150 ]; }
until_or_dead $busy worked || exit 1
# Nothing runs for a while: samples that wait must be written all the same, and then nothing more.
kill -STOP $busy
before='' same=0 # a recorder that gets no CPU does not write, either
for _ in $(seq 30); do
	sleep 1.3
	now=$(stat -c %s "$work/a.owc")
	same=$((now == before ? same + 1 : 0))
	[ $same -lt 2 ] || break
	before=$now
done
[ $same = 2 ] || { echo "the idle recorder still writes"; exit 1; }
kill -9 $recorder
wait $recorder 2> /dev/null

"$BUILD/offwind" unwind "$work/a.owc" -o "$work/a.pb.gz" > "$work/unwind" 2>&1
rc=$?
[ $rc = 3 ] || { echo "unwind: exit $rc"; cat "$work/unwind"; exit 1; }
[ "$(grep -c 'a.owc: offset [0-9]*: the file ends without its trailer' "$work/unwind")" = 1 ] ||
	{ echo "no line that says where it ends"; cat "$work/unwind"; exit 1; }
n=$("$BUILD/offwind" report --top 1 --type samples "$work/a.pb.gz" | sed -n 's/^# \([0-9]*\) samples.*/\1/p')
# 1.5 s at 199 Hz.
[ "${n:-0}" -ge 200 ] || { echo "only ${n:-no} samples"; cat "$work/unwind"; exit 1; }
echo "$n samples kept"
