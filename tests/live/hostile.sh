#!/usr/bin/env bash
# Names that strangers choose, of functions, files, folders and threads, in every output: valid UTF-8,
# no control characters, no markup where markup is read.
set -u
work=$BUILD/live/hostile
rm -rf "$work"; mkdir -p "$work"
exec timeout 400 python3 tests/live/hostile.py "$BUILD/offwind" "$work"
