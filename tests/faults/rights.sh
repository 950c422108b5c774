#!/usr/bin/env bash
# Tests that the agent reads for a process only what that process's user may read: whatever files an
# ordinary user puts where maps of generated code, jitdumps and debug files are looked for, no byte
# of root's files becomes a name.
set -u
[ "$(id -u)" = 0 ] && "$BUILD/offwind" doctor > /dev/null 2>&1 || { echo "needs root and BPF"; exit 77; }
setpriv --reuid 65534 --regid 65534 --clear-groups unshare -Ur -m true 2> /dev/null ||
	{ echo "needs user namespaces"; exit 77; }
BUILD=$(realpath "$BUILD")
work=$(mktemp -d /tmp/offwind-rights.XXXXXX)
links=$(cat /proc/sys/fs/protected_hardlinks)
started=()
trap 'kill "${started[@]}" 2> /dev/null; echo $links > /proc/sys/fs/protected_hardlinks; for p in "${started[@]}"; do rm -f "/tmp/perf-$p.map"; done; rm -rf "$work"' EXIT
chmod 755 "$work"; mkdir -m 777 "$work/theirs"; cd "$work" || exit 1
fail() { echo "$1"; exit 1; }

# Code in anonymous memory; jit FILE COMMAND also maps a page of FILE for execution, as writers of jitdump files do, and
# then runs COMMAND.
cat > jit.c << 'C'
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
int main(int argc, char **argv)
{
	static const unsigned char spin[] = { 0x48, 0xff, 0xc0, 0xeb, 0xfb };
	void *code = mmap((void *)0x10000000, 4096, 7, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
	int fd = argc > 1 ? open(argv[1], O_RDONLY) : -1;
	if (fd >= 0 && mmap(0, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE, fd, 0) == MAP_FAILED)
		return 1;
	if (argc > 2 && system(argv[2]))
		return 1;
	memcpy(code, spin, sizeof(spin));
	((void (*)(void))code)();
}
C
cc -O1 -o jit jit.c || exit 1
echo '10000000 1000 SECRET_of_root' > secret.map; chmod 600 secret.map
echo '10000000 1000 own_name' > own.map; chown 65534 own.map
python3 - << 'P' || exit 1
import struct
head = struct.pack('<IIIIIIQQ', 0x4A695444, 1, 40, 62, 0, 1, 0, 0)
def load(name):
    body = struct.pack('<IIQQQQ', 1, 1, 0x10000000, 0x10000000, 16, 1) + name + b'\0' + bytes(16)
    return struct.pack('<IIQ', 0, 16 + len(body), 0) + body
open('empty.dump', 'wb').write(head)
open('own.dump', 'wb').write(head + load(b'own_name'))
open('secret.dump', 'wb').write(head + load(b'SECRET_of_root'))
P
chmod 600 secret.dump

# Each case is a shell script that ends in exec; $$ is the process's number in it.
start() { # NAME UID SCRIPT: in namespaces of the user's own
	local name=$1 uid=$2
	printf '%s\n' "$3" > "$name.sh"; chmod 755 "$name.sh"
	setpriv --reuid "$uid" --regid "$uid" --clear-groups bash "./$name.sh" > "$name.log" 2>&1 &
	started+=($!)
	eval "$name=$!"
}
ready() { # wait until all run their code
	for p in "${started[@]}"; do
		for i in $(seq 2000); do
			grep -q '^10000000-10001000 rwxp' "/proc/$p/maps" 2> /dev/null && continue 2
			kill -0 "$p" 2> /dev/null || fail "a case ended: $(cat ./*.log)"
			sleep 0.1
		done
		fail "a case does not start"
	done
}
echo 0 > /proc/sys/fs/protected_hardlinks
ns='unshare -Ur -m bash -c'
start bound 65534 "cat $work/secret.map && exit 1; touch /tmp/perf-\$\$.map
	exec $ns 'mount --bind $work/secret.map /tmp/perf-\$\$.map && exec $work/jit'"
start linked 65534 "ln -s $work/secret.map /tmp/perf-\$\$.map; exec $work/jit"
start hard 65534 "ln $work/secret.map /tmp/perf-\$\$.map; exec $work/jit"
start fifo 65534 "mkfifo /tmp/perf-\$\$.map; exec $work/jit"
start device 65534 "touch /tmp/perf-\$\$.map
	exec $ns 'mount --bind /dev/zero /tmp/perf-\$\$.map && exec $work/jit'"
start dump 65534 "cp empty.dump theirs/jit-1.dump
	exec $ns 'exec $work/jit theirs/jit-1.dump \"mount --bind $work/secret.dump theirs/jit-1.dump\"'"
# Correct files still give names: root's, a user's, and a user's in namespaces of his own.
start mine 65534 "cp $work/own.map /tmp/perf-\$\$.map; exec $work/jit"
start mine_inside 65534 "exec $ns 'mount -t tmpfs none /tmp && echo 10000000 1000 own_name > /tmp/perf-\$\$.map; exec /proc/self/fd/9' 9< $work/jit"
start mine_dump 65534 "cp own.dump theirs/jit-2.dump; exec $work/jit theirs/jit-2.dump"
start roots 0 "umask 077; cp $work/secret.map /tmp/perf-\$\$.map; exec $work/jit"
# No other user's file gives names to a process.
start foreign 0 "setpriv --reuid 65534 --clear-groups cp $work/own.map /tmp/perf-\$\$.map; exec $work/jit"
ready
names() { "$BUILD/offwind" report -f folded --pid "$1" p.pb.gz; }
all_sampled() {
	local p
	for p in "${started[@]}"; do [ -n "$(names "$p")" ] || return; done
}
for seconds in 3 12 48; do # until all processes have samples, on a busy machine, too
	timeout 200 "$BUILD/offwind" record -q -p "$(IFS=,; echo "${started[*]}")" -F 199 -d $seconds -o p.pb.gz > record.log 2>&1 || fail "record: $(cat record.log)"
	all_sampled && break
done
for name in bound linked hard fifo device dump foreign; do
	n=$(names "${!name}")
	[ -n "$n" ] || fail "$name was not sampled"
	case $n in *SECRET* | *own_name*) fail "$name: $n" ;; esac
done
for name in mine mine_inside mine_dump; do
	case $(names "${!name}") in *own_name*) ;; *) fail "$name has no name: $(names "${!name}")" ;; esac
done
case $(names "$roots") in *SECRET_of_root*) ;; *) fail "root's own map is not read" ;; esac
