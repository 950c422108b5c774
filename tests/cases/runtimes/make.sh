#!/usr/bin/env bash
# Makes the captures of this directory: records a Python of a release of Debian that was unpacked somewhere (root).
#   usage: BUILD=build tests/cases/runtimes/make.sh ROOT VERSION [NAME] (ROOT/usr/bin/pythonVERSION; cpython-NAME, else cpython-VERSION)
# cpython-3.14-tail-calls is of a build by clang 19 with --with-tail-call-interp, whose operations are functions of their own.
# NAME.owc is the capture, NAME.stacks what the program knows of itself, NAME.folded what the recording found.
set -euo pipefail
root=$1 name=tests/cases/runtimes/cpython-${3:-$2}
work=$(mktemp -d) offwind=$work/offwind
trap 'rm -rf "$work" "$root/stacks.py"' EXIT
cp "$BUILD/offwind" "$work"
cp tests/live/cpython/stacks.py "$root"
HOME=$work "$offwind" record -F 39 --raw="$work/a.owc" -o "$work/a.pb.gz" -- \
	chroot "$root" "/usr/bin/python$2" /stacks.py 1 >"$name.stacks"
python3 tests/cases/runtimes/small.py "$offwind" "$work/a.owc" "$name.owc"
"$offwind" report -f folded "$work/a.pb.gz" | LC_ALL=C sort >"$name.folded"
