#!/usr/bin/env bash
# Tests the daemon's page in a headless Chromium, with a program that computes in one function, then in another.
set -u
source "$(dirname "$0")/../recorder.sh"
command -v chromium >/dev/null || { echo "chromium is not installed"; exit 77; }
${CC:-gcc} -D_GNU_SOURCE -O1 -g -o "$dir/phases" tests/live/daemon_page.c || exit 1
timeout 570 python3 tests/live/daemon_page.py "$offwind" "$dir" "$(free_port)" || fail "the page"
[ $failures = 0 ] || { echo "$failures failures"; exit 1; }
