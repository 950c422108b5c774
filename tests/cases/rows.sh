#!/usr/bin/env bash
# Tests unwind rows that another profiler published of its test programs, for x86_64 and aarch64,
# and jitdump files with their contents.
set -u
. tests/corpus.sh
python3 tests/cases/rows.py "$corpus/parca" "$BUILD"
