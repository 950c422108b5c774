#!/usr/bin/env bash
# Tests that a recording ends when a user or a limit ends it, whatever other users run and write:
# see ends.py.
set -u
work=$BUILD/faults/ends
rm -rf "$work"
mkdir -p "$work"
if [ "$(id -u)" != 0 ] || ! "$BUILD/offwind" doctor >/dev/null 2>&1; then
	echo "this needs root and BPF"
	exit 77
fi
# The other user must reach it, wherever the build directory is.
work=$(mktemp -d /tmp/offwind-ends.XXXXXX)
trap 'rm -rf "$work"' EXIT
chmod 755 "$work"
mkdir "$work/programs"
tests/faults/hostile/make "$work/programs" || exit 1
timeout 800 python3 -B tests/faults/ends.py "$BUILD/offwind" "$work/programs" "$work"
