#!/usr/bin/env bash
# Tests cores and snapshots that end early or contradict themselves: what is sound is unwound, then
# one line gives file and offset. Runs with sanitizers.
set -u
. tests/corpus.sh
work=$BUILD/torn
rm -rf "$work"
mkdir -p "$work"
offwind=$BUILD/asan/offwind
failed=0 n=0

# check WHAT INPUT…: exit code 1 or 3, one error line that names the file and an offset
check() {
	local what=$1 rc
	shift
	timeout 20 "$offwind" unwind -q --format tsv --no-inline "$@" > "$work/out" 2> "$work/err"
	rc=$?
	n=$((n + 1))
	if [ $rc != 1 ] && [ $rc != 3 ] || [ "$(grep -vc warning "$work/err")" != 1 ] ||
		! grep -v warning "$work/err" | grep -q "offwind: $work/.*: offset [0-9]*: "; then
		echo "$what: exit $rc"
		head -n 5 "$work/err"
		failed=1
	fi
}

core=$corpus/elfutils/testfiledwarfinlines.core
size=$(stat -c %s "$core")
for at in 20 63 64 100 1000 1967 1968 2000 2303 2400 2700 2900 3400 4000 4175 4176 8000 8192 100000 250000 $((size - 1)); do
	head -c $at "$core" > "$work/core"
	check "core cut at $at" "$work/core"
done
# If it is cut after the notes, the threads are there; and some of the stack, if the file has some of it.
head -c $((size - 1)) "$core" > "$work/core"
"$offwind" unwind -q --format tsv --no-inline --exe "$corpus/elfutils/testfiledwarfinlines" "$work/core" > "$work/out" 2> "$work/err"
[ "$(cut -f5 "$work/out" | sed -n 2,3p | tr '\n' ' ')" = 'fu(int) main ' ] || { echo "torn core: frames lost"; cat "$work/out"; failed=1; }

# A 32-bit core, a big-endian one, other bytes.
for bytes in '\x04:\x01' '\x05:\x02' '\x12:\x03'; do
	cp "$core" "$work/core"
	printf "${bytes#*:}" | dd of="$work/core" bs=1 seek=$((16#${bytes:2:2})) conv=notrunc status=none
	check "core with $bytes" "$work/core"
done
# Damaged in the notes and the list of segments, everywhere.
python3 - "$core" "$work" <<'P'
import random, sys
random.seed(1)
data = open(sys.argv[1], 'rb').read()
for i in range(30):
    b = bytearray(data)
    for _ in range(4):
        b[random.randrange(64, 4176)] = random.choice([0, 1, 0x7f, 0x80, 0xff])
    open('%s/damaged%d' % (sys.argv[2], i), 'wb').write(b)
P
for i in $(seq 0 29); do
	timeout 20 "$offwind" unwind -q --format tsv --no-inline "$work/damaged$i" > "$work/out" 2> "$work/err"
	rc=$?
	n=$((n + 1))
	[ $rc = 0 ] || [ $rc = 1 ] || [ $rc = 3 ] || { echo "damaged$i: exit $rc"; head -n 20 "$work/err"; failed=1; }
	rm "$work/damaged$i"
done

folder=$work/case
fresh() {
	rm -rf "$folder"
	cp -r "$corpus/libunwindstack/straddle_arm64" "$folder"
	rm "$folder/libunwindstack_test"
}
fresh
head -c 5 "$folder/stack.data" > "$work/short" && mv "$work/short" "$folder/stack.data"
check "memory without an address" "$folder"
fresh
printf '\xff\xff\xff\xff\xff\xff\xff\xff12345678' > "$folder/stack.data"
check "memory beyond the end" "$folder"
fresh
echo 'pc 12 34' >> "$folder/regs.txt"
check "a line that is no register" "$folder"
fresh
echo 'x1: 12345678123456789' >> "$folder/regs.txt"
check "a value of 17 digits" "$folder"
for line in '1000 r-xp 0 00:00 0 a' '2000-1000 r-xp 0 00:00 0 a' '1000-2000 rx 0 00:00 0 a' '-1000-2000 r-xp 0 00:00 0 a' '1000-2000 r-xp'; do
	fresh
	echo "$line" >> "$folder/maps.txt"
	check "mapping $line" "$folder"
done
# A name that leads out of the directory stays in it; a pipe is not waited for.
fresh
sed -i 's/libunwindstack_test/..\/..\/..\/etc\/passwd/' "$folder/maps.txt"
timeout 20 "$offwind" unwind -q --format tsv --no-inline "$folder" > "$work/out" 2> "$work/err"
grep -q 'passwd: no such file any more' "$work/err" || { cat "$work/err"; failed=1; }
fresh
rm "$folder/stack.data" && mkfifo "$folder/stack.data"
timeout 20 "$offwind" unwind -q --format tsv --no-inline "$folder" > "$work/out" 2> "$work/err"
grep -q 'stack.data: cannot be read: Invalid argument' "$work/err" || { cat "$work/err"; failed=1; }
cat "$core" | "$offwind" unwind -q --format tsv --no-inline - > "$work/out" 2> "$work/err"
grep -q 'standard input: a core file cannot be read from a pipe' "$work/err" || { cat "$work/err"; failed=1; }
echo "$n torn or damaged inputs"
exit $failed
