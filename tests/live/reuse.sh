#!/usr/bin/env bash
# Tests that callers that are taken over from a thread's last walk are those that a full walk finds:
# live, from capture files and from perf.data, for real programs.
set -u
. "$(dirname "$0")/../recorder.sh"
. tests/workload.sh

# verified TEXT MIN: samples were walked both ways, none differs, and at least MIN % of the frames were taken over.
verified() {
	local n walked taken differ
	read -r n walked taken differ < <(sed -n 's/.*verified \([0-9]*\) samples: frames walked \([0-9]*\), taken over \([0-9]*\); samples that differ \([0-9]*\).*/\1 \2 \3 \4/p' "$1")
	echo "${n:-0} samples, frames walked ${walked:-0}, taken over ${taken:-0}"
	[ "${n:-0}" -ge 20 ] || { fail "not verified: $(cat "$1")"; return; }
	[ "$differ" = 0 ] || fail "$differ of $n samples differ"
	[ $((taken * 100)) -ge $(((walked + taken) * $2)) ] || fail "too few were taken over"
}

for name in clang python3 git; do
	workload "$name"
	echo "== $name, live"
	for ms in 1500 3000 6000 12000 24000; do # on a busy machine it takes longer to see as many
		"$offwind" record -F 997 -d ${ms}ms --verify-reuse --no-cache --raw="$dir/raw.owc" --stats "$dir/stats" \
			-o "$dir/p.pb.gz" -- "${argv[@]}" >/dev/null 2>"$dir/log"
		rc=$? # the program's exit code, if it ended by itself: git exits with 1 for differences
		[ $rc = 0 ] || { [ $rc = 1 ] && [ "$name" = git ]; } || fail "record: $rc: $(cat "$dir/log")"
		[ "$(sed -n 's/.*verified \([0-9]*\) samples.*/\1/p' "$dir/log")" -lt 100 ] || break
	done
	verified "$dir/log" 10
	python3 - "$dir/stats" "$dir/log" <<'PY' || fail "--stats says otherwise"
import json, re, sys
reuse = json.load(open(sys.argv[1]))['reuse']
text = open(sys.argv[2]).read()
told = [int(x) for x in re.search(r'verified (\d+) samples: frames walked (\d+), taken over (\d+); samples that differ (\d+)', text).groups()]
assert told == [reuse[k] for k in ('verified', 'frames_walked', 'frames_taken', 'differing')], (reuse, told)
PY
	echo "== $name, from the capture file"
	"$offwind" unwind --verify-reuse --no-cache -o "$dir/q.pb.gz" "$dir/raw.owc" 2>"$dir/log" || fail "unwind: $(cat "$dir/log")"
	verified "$dir/log" 10
	# If samples are shown one by one, nothing is taken over, except with this option.
	"$offwind" unwind --no-cache --verify-reuse --format tsv --no-inline -o "$dir/tsv" "$dir/raw.owc" 2>"$dir/log" || fail "tsv: $(cat "$dir/log")"
	verified "$dir/log" 10
done

exit $((failures > 0))
