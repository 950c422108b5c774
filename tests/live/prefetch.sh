#!/usr/bin/env bash
# prefetch --running takes the file that each process has mapped, also where two processes have
# different files of one name: in two mount namespaces, and a file that was replaced.
set -u
cd "$(dirname "$0")/../.." || exit 1
. tests/wait.sh
BUILD=${BUILD:-build}
[ "$(id -u)" = 0 ] || { echo "needs root"; exit 77; }
unshare -m true 2>/dev/null || { echo "no mount namespaces here"; exit 77; }
dir=$(mktemp -d)
trap 'kill $(jobs -p) 2>/dev/null; rm -rf "$dir"' EXIT
export OFFWIND_DB=$dir/store.db
failures=0

build_id() { readelf -n "$1" | sed -n 's/.*Build ID: //p'; }
exe_is() { [ "$(readlink "/proc/$1/exe")" = "$2" ]; } # PID PATH

mkdir "$dir/ns" || exit 1
mkfifo "$dir/gate" "$dir/other" || exit 1
exec 8<>"$dir/gate" 9<>"$dir/other"
cp /usr/bin/cat "$dir/ns/program"
unshare -m sh -c 'mount -t tmpfs none "$1/ns" && cp /usr/bin/head "$1/ns/program" && exec "$1/ns/program" "$1/other"' \
	- "$dir" & inside=$!
"$dir/ns/program" "$dir/gate" & outside=$!
until_or_dead $inside exe_is $inside "$dir/ns/program" || exit 1
until_or_dead $outside exe_is $outside "$dir/ns/program" || exit 1
cp /usr/bin/tail "$dir/ns/new" && mv "$dir/ns/new" "$dir/ns/program"
"$dir/ns/program" -f "$dir/gate" & replaced=$!
until_or_dead $replaced exe_is $replaced "$dir/ns/program" || exit 1

"$BUILD/offwind" cache prefetch --running || failures=$((failures + 1))
for program in cat head tail; do
	id=$(build_id "/usr/bin/$program")
	"$BUILD/offwind" cache ls --format csv | grep -q "$id" && continue
	echo "no table of the mapped copy of $program, build-id $id"
	failures=$((failures + 1))
done
echo "3 files of one name, $failures failures"
[ $failures = 0 ]
