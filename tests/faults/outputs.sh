#!/usr/bin/env bash
# Tests that only their owner can read results, whatever the umask is, and that results are not
# written through links and pipes of other users.
set -u
[ "$(id -u)" = 0 ] && "$BUILD/offwind" doctor > /dev/null 2>&1 || { echo "needs root and BPF"; exit 77; }
work=$(mktemp -d /tmp/offwind-outputs.XXXXXX)
sh -c 'while :; do :; done' & busy=$!
trap 'kill $busy; rm -rf "$work"' EXIT
chmod 755 "$work"
export OFFWIND_DB=
stranger() { setpriv --reuid 65534 --regid 65534 --clear-groups "$@"; }
fail() { echo "$1"; ls -lR "$work"; exit 1; }
record() { # OPTION…: longer if there are no samples
	local seconds
	for seconds in ${SECONDS_MIN:-1} 4 16; do
		timeout 100 "$BUILD/offwind" record -q -p $busy -F 99 -d $seconds "$@" > "$work/log" 2>&1 && return
		grep -q 'no samples were recorded' "$work/log" || break
	done
	fail "record $*: $(cat "$work/log")"
}
mode() { [ "$(stat -c '%a %F' "$1")" = "$2" ] || fail "$1: $(stat -c '%a %F' "$1"), not $2"; }

cd "$work" || exit 1
BUILD=$(cd "$OLDPWD" && realpath "$BUILD")
# A capture and each way to make a result from it; older files that everyone may read do not change the rights.
umask 0
echo old > r.owc; echo old > r.pb.gz; echo old > r.html
record --raw -o r.owc
"$BUILD/offwind" unwind -q -o r.pb.gz r.owc || fail "unwind"
"$BUILD/offwind" flamegraph -o r.html r.pb.gz || fail "flamegraph"
OFFWIND_DB=$work/cache/s.db "$BUILD/offwind" unwind -q -o s.pb.gz r.owc || fail "unwind with a store"
for f in r.owc r.pb.gz r.html s.pb.gz cache/s.db; do mode $f "600 regular file"; done
mode cache "700 directory"
record --rotate 1 -o windows
mode windows "700 directory"
for f in windows/*.pb.gz; do mode "$f" "600 regular file"; done
umask 022

# Files of another user at the places of the results, in a directory of his own.
echo precious > precious; chmod 600 precious
mkdir theirs; chown 65534 theirs
for f in raw.owc profile.pb.gz; do stranger ln -s ../precious theirs/$f; done
for s in $(seq 0 30); do # names of windows
	stranger ln -s ../precious "theirs/offwind-$(date -u -d "+$s seconds" +%Y%m%dT%H%M%SZ).pb.gz"
done
record --raw -o theirs/raw.owc
record -o theirs/profile.pb.gz
record --rotate 1 -o theirs
[ "$(cat precious)" = precious ] || fail "another user's link was written through"
for f in raw.owc profile.pb.gz; do mode theirs/$f "600 regular file"; done

# The user's own links, devices, pipes and redirections still work.
ln -s latest-target.pb.gz latest.pb.gz
record -o latest.pb.gz
mode latest-target.pb.gz "600 regular file"
[ -L latest.pb.gz ] || fail "one's own link was replaced"
mkfifo pipe; cat pipe > read & reader=$!
SECONDS_MIN=4 record -o pipe; wait $reader # who reads does so once
"$BUILD/offwind" unwind -q -o /dev/stdout r.owc > redirected || fail "to /dev/stdout"
"$BUILD/offwind" unwind -q -o /dev/stdout r.owc | cat > piped || fail "to /dev/stdout"
"$BUILD/offwind" unwind -q -o /dev/null r.owc || fail "to /dev/null"
[ -L /dev/stdout ] && [ -c /dev/null ] || fail "a device was replaced"
for f in read redirected piped latest.pb.gz; do
	"$BUILD/offwind" report --top 1 $f > /dev/null || fail "$f is no profile"
done
