#!/usr/bin/env bash
# Tests that hostile programs and files take nothing from an honest program that is recorded beside them: see hostile.py.
# Here many of them share a recording; OFFWIND_ALL_FAILURES=1 (make check-faults) records beside each alone.
#   usage: hostile.sh [CASE…]      --peers in front of the cases: show what perf, gdb and eu-stack do with them
set -u
if [ "$(id -u)" != 0 ] || ! "$BUILD/offwind" doctor >/dev/null 2>&1; then
	echo "this needs root and BPF"
	exit 77
fi
[ -e /dev/fuse ] || { echo "this needs /dev/fuse"; exit 77; }
setpriv --reuid 65534 --regid 65534 --clear-groups unshare -Ur -m true 2>/dev/null || { echo "this needs user namespaces"; exit 77; }
# Another user must reach it, and one case hides /tmp.
work=$(mktemp -d /var/tmp/offwind-hostile.XXXXXX)
trap 'rm -rf "$work"' EXIT
trap 'exit 1' TERM INT
chmod 755 "$work"
mkdir "$work/programs" "$work/cases"
tests/faults/hostile/make "$work/programs" || exit 1
gcc -O1 -Wall -Wextra -Werror -D_GNU_SOURCE -shared -fPIC -o "$work/programs/clock_steps.so" tests/faults/preload/clock_steps.c || exit 1
export OFFWIND_DB=
python3 -B tests/faults/hostile.py ${OFFWIND_ALL_FAILURES:+--full} "$BUILD/offwind" "$work/programs" "$work/cases" "$@"
