#!/usr/bin/env bash
# Tests the sandbox of each role (docs/security.md). Code that took over the worker, the store, the history or
# the server (preload/hostile.c) can open no file, make no socket and no process, and holds no right; of a sender, it
# connects to the ports of the targets; of the capture process, it executes and reaches nobody. A file that ends the
# worker is left out, and the rest of the result comes out. A recording goes on.
set -u
. tests/recorder.sh
. tests/wait.sh
chmod 755 "$dir"
gcc -O1 -Wall -Wextra -Werror -D_GNU_SOURCE -shared -fPIC -o "$dir/hostile.so" tests/faults/preload/hostile.c || exit 1
cat >"$dir/lib.c" <<'C'
unsigned long hot(unsigned long n);
__attribute__((noinline)) unsigned long hot(unsigned long n)
{
	volatile unsigned long sum = 0;

	for (unsigned long i = 0; i < n; i++)
		sum += i;
	return sum;
}
C
cat >"$dir/main.c" <<'C'
#include <time.h>
unsigned long hot(unsigned long n);
int main(void)
{
	unsigned long sum = 0;

	while (clock() < CLOCKS_PER_SEC)
		sum += hot(100000);
	return sum == 1;
}
C
# By its soname, a copy of the library that is preloaded stands for it: the program maps one of the two.
gcc -O1 -g -shared -fPIC -Wl,-soname,libhot.so -o "$dir/libhot.so" "$dir/lib.c" &&
	gcc -O1 -g -o "$dir/prog" "$dir/main.c" "$dir/libhot.so" -Wl,-rpath,"$dir" || exit 1
cp "$offwind" "$dir/offwind"
export OFFWIND_DB=$dir/store.db
"$offwind" record -q --raw -o "$dir/x.owc" -- "$dir/prog" || fail "record"
"$offwind" unwind -q "$dir/x.owc" -o "$dir/x.pb.gz" || fail "unwind"
chmod 644 "$dir/x.owc" "$dir/x.pb.gz"

# ---- code that took over the worker -------------------------------------------------------------

echo victim >"$dir/victim"
export HOSTILE_VICTIM=$dir/victim
attack() { # ROLES NAME COMMAND…: as who runs this; each of the roles tries, and nobody succeeds
	local roles=$1 name=$2 role
	shift 2
	LD_PRELOAD=$dir/hostile.so HOSTILE=attack "$@" >"$dir/out" 2>"$dir/err" || fail "$name: exit $?: $(cat "$dir/err")"
	for role in $roles; do
		grep -q "^hostile: offwind-$role: tried [1-9][0-9]*, succeeded 0$" "$dir/err" || fail "$name: $role: $(grep hostile "$dir/err")"
	done
	grep -q '^hostile: .*: succeeded: ' "$dir/err" && fail "$name: $(grep hostile "$dir/err")"
	[ "$(cat "$dir/victim")" = victim ] || fail "$name: a file was harmed"
}
attack worker "unwind" "$offwind" unwind "$dir/x.owc" -o "$dir/y.pb.gz"
attack worker "unwind as text" "$offwind" unwind "$dir/x.owc" -f text
attack worker "explain" "$offwind" explain "$dir/x.owc"
attack worker "report of a recording" "$offwind" report "$dir/x.owc"
attack worker "flame graph of a recording" "$offwind" flamegraph "$dir/x.owc" -o "$dir/y.html"
attack worker "perf_to_profile" bash -c "exec -a perf_to_profile '$offwind' -f -i '$dir/x.owc' -o '$dir/z.pb'"
attack "worker capture" "record" "$offwind" record -o "$dir/y.pb.gz" -- "$dir/prog"
attack "worker capture" "record of the machine" "$offwind" record -a -d 1 -o "$dir/y.pb.gz"
attack "worker capture" "record to a capture file" "$offwind" record --raw -o "$dir/y.owc" -- "$dir/prog"
attack "worker capture" "top" "$offwind" top --batch -n 2 --delay 1
sleep 1000 & prog=$!
attack worker "unwind of a process" "$offwind" unwind --pid $prog -o "$dir/y.pb.gz"
kill $prog
wait $prog 2>/dev/null
user=(setpriv --reuid 65534 --regid 65534 --clear-groups env HOSTILE_HAS_ROOT=1 "HOME=$dir/home" OFFWIND_DB=)
attack worker "unwind by an ordinary user" "${user[@]}" "$dir/offwind" unwind "$dir/x.owc" -f text
attack worker "unwind by the root of a user namespace" unshare -r "$dir/offwind" unwind --no-cache "$dir/x.owc" -f text
attack worker "explain by an ordinary user" "${user[@]}" "$dir/offwind" explain "$dir/x.owc"

# ---- the daemon's roles -----------------------------------------------------------------------------

# A receiver that takes everything, a port of this machine that is not its, and a UNIX socket that everybody may use.
cat >"$dir/receiver.py" <<'PY'
import http.server, os, socket, sys, threading
class Handler(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        self.rfile.read(int(self.headers['Content-Length']))
        self.send_response(200)
        self.send_header('Content-Type', 'application/x-protobuf')
        self.send_header('Content-Length', '0')
        self.end_headers()
    def log_message(self, *args): pass
server = http.server.ThreadingHTTPServer(('127.0.0.1', 0), Handler)
other = socket.create_server(('127.0.0.1', 0))
local = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
local.bind(sys.argv[1])
os.chmod(sys.argv[1], 0o777)
print(server.server_port, other.getsockname()[1], flush=True)
server.serve_forever()
PY
python3 "$dir/receiver.py" "$dir/everybody" >"$dir/ports" & receiver=$!
until_or_dead $receiver grep -q ' ' "$dir/ports" || fail "the receiver"
read -r HOSTILE_TARGET HOSTILE_OTHER <"$dir/ports"
# Landlock knows ports since its version 4.
python3 -c 'import ctypes; exit(ctypes.CDLL(None).syscall(444, 0, 0, 1) >= 4)' && export HOSTILE_ANY_PORT=1
printf '[record]\nrotate = 1\nevent = cpu-clock\n[export otlp]\nurl = http://127.0.0.1:%d\n' "$HOSTILE_TARGET" >"$dir/conf"
export HOSTILE_TARGET HOSTILE_OTHER HOSTILE_SOCKET=$dir/everybody
LD_PRELOAD=$dir/hostile.so HOSTILE=attack "$offwind" daemon --config "$dir/conf" --db "$dir/daemon.db" --listen "unix:$dir/socket" 2>"$dir/log" & daemon=$!
metric() { curl -s --unix-socket "$dir/socket" http://x/metrics | awk -v name="$1 " 'index($0, name) == 1 { print $NF }'; }
has_sent() { [ "$(metric 'offwind_export_windows_total{target="otlp"}')" -ge 2 ] 2>/dev/null; }
until_or_dead $daemon has_sent || fail "the daemon: $(cat "$dir/log")"
tries() { grep -q "^hostile: offwind-$1: tried [1-9][0-9]*, succeeded 0$" "$dir/log"; } # ROLE
child() { # ROLE
	local pid
	for pid in $(cat "/proc/$daemon/task/$daemon/children"); do
		has_name "$pid" "offwind-$1" && echo "$pid" && return
	done
}
holds() { # WHO NAME REGEX: what stands in $status
	grep -qE "^$2:[[:space:]]+$3\$" <<<"$status" || fail "the $1's $2: $(grep "^$2:" <<<"$status")"
}
confined() { # ROLE PID: it has no right
	local set uid
	status=$(cat "/proc/$2/status")
	for set in CapInh CapPrm CapEff CapBnd CapAmb; do
		holds "$1" $set 0000000000000000
	done
	holds "$1" NoNewPrivs 1
	holds "$1" Seccomp 2
	holds "$1" Groups '[[:space:]]*'
	uid=$(sed -nE 's/^Uid:\t([0-9]+)\t\1\t\1\t\1$/\1/p' <<<"$status")
	[ "${uid:-0}" -ge $((0x70000000)) ] || fail "the $1's user: $(grep ^Uid: <<<"$status")"
	[ "$1" = sender ] || [[ $(readlink "/proc/$2/root") == /proc/$2/fdinfo ]] || fail "the $1's root: $(readlink "/proc/$2/root")"
	grep bpf-map "/proc/$2/maps" | grep -v ' r--s ' && fail "the $1 can write what the kernel shares with the capture process"
	ls -l "/proc/$2/fd" | grep -E 'anon_inode:.*(bpf|perf)' && fail "the $1 holds what the capture process does"
}
writes() { # PID: the files that it can write
	local fd
	for fd in "/proc/$1/fd"/*; do
		[[ $(readlink "$fd") == /* ]] && grep -qE '^flags:.*[12]$' "/proc/$1/fdinfo/${fd##*/}" && readlink "$fd"
	done
}
for role in worker store history server sender capture; do
	until_or_dead $daemon tries $role || fail "$role: $(grep "^hostile: offwind-$role" "$dir/log")"
	[ $role = capture ] || confined $role "$(child $role)"
done
grep -q '^hostile: .*: succeeded: ' "$dir/log" && fail "the daemon: $(grep hostile "$dir/log")"
[ "$(cat "$dir/victim")" = victim ] || fail "the daemon: a file was harmed"
for role in server sender; do
	writes "$(child $role)" | grep -vE '^(/dev/null|.*/log|.*-history\.db-sent)$' && fail "the $role can write that"
done
# Who may hang even after SIGKILL does not keep the history from the next daemon.
for role in opener capture; do
	ls -l "/proc/$(child $role)/fd" | grep -e '-history.db-lock$' && fail "the $role keeps the lock"
done
kill $daemon
wait $daemon || fail "the daemon: exit $?: $(cat "$dir/log")"
kill $receiver

has_ended() { ! runs "$1"; } # PID
# A recording goes on until it is interrupted, and ends then.
interrupt() { # PID: its exit code
	kill -INT "$1"
	until_or_dead $$ has_ended "$1" || kill -KILL "$1"
	wait "$1"
}

# ---- what the worker holds --------------------------------------------------------------------------

# Run a command until its worker has stopped itself. Sets supervisor and worker ("": there is none).
stopped_worker() { # COMMAND…
	LD_PRELOAD=$dir/hostile.so HOSTILE=stop "$@" 2>/dev/null &
	supervisor=$!
	worker=
	while :; do
		for pid in $(cat "/proc/$supervisor/task/$supervisor/children" 2>/dev/null); do
			grep -q '^State:.T' "/proc/$pid/status" 2>/dev/null && worker=$pid
		done
		[ -n "$worker" ] && return
		kill -0 $supervisor 2>/dev/null || break
		sleep 0.01
	done
	fail "$*: there is no worker"
}
for command in "unwind $dir/x.owc -o $dir/y.pb.gz" "record -a -d 2 -o $dir/y.pb.gz"; do
	stopped_worker "$offwind" $command
	[ -n "$worker" ] || continue
	confined worker "$worker"
	# It has the store, for reading alone.
	n=0
	for fd in "/proc/$worker/fd"/*; do
		[[ $(readlink "$fd") == "$OFFWIND_DB"* ]] || continue
		n=$((n + 1))
		grep -qE '^flags:.*0$' "/proc/$worker/fdinfo/${fd##*/}" || fail "$command: the worker can write $(readlink "$fd")"
	done
	[ $n -ge 2 ] || fail "$command: the worker does not have the store"
	kill -CONT "$worker"
	wait $supervisor || fail "$command, after it was stopped: exit $?"
done
# The processes that serve it hold what they need, and can get no more. The last one is started when there
# is something to store.
"$offwind" record -a -o "$dir/y.pb.gz" --db "$dir/other.db" 2>"$dir/err" & supervisor=$!
holds_little() { # ROLE: its process has given up its rights, which takes a moment; sets little and status
	local child set mask
	for child in $(cat "/proc/$supervisor/task/$supervisor/children" 2>/dev/null); do
		has_name "$child" "offwind-$1" || continue
		little=$child status=$(cat "/proc/$child/status")
		grep -q '^NoNewPrivs:.1' <<<"$status" || return
		# CAP_CHOWN, CAP_DAC_OVERRIDE, CAP_KILL, CAP_NET_ADMIN, CAP_NET_RAW and CAP_SYS_MODULE
		for set in CapPrm CapEff CapBnd; do
			mask=$(sed -n "s/^$set:\t//p" <<<"$status")
			[ $((0x$mask & 0x13023)) = 0 ] && { [ "$1" != store ] || [ $((0x$mask)) = 0 ]; } || return
		done
		return 0
	done
	return 1
}
status=
for role in opener capture store; do
	until_or_dead $supervisor holds_little $role || fail "$role: $(grep -E '^(Cap|NoNew)' <<<"$status")"
done
pid=$little
until_or_dead $pid grep -q '^Seccomp:.2' "/proc/$pid/status" || fail "the store process is not confined"
# Without it nothing more is stored, and the recording goes on.
kill -KILL "$pid"
cp "$dir/prog" "$dir/prog2"
"$dir/prog2"
interrupt $supervisor || fail "ended by SIGINT: exit $?: $(cat "$dir/err")"
grep -q "$dir/other.db: cannot .*; unwind tables stay in memory" "$dir/err" || fail "no word of the store: $(cat "$dir/err")"
"$offwind" report -n 0 "$dir/y.pb.gz" | grep -q 'libhot.so *hot\|hot.*libhot.so' || fail "the recording: $(cat "$dir/err")"
[ "$(sqlite3 "$dir/other.db" 'PRAGMA integrity_check')" = ok ] || fail "the store is damaged"

# A store process that was stopped does not outlive its worker, with the locks that it has.
"$offwind" record -a -o "$dir/y.pb.gz" --db "$dir/third.db" 2>"$dir/err" & supervisor=$!
has_store() { # it is confined, too; sets store
	for store in $(cat "/proc/$supervisor/task/$supervisor/children" 2>/dev/null); do
		has_name "$store" offwind-store && grep -q '^Seccomp:.2' "/proc/$store/status" 2>/dev/null && return
	done
	false
}
until_or_dead $supervisor has_store || fail "no store process"
kill -STOP "$store"
for pid in $(cat "/proc/$supervisor/task/$supervisor/children"); do has_name "$pid" offwind-worker && kill -SEGV "$pid"; done
until_or_dead $supervisor has_ended "$store" || fail "the store process is left"
until_or_dead $supervisor grep -q "recording goes on" "$dir/err" || fail "a stopped store: $(cat "$dir/err")"
interrupt $supervisor || fail "a stopped store: exit $?: $(cat "$dir/err")"
grep -q "the process that writes the store does not end, and is killed" "$dir/err" || fail "a stopped store: $(cat "$dir/err")"

# ---- a recording's worker that dies, or does not go on --------------------------------------------------

# This one waits for half a minute: look at it last. Its worker stops while it reads a file.
LD_PRELOAD=$dir/hostile.so HOSTILE=hang:$(stat -c %i "$dir/libhot.so") setsid "$offwind" record -a -o "$dir/hung.pb.gz" --stats "$dir/hung.json" 2>"$dir/hung.log" & hung=$!
workers_of() { # SUPERVISOR: the confined ones
	local child
	for child in $(cat "/proc/$1/task/$1/children" 2>/dev/null); do
		has_name "$child" offwind-worker && grep -q '^Seccomp:.2' "/proc/$child/status" 2>/dev/null && echo "$child"
	done
	true
}
has_worker() { worker=$(workers_of "$1") && [ -n "$worker" ] && [ "$worker" != "${2:-}" ]; } # SUPERVISOR [NOT]
is_stopped() { worker=$(workers_of "$1") && grep -q '^State:.T' "/proc/$worker/status" 2>/dev/null; }
until_or_dead $hung has_worker $hung
"$dir/prog" &
until_or_dead $hung is_stopped $hung || fail "the worker did not stop"
# It has no terminal: whatever sessions others begin, those that record weigh more. A nice value of its own stays.
if [ "$(nice)" = 0 ] && [ "$(cat /proc/sys/kernel/sched_autogroup_enabled 2>/dev/null)" = 1 ]; then
	for pid in $(cat "/proc/$hung/task/$hung/children"); do
		has_name "$pid" offwind-store || grep -q 'nice -10$' "/proc/$pid/autogroup" || fail "$(cat "/proc/$pid/comm"): $(cat "/proc/$pid/autogroup")"
	done
fi

# An opener that hangs, to be looked at last, too: its worker asks it for a program that is new.
"$offwind" record -a -o "$dir/stuck.pb.gz" 2>"$dir/stuck.log" & stuck=$!
opener_of() { # SUPERVISOR
	local child
	for child in $(cat "/proc/$1/task/$1/children" 2>/dev/null); do
		has_name "$child" offwind-opener && echo "$child"
	done
	true
}
until_or_dead $stuck has_worker $stuck && stuck_worker=$worker && kill -STOP "$(opener_of $stuck)" || fail "no opener"
cp "$dir/prog" "$dir/prog3"
"$dir/prog3" &

balance() { # STATS: every occurrence is accounted for
	python3 -c '
import json, sys
total = json.load(open(sys.argv[1]))["total"]
sums = sum(sum(total[k].values()) for k in ("filtered", "lost", "unwound")) + total["waiting"] + total.get("written", 0)
sys.exit("fired %d, accounted for %d" % (total["fired"], sums) if sums != total["fired"] else not total["lost"]["crashed"])' "$1"
}
mkfifo "$dir/go"
for signal in SEGV KILL; do
	"$offwind" record -o "$dir/y.pb.gz" --raw="$dir/y.owc" --stats "$dir/y.json" -- \
		sh -c "'$dir/prog'; read -r _ <'$dir/go'; '$dir/prog'; exit 7" 2>"$dir/err" &
	supervisor=$!
	until_or_dead $supervisor has_worker $supervisor && dead=$worker || fail "$signal: no worker"
	until_or_dead $supervisor larger "$dir/y.owc" 4096 || fail "$signal: no samples"
	kill -$signal "$dead"
	until_or_dead $supervisor has_worker $supervisor "$dead" || fail "$signal: no second worker"
	exec 8<>"$dir/go"
	echo >&8
	wait $supervisor
	rc=$?
	exec 8>&-
	[ $rc = 7 ] || fail "SIG$signal: the command's exit code: $rc: $(cat "$dir/err")"
	grep -q "the worker was ended by SIG$signal: what was recorded until now is lost.*; recording goes on" "$dir/err" || fail "SIG$signal: $(cat "$dir/err")"
	grep -qE 'captured ([0-9]+) = unwound [1-9][0-9]* .* \+ lost [0-9]+ \(.*crashed [1-9]' "$dir/err" || fail "SIG$signal: the accounting: $(cat "$dir/err")"
	balance "$dir/y.json" || fail "SIG$signal: the statistics"
	"$offwind" report --check "$dir/y.pb.gz" >/dev/null || fail "SIG$signal: the profile"
	"$offwind" report -n 5 "$dir/y.pb.gz" | grep -q hot || fail "SIG$signal: what runs is not known again: $("$offwind" report -n 5 "$dir/y.pb.gz")"
	"$offwind" unwind -q "$dir/y.owc" -o "$dir/z.pb.gz" || fail "SIG$signal: the capture file: exit $?"
	# That of the worker that died has what it wrote.
	"$offwind" unwind "$dir/y.owc.old" -o "$dir/z.pb.gz" 2>"$dir/err"
	[ $? = 3 ] && grep -q 'captured [1-9]' "$dir/err" || fail "SIG$signal: the first capture file: $(cat "$dir/err")"
	rm -f "$dir"/y.owc*
done

# ---- a file that ends the worker ---------------------------------------------------------------------

inode=$(stat -c %i "$dir/libhot.so")
# A file that was changed just now could change again unseen: the quarantine begins when it has settled.
while [ $(($(date +%s) - $(stat -c %Z "$dir/libhot.so"))) -lt 4 ]; do
	sleep 0.2
done
crash() { # COMMAND…
	LD_PRELOAD=$dir/hostile.so HOSTILE=crash:$inode "$@" >"$dir/out" 2>"$dir/err"
}
samples() { # PROFILE: how many samples, and how many of them stopped without the object
	"$offwind" report --check "$1" | sed -nE 's/.*sound; ([0-9]+) samples.*/\1/p'
}
# A recording goes on without it, and the file is in quarantine.
crash "$offwind" record -o "$dir/y.pb.gz" -- sh -c "'$dir/prog'; '$dir/prog'" || fail "record: a file that ends the worker: exit $?: $(cat "$dir/err")"
[ "$(grep -c "warning: $dir/libhot.so: a worker that read it was ended by SIGSEGV" "$dir/err")" = 1 ] ||
	fail "record: it is not reported once: $(cat "$dir/err")"
"$offwind" report -n 5 "$dir/y.pb.gz" | grep -q libhot || fail "record: $("$offwind" report -n 5 "$dir/y.pb.gz")"
[ "$(sqlite3 "$OFFWIND_DB" "select count(*) from quarantine where path like '%/libhot.so'")" = 1 ] || fail "record: it is not in quarantine"
# The next recording does not read it.
crash "$offwind" record -o "$dir/y.pb.gz" -- "$dir/prog" || fail "the next recording: exit $?: $(cat "$dir/err")"
grep -q "libhot.so: not used, the file is in quarantine" "$dir/err" && ! grep -q 'not read any more' "$dir/err" || fail "the next recording: $(cat "$dir/err")"
"$offwind" cache verify --repair >/dev/null 2>&1
rm -f "$dir/y.pb.gz"
crash "$offwind" unwind "$dir/x.owc" -o "$dir/y.pb.gz" || fail "a file that ends the worker: exit $?: $(cat "$dir/err")"
[ "$(grep -c "warning: $dir/libhot.so: a worker that read it was ended by SIGSEGV" "$dir/err")" = 1 ] ||
	fail "it is not reported once: $(cat "$dir/err")"
[ "$(samples "$dir/y.pb.gz")" -gt 0 ] || fail "no profile"
captured=$(sed -nE 's/^offwind: captured ([0-9]+) = unwound \1 .*/\1/p' "$dir/err")
[ "${captured:-0}" -gt 50 ] || fail "the samples: $(cat "$dir/err")"
ls "$dir"/y.pb.gz.* 2>/dev/null && fail "an unfinished file is left"
# Later runs do not read it, and say why; the user can release it.
"$offwind" unwind "$dir/x.owc" -o "$dir/y.pb.gz" 2>"$dir/err" || fail "the next run: exit $?"
grep -q "libhot.so: not used, the file is in quarantine" "$dir/err" || fail "the next run: $(cat "$dir/err")"
# Nor does anything read another file with the same bytes.
mkdir "$dir/copy"
cp "$dir/libhot.so" "$dir/copy/"
LD_PRELOAD=$dir/copy/libhot.so "$offwind" record -o "$dir/y.pb.gz" -- "$dir/prog" 2>"$dir/err" || fail "a copy: exit $?"
grep -q "copy/libhot.so: not used, the file is in quarantine" "$dir/err" || fail "a copy: $(cat "$dir/err")"
echo >>"$dir/copy/libhot.so"
LD_PRELOAD=$dir/copy/libhot.so "$offwind" record -o "$dir/y.pb.gz" -- "$dir/prog" 2>"$dir/err" || fail "a changed copy: exit $?"
grep -q "copy/libhot.so: not used" "$dir/err" && fail "a changed copy: $(cat "$dir/err")"
"$offwind" cache verify --repair >"$dir/out" 2>&1
grep -q "libhot.so: in quarantine since .*: a worker that read it was ended by SIGSEGV" "$dir/out" || fail "verify: $(cat "$dir/out")"
"$offwind" unwind "$dir/x.owc" -o "$dir/y.pb.gz" 2>"$dir/err" && ! grep -q libhot.so "$dir/err" || fail "released: $(cat "$dir/err")"
# A text that is written to a pipe cannot be begun again: what was written is good, and the exit code tells.
crash bash -c "set -o pipefail; '$offwind' unwind '$dir/x.owc' --no-cache -f text | cat" && fail "a pipe: exit 0"
grep -q 'was ended by SIGSEGV' "$dir/err" || fail "a pipe: $(cat "$dir/err")"
# A name that is a pipe itself, and standard input and output that are files.
crash "$offwind" unwind --no-cache - <"$dir/x.owc" -f folded || fail "standard input: exit $?: $(cat "$dir/err")"
grep -q '^' "$dir/out" || fail "standard input and output: nothing was written"
"$offwind" unwind --no-cache -q - <"$dir/x.owc" -f folded >"$dir/whole"
[ "$(wc -l <"$dir/out")" -le "$(wc -l <"$dir/whole")" ] || fail "what the first worker wrote was not taken back"

# A worker that somebody ends while it reads proves nothing about the file.
for signal in INT KILL; do
	python3 -c 'import os, signal, sys
signal.signal(signal.SIGINT, signal.SIG_DFL)
os.execvp(sys.argv[1], sys.argv[1:])' env LD_PRELOAD="$dir/hostile.so" HOSTILE=stop "$offwind" unwind "$dir/x.owc" -o "$dir/y3.pb.gz" 2>"$dir/err" &
	supervisor=$! worker=
	until [ -n "$worker" ] || ! kill -0 $supervisor 2>/dev/null; do
		for pid in $(cat "/proc/$supervisor/task/$supervisor/children" 2>/dev/null); do
			grep -q '^State:.T' "/proc/$pid/status" 2>/dev/null && worker=$pid
		done
		sleep 0.01
	done
	kill -$signal "$worker"
	while kill -0 $supervisor 2>/dev/null; do # a worker that follows it stops, too
		for pid in $(cat "/proc/$supervisor/task/$supervisor/children" 2>/dev/null); do
			grep -q '^State:.T' "/proc/$pid/status" 2>/dev/null && kill -CONT "$pid"
		done
		sleep 0.01
	done 2>/dev/null
	wait $supervisor
	rc=$?
	[ $signal = INT ] && { [ $rc = 130 ] || fail "SIGINT while reading: exit $rc"; }
	[ "$(sqlite3 "$OFFWIND_DB" "select count(*) from quarantine where path like '%/libhot.so'")" = 0 ] || fail "SIG$signal put a file in quarantine: $(cat "$dir/err")"
done

# ---- ends --------------------------------------------------------------------------------------------

# The exit codes and signals are those of the command itself.
"$offwind" unwind "$dir/none" -o "$dir/y.pb.gz" 2>/dev/null
[ $? = 1 ] || fail "no such input: exit code"
"$offwind" unwind "$dir/x.owc" -f text --no-cache 2>"$dir/err" | head -n 1 >/dev/null
[ "${PIPESTATUS[0]}" = 141 ] || [ "${PIPESTATUS[0]}" = 0 ] || fail "a reader that leaves: exit ${PIPESTATUS[0]}"
mkfifo "$dir/fifo"
for signal in INT TERM; do
	# In the background, SIGINT is ignored; this makes it as on a terminal.
	python3 -c 'import os, signal, sys
signal.signal(signal.SIGINT, signal.SIG_DFL)
os.execv(sys.argv[1], sys.argv[1:])' "$offwind" unwind "$dir/fifo" -o "$dir/y2.pb.gz" &
	pid=$!
	until [ "$(wc -w 2>/dev/null <"/proc/$pid/task/$pid/children")" = 2 ]; do
		kill -0 $pid 2>/dev/null || break
		sleep 0.01
	done
	children=$(cat "/proc/$pid/task/$pid/children")
	[ $signal = TERM ] && kill -TERM $pid
	[ $signal = INT ] && kill -INT $pid $children
	wait $pid 2>/dev/null
	rc=$?
	[ $rc = $((128 + $(kill -l $signal))) ] || fail "SIG$signal: exit $rc"
	for child in $children; do
		for _ in $(seq 6000); do
			kill -0 "$child" 2>/dev/null || break
			sleep 0.01
		done
		kill -0 "$child" 2>/dev/null && fail "SIG$signal: process $child is left"
	done
done
# A signal that comes just before the supervisor opens a pipe is not lost.
LD_PRELOAD=$dir/hostile.so HOSTILE=signal:$dir/fifo python3 -c 'import os, signal, sys
signal.signal(signal.SIGINT, signal.SIG_DFL)
os.execv(sys.argv[1], sys.argv[1:])' "$offwind" unwind "$dir/fifo" -o "$dir/y2.pb.gz"
rc=$?
[ $rc = 130 ] || fail "SIGINT before a pipe is opened: exit $rc"
# Nor is one that comes before a recording's worker has handlers, though this shell has SIGINT ignored in its background.
for command in "record -a -o $dir/y.pb.gz" "top --batch"; do
	LD_PRELOAD=$dir/hostile.so HOSTILE=early "$offwind" $command >"$dir/out" 2>"$dir/err" & pid=$!
	until_or_dead $$ has_ended $pid || kill -KILL $pid
	wait $pid || fail "$command: SIGINT as it begins: exit $?: $(cat "$dir/err")"
done
# Without the sandbox everything is in one process, and the result is the same.
OFFWIND_SANDBOX=off "$offwind" unwind -q --no-cache "$dir/x.owc" -f text >"$dir/one" &&
	"$offwind" unwind -q --no-cache "$dir/x.owc" -f text >"$dir/two" && cmp "$dir/one" "$dir/two" || fail "the results differ"

# The opener that was stopped in the meantime is replaced, and its worker goes on.
until_or_dead $stuck grep -q "the process that opens files waits for files that do not answer, and is replaced (1 of 3 times)" "$dir/stuck.log" ||
	fail "an opener that hangs: $(cat "$dir/stuck.log")"
cp "$dir/prog" "$dir/prog4"
"$dir/prog4"
[ "$(workers_of $stuck)" = "$stuck_worker" ] || fail "the worker of an opener that hangs did not go on"
[ "$(opener_of $stuck | wc -w)" = 1 ] || fail "openers: $(opener_of $stuck)"
interrupt $stuck || fail "an opener that hangs: exit $?: $(cat "$dir/stuck.log")"
"$offwind" report -f folded "$dir/stuck.pb.gz" | grep -q '^prog4.*;hot ' || fail "the next opener opens nothing: $(cat "$dir/stuck.log")"
# The worker that was stopped in the meantime is replaced, and the recording ends as it should.
until_or_dead $hung grep -q "the worker has not gone on for 30 s, and is ended" "$dir/hung.log" || fail "a worker that hangs: $(cat "$dir/hung.log")"
interrupt $hung || fail "a worker that hangs: exit $?: $(cat "$dir/hung.log")"
balance "$dir/hung.json" || fail "a worker that hangs: the statistics"
exit $((failures > 0))
