#!/usr/bin/env bash
# Tests a store that is killed, has flipped bits, is full or read-only, or whose calls fail one by
# one: there is no wrong table, no crash and no leak, and nothing that was acknowledged is lost.
# KILLS and FLIPS: how often (1000, 10000).
set -u
offwind=$BUILD/offwind
faults=$BUILD/tests/faults/store_faults
# In memory, where there is such a place: nothing here is about how fast a disk is.
dir=$(mktemp -d -p /dev/shm 2>/dev/null || mktemp -d)
trap 'kill ${memory:-} 2>/dev/null; umount "$dir/small" 2>/dev/null; rm -rf "$dir"' EXIT
failures=0

fail() {
	echo "FAIL: $*"
	failures=$((failures + 1))
}

files=()
for f in true ls cat sort sed; do
	cp "$(type -P $f)" "$dir/$f" && files+=("$dir/$f")
done
sleep 2.5 # until files are identified by

echo "== each allocation, each call to the system fails once in turn"
timeout 300 "$faults" memory "$dir/m.db" "$dir/true" >"$dir/memory.out" 2>&1 & # beside the rest
memory=$!
timeout 300 "$faults" io "$dir/i.db" "$dir/true" 2>"$dir/err" || fail "io: exit $?: $(tail -n 3 "$dir/err")"
timeout 300 "$BUILD/asan/tests/faults/store_faults" io "$dir/i.db" "$dir/true" 2>"$dir/err" || fail "io, asan: exit $?: $(tail -n 3 "$dir/err")"

echo "== whoever compiles a file ends over it"
timeout 300 "$faults" die "$dir/d.db" "$dir/ls" >"$dir/out" 2>"$dir/err" || fail "die: exit $?: $(tail -n 3 "$dir/out" "$dir/err")"
cat "$dir/out"

echo "== flipped bits"
for f in "${files[@]}"; do
	"$offwind" cache --db "$dir/f.db" prefetch -q "$f" || fail "prefetch"
done
timeout 300 "$faults" flip "$dir/f.db" "${FLIPS:-10000}" "${files[@]:0:3}" 2>"$dir/err" || fail "flip: exit $?: $(tail -n 3 "$dir/err")"
timeout 300 "$BUILD/asan/tests/faults/store_faults" flip "$dir/f.db" 100 "${files[@]:0:3}" 2>"$dir/err" || fail "flip, asan: exit $?: $(tail -n 5 "$dir/err")"

echo "== kill -9 among concurrent writers"
timeout 300 "$faults" kill "$dir/k.db" "${KILLS:-1000}" "${files[@]}" >"$dir/out" 2>"$dir/err" || fail "kill: exit $?: $(tail -n 5 "$dir/out" "$dir/err")"
cat "$dir/out"

echo "== a full disk, a read-only one"
mkdir "$dir/small"
if mount -t tmpfs -o size=700k tmpfs "$dir/small" 2>"$dir/err"; then
	cp "$(type -P bash)" "$dir/bash"
	cp "$(ldd "$dir/bash" | awk '/libc.so/ { print $3 }')" "$dir/libc"
	"$offwind" cache --db "$dir/small/offwind.db" prefetch "${files[@]}" "$dir/bash" "$dir/libc" >"$dir/out" 2>&1
	grep -q 'No space left on device; unwind tables stay in memory' "$dir/out" && [ "$(grep -c 'stay in memory' "$dir/out")" = 1 ] ||
		fail "a full disk: $(cat "$dir/out")"
	# Tables in the store are sound, and files without a table are compiled.
	"$offwind" cache --db "$dir/small/offwind.db" verify >"$dir/out" 2>&1 || fail "verify on a full disk: $(cat "$dir/out")"
	rm -f "$dir"/small/*
	mount -o remount,size=4m "$dir/small"
	"$offwind" cache --db "$dir/small/offwind.db" prefetch -q "$dir/true" >"$dir/out" 2>&1 || fail "a disk that has room: $(cat "$dir/out")"
	mount -o remount,ro "$dir/small"
	"$offwind" cache --db "$dir/small/offwind.db" query --format csv 'SELECT count(*) FROM tables' >"$dir/out" 2>&1 && [ "$(tail -n 1 "$dir/out")" = 1 ] ||
		fail "questions on a read-only disk: $(cat "$dir/out")"
	"$offwind" unwind -v --format tsv --no-inline --db "$dir/small/offwind.db" --pid $$ -o "$dir/x" >"$dir/out" 2>&1 || fail "unwind with a read-only store: $(cat "$dir/out")"
	! grep -q 'stay in memory' "$dir/out" && grep -q ' 0 stored, .* 0 failures' "$dir/out" || fail "a read-only store: $(cat "$dir/out")"
	umount "$dir/small"
else
	echo "no disk of its own: $(cat "$dir/err")"
fi

wait $memory || fail "memory: exit $?: $(tail -n 3 "$dir/memory.out")"

[ $failures = 0 ] || { echo "$failures failures"; exit 1; }
