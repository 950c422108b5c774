#!/usr/bin/env bash
# Tests torn, damaged and random recordings on the command line, with sanitizers: one line names
# file and offset, what was read before it is used, and there is never a crash.
#   TORN_SECONDS: how long (12)
set -u
work=$BUILD/faults/torn_cli
rm -rf "$work"
mkdir -p "$work"
recordings=(tests/cases/perfdata/*.data)
if [ "$(id -u)" = 0 ] && "$BUILD/offwind" doctor >/dev/null 2>&1; then
	"$BUILD/offwind" record -q -F 499 --raw -o "$work/live.owc" -- sh -c 'for i in 1 2 3 4 5 6 7 8; do ls -lR /etc >/dev/null; done' ||
		exit 1
	recordings+=("$work/live.owc")
else
	echo "no capture file could be recorded; perf.data alone"
fi
python3 tests/faults/torn_cli.py "$BUILD/asan/offwind" "$work" "${TORN_SECONDS:-12}" "${recordings[@]}"
