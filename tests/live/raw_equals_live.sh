#!/usr/bin/env bash
# Tests that a capture file written beside a live profile gives the same profile when it is unwound
# later: locations, names (including the kernel's, which the file stores), stacks, counts and
# labels, as go tool pprof prints them.
set -u
work=$BUILD/live/raw_equals_live
rm -rf "$work"; mkdir -p "$work"
export PPROF_TMPDIR=$work HOME=$work
cat > "$work/load.py" <<'PY'
import hashlib, json, time
while time.process_time() < 1.5:
    json.dumps({i: hashlib.sha256(str(i).encode()).hexdigest() for i in range(2000)})
    open('/proc/self/maps').read()
PY
"$BUILD/offwind" record -F 499 --raw="$work/a.owc" -o "$work/live.pb.gz" -- python3 "$work/load.py" > "$work/log" 2>&1 ||
	{ cat "$work/log"; exit 1; }
"$BUILD/offwind" unwind "$work/a.owc" -o "$work/raw.pb.gz" >> "$work/log" 2>&1 || { cat "$work/log"; exit 1; }
for f in live raw; do
	# These may differ: the source, and the window compared with the first and last sample.
	go tool pprof -symbolize=none -raw "$work/$f.pb.gz" 2>> "$work/log" |
		grep -vE '^(Comment: source: (live|capture)|Time: .*|Duration: .*)$' > "$work/$f.raw"
done
n=$(sed -n 's/^Comment: captured \([0-9]*\) = unwound .*/\1/p' "$work/live.raw")
[ "${n:-0}" -ge 200 ] || { echo "only ${n:-no} samples"; cat "$work/log"; exit 1; }
"$BUILD/offwind" report --top 0 "$work/raw.pb.gz" | grep -F '[kernel]' > "$work/kernel"
grep -q 'do_syscall_64' "$work/kernel" || { echo "no kernel functions"; exit 1; }
if ! cmp -s "$work/live.raw" "$work/raw.raw"; then
	echo "the profiles differ:"
	diff "$work/live.raw" "$work/raw.raw" | head -40
	exit 1
fi
echo "$n samples, the same both ways"
