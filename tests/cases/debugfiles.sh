#!/usr/bin/env bash
# Tests where the names and lines of a stripped program come from: its debug file by build-id, by
# link with the right CRC, below --symfs, or from a debuginfod server. A file that the server does
# not have is requested only once. The program waits in an inlined call.
set -u
. tests/wait.sh
offwind=$(realpath "$BUILD")/offwind
work=$(realpath "$BUILD")/debugfiles
rm -rf "$work"
mkdir -p "$work/bin" "$work/here"
pids=()
trap 'kill "${pids[@]}" 2> /dev/null; wait 2> /dev/null' EXIT
failed=0
fail() { echo "$*"; failed=1; }

cat > "$work/a.c" <<'C'
#include <unistd.h>
static inline __attribute__((always_inline)) int inner(int n)
{
	return n + pause();
}
static __attribute__((noinline)) int outer(int n) { return inner(n) * 3; }
int main(int argc, char **argv) { (void)argv; return outer(argc) + 1; }
C
gcc -O1 -g -o "$work/whole" "$work/a.c" || exit 1
cp "$work/whole" "$work/bin/a"
strip -s "$work/bin/a"
objcopy --only-keep-debug "$work/whole" "$work/a.debug"
id=$(readelf -n "$work/whole" | sed -n 's/.*Build ID: //p')
by_id=.build-id/${id:0:2}/${id:2}.debug
(cd "$work" && objcopy --add-gnu-debuglink=a.debug bin/a bin/linked)
# This way the debug file of the linked program can only be found by its name.
objcopy --remove-section .note.gnu.build-id "$work/bin/linked" 2> /dev/null
gcc -O1 -Wl,--build-id=0x0123456789abcdef -s -o "$work/bin/nowhere" "$work/a.c" || exit 1
for name in a linked nowhere; do
	"$work/bin/$name" &
	pids+=($!)
done
for pid in "${pids[@]}"; do
	until_or_dead $pid in_pause $pid || exit 1
done

rows() { # PID OPTION…: function, line and inlined of the program's own frames
	timeout 60 "$offwind" unwind -q --format tsv --pid "$1" "${@:2}" 2> "$work/err" |
		awk -F'\t' '$3 ~ /^(a|linked|nowhere)$/ { n = split($10, p, "/"); printf "%s %s:%s %s\n", $5, p[n], $11, $12 }'
}
want=$'inner a.c:4 1\nouter a.c:6 0\nmain a.c:7 0'
found() { # WHAT PID OPTION…
	local got
	got=$(rows "${@:2}" | head -n 3)
	[ "$got" = "$want" ] || { fail "$1:"; echo "$got"; cat "$work/err"; }
}
not_found() {
	! rows "${@:2}" | grep -q inner || fail "$1 was found"
}
unset DEBUGINFOD_URLS
export OFFWIND_DB=
not_found "what is nowhere" "${pids[0]}"
mkdir -p "$work/dir/${by_id%/*}" && cp "$work/a.debug" "$work/dir/$by_id"
found "--debug-dir" "${pids[0]}" --debug-dir "$work/dir"
[ "$(rows "${pids[0]}" --debug-dir "$work/dir" --no-inline | head -n 1)" = "outer a.c:6 0" ] || fail "--no-inline"
[ "$(rows "${pids[0]}" --debug-dir "$work/dir" --no-lines | head -n 1)" = "outer -:- 0" ] || fail "--no-lines"
timeout 60 "$offwind" unwind -q --format text --lines --pid "${pids[0]}" --debug-dir "$work/dir" 2> "$work/err" |
	grep -A1 -E ' (inner|outer|main)( |[+])' | sed -E 's/^\t +[0-9a-f]+ ([a-z]+).*( \(inlined\)).*/\1\2/; s/^\t +[0-9a-f]+ ([a-z]+).*/\1/; s/^  .*\///' > "$work/text"
[ "$(cat "$work/text")" = $'inner (inlined)\na.c:4\nouter\na.c:6\nmain\na.c:7' ] || { fail "--lines"; cat "$work/text"; }
# Another file with this name is not used.
objcopy --only-keep-debug "$work/bin/nowhere" "$work/dir/$by_id"
not_found "the debug file of another" "${pids[0]}" --debug-dir "$work/dir"
rm "$work/dir/$by_id" && mkfifo "$work/dir/$by_id"
not_found "a pipe" "${pids[0]}" --debug-dir "$work/dir"

# By link: beside the program, in .debug beside it, and only with the stated CRC.
mkdir "$work/bin/.debug"
cp "$work/a.debug" "$work/bin/a.debug"
found "a link beside it" "${pids[1]}"
mv "$work/bin/a.debug" "$work/bin/.debug/"
found "a link in .debug" "${pids[1]}"
printf x >> "$work/bin/.debug/a.debug"
not_found "a debug file with another CRC" "${pids[1]}"
rm -r "$work/bin/.debug"

mkdir -p "$work/root/usr/lib/debug/${by_id%/*}" "$work/root$work/bin"
cp "$work/a.debug" "$work/root/usr/lib/debug/$by_id"
cp "$work/bin/a" "$work/root$work/bin/a"
found "--symfs" "${pids[0]}" --symfs "$work/root"

# In the store: the second run finds the lines there, and needs nothing else.
mkdir -p "$work/dir2/${by_id%/*}" && cp "$work/a.debug" "$work/dir2/$by_id" && touch -d '1 hour ago' "$work/dir2/$by_id"
sleep 2.1 # files that were just changed may change again unnoticed, and are not cached
for _ in 1 2; do found "with a store" "${pids[0]}" --debug-dir "$work/dir2" --db "$work/lines.db"; done
timeout 60 "$offwind" unwind -v --format tsv --pid "${pids[0]}" --debug-dir "$work/dir2" --db "$work/lines.db" 2>&1 > /dev/null |
	grep -qE 'lines of [1-9][0-9]* files found, 0 stored' || fail "no lines were kept"

# A server on loopback.
mkdir "$work/served" && cp "$work/a.debug" "$work/served/"
export DEBUGINFOD_CACHE_PATH=$work/cache DEBUGINFOD_TIMEOUT=30
for _ in {1..5}; do # another program may have the port; it is below those that the kernel assigns
	port=$((20000 + RANDOM % 10000))
	env -u DEBUGINFOD_URLS debuginfod -p $port -d :memory: -F -t 0 -g 0 "$work/served" > "$work/server.log" 2>&1 &
	server=$!
	export DEBUGINFOD_URLS=http://127.0.0.1:$port
	for _ in {1..200}; do
		kill -0 $server 2> /dev/null || break
		debuginfod-find debuginfo "$id" > /dev/null 2>&1 && break 2
		rm -rf "$work/cache"
		sleep 0.2
	done
done
pids+=($server)
rm -rf "$work/cache"
found "debuginfod" "${pids[0]}"
asked() { grep -c 'GET /buildid/0123456789abcdef/debuginfo' "$work/server.log"; }
not_found "what no server has" "${pids[2]}" --db "$work/missing.db"
first=$(asked)
rm -rf "$work/cache" # libdebuginfod remembers, too
not_found "what no server has" "${pids[2]}" --db "$work/missing.db"
[ "$first" -ge 1 ] && [ "$(asked)" = "$first" ] || fail "asked $first times, then $(asked)"
[ "$(sqlite3 "$work/missing.db" "SELECT count(*) FROM missing WHERE hex(build_id) = '0123456789ABCDEF'")" = 1 ] || fail "not remembered"

# A port without a server is reported once.
rm -rf "$work/cache"
DEBUGINFOD_URLS=http://127.0.0.1:1 rows "${pids[2]}" --no-cache | grep -q . || fail "no frames: $(cat "$work/err")"
[ "$(grep -c 'debuginfod: cannot ask the servers in DEBUGINFOD_URLS: Connection refused' "$work/err")" = 1 ] || fail "an unreachable server: $(cat "$work/err")"

# A server that accepts connections and never answers does not delay anything for long.
rm -rf "$work/cache"
python3 -c 'import socket, time
s = socket.socket(); s.bind(("127.0.0.1", 0)); s.listen(8); print(s.getsockname()[1], flush=True); time.sleep(60)' > "$work/port" &
pids+=($!)
until_or_dead $! test -s "$work/port" || exit 1
export DEBUGINFOD_URLS=http://127.0.0.1:$(cat "$work/port") DEBUGINFOD_TIMEOUT=1
start=$SECONDS
rows "${pids[0]}" --no-cache | grep -q . || fail "no frames: $(cat "$work/err")"
[ $((SECONDS - start)) -le 45 ] || fail "a mute server took $((SECONDS - start)) s"
[ $failed = 0 ]
