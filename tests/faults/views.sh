#!/usr/bin/env bash
# Tests that a debug file that exists only in a process's own mounts gives names to that process
# only: not to root's run of the same program, whichever is read first. A debug file that the user
# may not read gives no names to his processes either.
set -u
[ "$(id -u)" = 0 ] && "$BUILD/offwind" doctor > /dev/null 2>&1 || { echo "needs root and BPF"; exit 77; }
setpriv --reuid 65534 --regid 65534 --clear-groups unshare -Ur -m true 2> /dev/null ||
	{ echo "needs user namespaces"; exit 77; }
BUILD=$(realpath "$BUILD")
work=$(mktemp -d /tmp/offwind-views.XXXXXX)
made= started=()
[ -d /usr/lib/debug ] || { mkdir -p /usr/lib/debug && made=1; }
clean() {
	kill "${started[@]}" 2> /dev/null; wait
	if [ -n "${hosts:-}" ]; then
		rm -f "$hosts"; rmdir "${hosts%/*}" 2> /dev/null; rmdir /usr/lib/debug/.build-id 2> /dev/null
	fi
	[ -z "$made" ] || rmdir /usr/lib/debug
	rm -rf "$work"
}
trap clean EXIT
chmod 755 "$work"; cd "$work" || exit 1
fail() { echo "$1"; exit 1; }

cat > victim.c << 'C'
volatile unsigned long n;
__attribute__((noinline)) static void true_leaf(void) { for (unsigned long i = 0; i < 1000000; i++) n += i; }
int main(void) { for (;;) true_leaf(); }
C
cc -O1 -g -static -Wl,--build-id -o whole victim.c || exit 1
id=$(readelf -n whole | sed -n 's/.*Build ID: //p'); at=.build-id/${id:0:2}
strip -o victim whole
for name in EVIL SECRET own; do # directories of debug files
	mkdir -p $name/$at
	objcopy --redefine-sym true_leaf=${name}_leaf whole $name/$at/${id:2}.debug
done
chmod 600 SECRET/$at/*
# A root directory of its own, as containers have: the same file, and debug files in the image.
mkdir -p box/usr/lib/debug box"$work"; cp -r own/. box/usr/lib/debug; touch box"$work"/victim
user() { # DIRECTORY: run it as an ordinary user, in namespaces of his own
	setpriv --reuid 65534 --regid 65534 --clear-groups unshare -Ur -m sh -c "mount --bind $1 /usr/lib/debug && exec $work/victim" &
	started+=($!)
}
wait_for() { # PID: wait until it runs the
	for i in $(seq 4000); do
		[ "$(readlink "/proc/$1/exe")" != "" ] && grep -q '/victim$' "/proc/$1/maps" 2> /dev/null && return
		kill -0 "$1" 2> /dev/null || fail "process $1 ended"
		sleep 0.05
	done
	fail "process $1 does not start"
}
record() { # PROFILE STORE: longer on a busy machine, until all processes have samples
	local seconds
	for seconds in 2 8 32; do
		OFFWIND_DB=$2 timeout 200 "$BUILD/offwind" record -q -p "$(IFS=,; echo "${started[*]}")" -F 199 -d $seconds -o "$1" > log 2>&1 || fail "record: $(cat log)"
		all_sampled "$1" && break
	done
}
names() { "$BUILD/offwind" report -f folded --pid "$2" "$1"; }
all_sampled() { # PROFILE
	local p
	for p in "${started[@]}"; do [ -n "$(names "$1" "$p")" ] || return; done
}
has() { case $(names "$1" "$2") in *"$3"*) ;; *) fail "$4: $(names "$1" "$2")" ;; esac; }
hasnt() { case $(names "$1" "$2") in "") fail "$2 was not sampled" ;; *_leaf*) fail "$3: $(names "$1" "$2")" ;; esac; }

user "$work/EVIL"; evil=$!; wait_for $evil
user "$work/SECRET"; secret=$!; wait_for $secret
unshare -m sh -c "mount --bind $work/victim box$work/victim && exec chroot box $work/victim" & box=$!
started+=($box); wait_for $box
./victim & roots=$!; started+=($roots); wait_for $roots
record a.pb.gz "$work/a.db"
has a.pb.gz $evil EVIL_leaf "a user's own debug files do not name his own process"
has a.pb.gz $box own_leaf "a container's own debug files do not name its process"
hasnt a.pb.gz $roots "root's process has another's names"
hasnt a.pb.gz $secret "a debug file that its user may not read was read"
# They do not later either, from the store.
kill $evil $box; wait $evil $box 2> /dev/null
started=($secret $roots)
record b.pb.gz "$work/a.db"
hasnt b.pb.gz $roots "root's process has another's names out of the store"
# The host's own debug files come first.
hosts=/usr/lib/debug/$at/${id:2}.debug
mkdir -p "${hosts%/*}"; cp own/$at/${id:2}.debug "$hosts"
user "$work/EVIL"; evil=$!; wait_for $evil
record c.pb.gz ""
has c.pb.gz $roots own_leaf "the host's debug files do not name root's process"
has c.pb.gz $evil own_leaf "a user's debug files come before the host's"
