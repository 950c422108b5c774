#!/usr/bin/env bash
# Unwind rows that another profiler published of its test programs, x86_64 and aarch64, and
# jitdump files with what is in them.
set -u
. tests/corpus.sh
python3 tests/cases/rows.py "$corpus/parca" "$BUILD"
