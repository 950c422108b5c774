#!/usr/bin/env bash
# Profiles the whole system for some seconds and shows the result (`make run`).
#   usage: deploy/run.sh [BUILD-DIRECTORY]
#   environment: SECONDS_TO_RUN (10), HZ (99), PROFILE (BUILD-DIRECTORY/live.pb.gz)
set -euo pipefail
build=${1:-build}
profile=${PROFILE:-$build/live.pb.gz}
seconds=${SECONDS_TO_RUN:-10}
as_root=()
[ "$(id -u)" = 0 ] || as_root=(sudo)

echo "profiling the whole system for $seconds seconds…"
"${as_root[@]}" "$build/offwind" record -a -F "${HZ:-99}" -d "$seconds" -o "$profile"
[ "$(id -u)" = 0 ] || sudo chown "$(id -u)" "$profile"
echo
"$build/offwind" report --top 10 "$profile"
page=${profile%.pb.gz}.html
"$build/offwind" flamegraph -o "$page" "$profile"
echo
echo "profile: $(realpath "$profile")"
echo "flame graph: $(realpath "$page")"
echo "show it with: go tool pprof -top $profile   (or -http=:8080)"
