#!/usr/bin/env bash
# Tests that no recording waits for a process that stays within execve: a file of its that a program serves is closed there,
# and the program does not answer. Who opens the process's maps or memory then waits for a lock that execve holds; since
# Linux 6.18.30 or so also who looks up its root directory.
set -u
[ "$(id -u)" = 0 ] && "$BUILD/offwind" doctor >/dev/null 2>&1 || { echo "needs root and BPF"; exit 77; }
[ -e /dev/fuse ] || { echo "needs /dev/fuse"; exit 77; }
. tests/wait.sh
work=$(mktemp -d /var/tmp/offwind-execve.XXXXXX)
server=
trap 'let_go; rm -rf "$work"' EXIT
trap 'exit 1' TERM INT
chmod 755 "$work"
mkfifo "$work/end"
fail() { echo "FAIL: $1"; exit 1; }

# It opens the file, which execve closes.
cat >"$work/execute.c" <<'C'
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>
int main(int argc, char **argv)
{
	FILE *pid = fopen(argv[1], "w");
	if (argc != 3 || !pid || open(argv[2], O_RDONLY | O_CLOEXEC) < 0)
		return 1;
	fprintf(pid, "%d\n", (int)getpid());
	fclose(pid);
	if (write(1, "ready\n", 6) == 6)
		execl("/bin/sleep", "sleep", "1000", NULL);
	return 1;
}
C
cc -O1 -o "$work/execute" "$work/execute.c" || exit 1

# Let a process of this user execute a program, without an end. inside is its pid.
begin() {
	mkdir "$work/mount$1"
	: >"$work/pid$1"
	chown "$1" "$work/mount$1" "$work/pid$1"
	unshare -m --propagation private python3 -B tests/faults/silent_mount.py --close "$work/mount$1" "$1" \
		"$work/execute" "$work/pid$1" <"$work/end" >"$work/said$1" &
	server=$!
	exec 3>"$work/end"
	until_or_dead "$server" grep -q ready "$work/said$1" || fail "the file system was not mounted"
	inside=$(cat "$work/pid$1")
	until_or_dead "$server" keeps_waiting 2>/dev/null && within || fail "the process does not stay within execve"
}
keeps_waiting() { ! (timeout -s KILL 1 head -c 1 "/proc/$inside/maps") >/dev/null 2>&1; }
# The name is the old one until execve has closed the files.
within() { runs "$server" && ! has_name "$inside" sleep; }
let_go() {
	exec 3>&-
	[ -z "$server" ] || wait "$server"
	server=
}
is_recording() { # PID of timeout; sets recording
	local child
	recording=$(pgrep -x offwind -P "$1") || return
	for child in $(cat "/proc/$recording/task/$recording/children"); do
		readlink "/proc/$child"/fd/* | grep -q perf_event && return
	done
	return 1
}
record() { exec timeout -s KILL 90 "$BUILD/offwind" record -q -a -F 99 -o "$work/p.pb.gz" "$@" 2>"$work/err"; }
has_samples() { [ "$("$BUILD/offwind" report -n 1 "$work/p.pb.gz" | wc -l)" -gt 1 ] || fail "the recording $1 has no samples"; }

begin $((200000 + $$))
timeout -s KILL 60 "$BUILD/tests/faults/execve_wait" "$inside" || fail "execve_wait: exit $?"
within || fail "the process has left execve while its memory was asked for"
(record -d 1) || fail "record: exit $?: $(cat "$work/err")"
within || fail "the recording that began later waited until the process had left execve: $(cat "$work/err")"
grep -q 'keeps who reads them waiting' "$work/err" || fail "the recording does not say what is missing: $(cat "$work/err")"
has_samples "that began later"
let_go

record &
job=$!
until_or_dead $job is_recording $job || fail "record: $(cat "$work/err")"
begin $((300000 + $$))
sleep 1 # it would wait from when the process's mappings are read, within 0.2 s
kill -INT "$recording"
wait $job || fail "record: exit $?: $(cat "$work/err")"
within || fail "the recording that had begun waited until the process had left execve: $(cat "$work/err")"
has_samples "that had begun"
