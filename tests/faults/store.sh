#!/usr/bin/env bash
# A store that is killed, flipped, full, read-only, or whose every call fails: no wrong table, no
# crash, no leak, nothing that was acknowledged is lost.  KILLS and FLIPS: how often (100, 300).
set -u
offwind=$BUILD/offwind
faults=$BUILD/tests/faults/store_faults
# In memory, where there is such a place: nothing here is about how fast a disk is.
dir=$(mktemp -d -p /dev/shm 2>/dev/null || mktemp -d)
trap 'umount "$dir/small" 2>/dev/null; kill "${pids[@]:-}" 2>/dev/null; wait 2>/dev/null; rm -rf "$dir"' EXIT
pids=()
failures=0

fail() {
	echo "FAIL: $*"
	failures=$((failures + 1))
}

files=()
for f in true ls cat sort sed; do
	cp "$(type -P $f)" "$dir/$f" && files+=("$dir/$f")
done
sleep 2.5 # until files are known by their inodes

echo "== each allocation, each call to the system fails once in turn"
timeout 120 "$faults" memory "$dir/m.db" "$dir/true" 2>"$dir/err" || fail "memory: exit $?: $(tail -n 3 "$dir/err")"
timeout 60 "$faults" io "$dir/i.db" "$dir/true" 2>"$dir/err" || fail "io: exit $?: $(tail -n 3 "$dir/err")"
timeout 60 "$BUILD/asan/tests/faults/store_faults" io "$dir/i.db" "$dir/true" 2>"$dir/err" || fail "io, asan: exit $?: $(tail -n 3 "$dir/err")"

echo "== flipped bits"
for f in "${files[@]}"; do
	"$offwind" cache --db "$dir/f.db" prefetch -q "$f" || fail "prefetch"
done
timeout 300 "$faults" flip "$dir/f.db" "${FLIPS:-300}" "${files[@]:0:3}" 2>"$dir/err" || fail "flip: exit $?: $(tail -n 3 "$dir/err")"
timeout 120 "$BUILD/asan/tests/faults/store_faults" flip "$dir/f.db" 100 "${files[@]:0:3}" 2>"$dir/err" || fail "flip, asan: exit $?: $(tail -n 5 "$dir/err")"

echo "== kill -9 among concurrent writers"
kills=${KILLS:-100}
while [ "$kills" -gt 0 ]; do
	pids=()
	for i in 1 2 3; do
		"$faults" hammer "$dir/k.db" "${files[@]}" >>"$dir/acknowledged" 2>>"$dir/err" &
		pids+=($!)
		disown # bash would tell of each that is killed
	done
	for pid in "${pids[@]}"; do
		sleep "0.0$((RANDOM % 9))$((RANDOM % 10))"
		kill -9 "$pid"
		kills=$((kills - 1))
	done
	# A new one now and then, so that the making is interrupted too.
	if [ $((RANDOM % 5)) = 0 ] && [ "$kills" -gt 9 ]; then
		sort -u "$dir/acknowledged" | grep . | xargs -r "$faults" check "$dir/k.db" >"$dir/out" 2>&1 || fail "after kills: $(cat "$dir/out")"
		rm -f "$dir"/k.db*
		: >"$dir/acknowledged"
	fi
done
[ -s "$dir/acknowledged" ] || "$faults" check "$dir/k.db" "$dir/true" >/dev/null 2>&1
sort -u "$dir/acknowledged" | grep . | xargs -r "$faults" check "$dir/k.db" >"$dir/out" 2>&1 || fail "after kills: $(cat "$dir/out")"

echo "== a full disk, a read-only one"
mkdir "$dir/small"
if mount -t tmpfs -o size=700k tmpfs "$dir/small" 2>"$dir/err"; then
	cp "$(type -P bash)" "$dir/bash"
	cp "$(ldd "$dir/bash" | awk '/libc.so/ { print $3 }')" "$dir/libc"
	"$offwind" cache --db "$dir/small/offwind.db" prefetch "${files[@]}" "$dir/bash" "$dir/libc" >"$dir/out" 2>&1
	grep -q 'No space left on device; unwind tables stay in memory' "$dir/out" && [ "$(grep -c 'stay in memory' "$dir/out")" = 1 ] ||
		fail "a full disk: $(cat "$dir/out")"
	# What went in is sound, and what did not is compiled.
	"$offwind" cache --db "$dir/small/offwind.db" verify >"$dir/out" 2>&1 || fail "verify on a full disk: $(cat "$dir/out")"
	rm -f "$dir"/small/*
	mount -o remount,size=4m "$dir/small"
	"$offwind" cache --db "$dir/small/offwind.db" prefetch -q "$dir/true" >"$dir/out" 2>&1 || fail "a disk that has room: $(cat "$dir/out")"
	mount -o remount,ro "$dir/small"
	"$offwind" cache --db "$dir/small/offwind.db" query --format csv 'SELECT count(*) FROM tables' >"$dir/out" 2>&1 && [ "$(tail -n 1 "$dir/out")" = 1 ] ||
		fail "questions on a read-only disk: $(cat "$dir/out")"
	"$offwind" unwind -v --format tsv --db "$dir/small/offwind.db" --pid $$ -o "$dir/x" >"$dir/out" 2>&1 || fail "unwind with a read-only store: $(cat "$dir/out")"
	! grep -q 'stay in memory' "$dir/out" && grep -q ' 0 kept, .* 0 failures' "$dir/out" || fail "a read-only store: $(cat "$dir/out")"
	umount "$dir/small"
else
	echo "no disk of its own: $(cat "$dir/err")"
fi

[ $failures = 0 ] || { echo "$failures failures"; exit 1; }
