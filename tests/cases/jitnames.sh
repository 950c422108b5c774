#!/usr/bin/env bash
# Tests that generated code has the names that its process writes to a perf map or a jitdump file. A
# link, a pipe, a file with a second name and another user's file are not read.
set -u
. tests/wait.sh
offwind=$(realpath "$BUILD")/offwind
work=$(realpath "$BUILD")/jitnames
rm -rf "$work"
mkdir -p "$work"
failed=0 pid=
fail() { echo "$*"; failed=1; }
trap '[ -z "$pid" ] || { kill "$pid" 2> /dev/null; rm -f "/tmp/perf-$pid.map"; }' EXIT
export OFFWIND_DB=

# Wait in generated code; with an argument, map this file, as writers of jitdump do.
cat > "$work/a.c" <<'C'
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
int main(int argc, char **argv)
{
	static const unsigned char pause_and_return[] = { 0xb8, 34, 0, 0, 0, 0x0f, 5, 0xc3 };
	unsigned char *code = mmap(NULL, 8192, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (argc > 1)
		mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE, open(argv[1], O_RDONLY), 0);
	memcpy(code + 4096, pause_and_return, sizeof(pause_and_return));
	printf("%p\n", (void *)(code + 4096));
	fflush(stdout);
	((int (*)(void))(void *)(code + 4096))();
	return 0;
}
C
gcc -O1 -o "$work/a" "$work/a.c" || exit 1
start() {
	[ -z "$pid" ] || { kill "$pid"; wait "$pid" 2> /dev/null; rm -f "/tmp/perf-$pid.map"; }
	"$work/a" "$@" > "$work/at" &
	pid=$!
	until_or_dead $pid test -s "$work/at" && until_or_dead $pid in_pause $pid || exit 1
	at=$(cat "$work/at")
	map=/tmp/perf-$pid.map
	rm -f "$map"
}
name() { timeout 100 "$offwind" unwind -q --format tsv --pid "$pid" 2> "$work/err" | awk -F'\t' 'NR == 2 { print $3, $5 }'; }
is() { local got; got=$(name); [ "$got" = "[jit] $1" ] || fail "$2: $got $(cat "$work/err")"; }

start
is - "without a map"
# Unnamed code is distinguished by place: two hot functions are two rows of a report.
timeout 100 "$offwind" unwind -q --format folded --pid "$pid" > "$work/folded" 2> "$work/err"
grep -qF ";[jit]+$at" "$work/folded" || fail "unnamed code at $at: $(cat "$work/folded" "$work/err")"
printf 'nonsense\n%x 1000 older\n%x 8 made by hand\nffffffffffffffff 10 beyond\n%x 10 cut short' $((at - 64)) $((at)) $((at)) > "$map"
is "made by hand" "a perf map"
printf '%x 1000 older\n%x 10 \033[31mred\xff\n' $((at - 64)) $((at)) > "$map"
is $'\xef\xbf\xbd[31mred\xef\xbf\xbd' "control bytes"
ln "$map" "$map.second"
is - "a second name"
rm "$map.second"
chown nobody "$map"
is - "another user's"
chown root "$map"
mv "$map" "$work/map" && ln -s "$work/map" "$map"
is - "a link"
rm "$map" && mkfifo "$map"
is - "a pipe"
rm "$map" && truncate -s 200M "$map"
is - "200 MB of nothing"
grep -q 'names of generated code cannot be read' "$work/err" || fail "not said: $(cat "$work/err")"
rm "$map"

# The format is in tools/perf/Documentation/jitdump-specification.txt; the address is not known in advance.
start "$work/jit-1.dump"
touch "$work/jit-1.dump"
start "$work/jit-1.dump"
python3 - "$work/jit-1.dump" "$at" <<'PY'
import struct, sys
at = int(sys.argv[2], 16)
def record(kind, body): return struct.pack("<IIQ", kind, 16 + len(body), 0) + body
out = struct.pack("<IIIIIIQQ", 0x4A695444, 1, 40, 62, 0, 1, 0, 0)
out += record(0, struct.pack("<IIQQQQ", 1, 1, at - 32, at - 32, 256, 0) + b"stale\0" + b"\xc3" * 256)
out += record(0, struct.pack("<IIQQQQ", 1, 1, 0x1000, 0x1000, 8, 1) + b"from a dump\0" + b"\xc3" * 8)
out += record(1, struct.pack("<IIQQQQQ", 1, 1, at, 0x1000, at, 8, 1))
out += record(3, b"\0" * 24) + struct.pack("<IIQ", 0, 0xffffffff, 0)
open(sys.argv[1], "wb").write(out)
PY
is "from a dump" "a jitdump file"
[ $failed = 0 ]
