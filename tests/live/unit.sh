#!/usr/bin/env bash
# Tests recording with no more rights than the systemd unit leaves: whole stacks with names, of other
# users' programs too, and of those that are deleted.
set -u
. tests/recorder.sh
chmod 755 "$dir"
unit=deploy/offwind.service
capabilities=$(sed -n 's/^CapabilityBoundingSet=//p' $unit | tr ' ' '\n' | sed 's/^CAP_//; s/^/+/' | tr 'A-Z\n' 'a-z,')
with=(setpriv --no-new-privs --inh-caps=-all --bounding-set="-all,${capabilities%,}")
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
grep -i 'not permitted\|cannot be' "$dir/log" && fail "something is missing"
kill $users $own
exit $((failures > 0))
