#!/usr/bin/env bash
# Tests names of functions, files, directories and threads that other users choose, in every output:
# valid UTF-8, no control characters, no markup where markup is read.
set -u
work=$BUILD/live/hostile
rm -rf "$work"; mkdir -p "$work"
exec timeout 800 python3 tests/live/hostile.py "$BUILD/offwind" "$work"
