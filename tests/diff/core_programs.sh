#!/usr/bin/env bash
# Unwinds real multi-threaded programs that are stopped, from the processes and from their cores by
# gcore, and compares each thread pc by pc with eu-stack and gdb.
#   usage: core_programs.sh [-v] [NAME…]      all programs by default, two at a time
set -u
for tool in gdb eu-stack; do
	command -v $tool > /dev/null || { echo "no $tool"; exit 77; }
done
top=$BUILD/core_programs
all=(python3 node perl swipl gofmt go qemu git xz zstd sort pigz pbzip2 lbzip2 plzip pixz 7zip mksquashfs
	ripgrep sysbench primesieve mbuffer minimap2 redis gdb perf lld)
verbose=()
[ "${1:-}" != -v ] || { verbose=(-v); shift; }

if [ "${CORE_PROGRAM_IN:-}" = "" ]; then
	rm -rf "$top"
	mkdir -p "$top"
	export CORE_PROGRAM_IN=$PWD/$top
	[ $# -gt 0 ] && all=("$@")
	printf '%s\n' "${all[@]}" | xargs -P 2 -I {} "$0" "${verbose[@]}" {}
	failed=$?
	n=$(find "$top" -name done | wc -l)
	echo "$n of ${#all[@]} programs agree; $(cat "$top"/*/frames | awk '{ t += $1; f += $2 } END { print t " threads, " f " frames compared" }')"
	exit $((failed != 0 || n != ${#all[@]}))
fi

name=$1
work=$CORE_PROGRAM_IN/$name
offwind=$(realpath "$BUILD")/offwind
here=$PWD
mkdir -p "$work"
# Nothing is read from, or left in, the user's own directories.
export HOME=$work XDG_CACHE_HOME=$work TMPDIR=$work DEBUGINFOD_URLS= GOMAXPROCS=3
unset GOFLAGS PYTHONPATH NODE_OPTIONS
cd "$work" || exit 1
mkfifo quiet full
exec 8<> quiet 9<> full # gives nothing and does not end; takes 64 KiB and nothing more
random() { openssl enc -aes-128-ctr -K 00 -iv 00 -in /dev/zero 2> random.err | head -c "$1"; }

input=quiet output=output
at_least=2 # threads
command=()
case $name in
python3)
	cat > a.py <<'P'
import sys, threading, time
def rec(n):
    if n:
        return rec(n - 1)
    time.sleep(1000)
for i in range(4):
    threading.Thread(target=rec, args=(i * 10,), daemon=True).start()
sys.stdin.read()
P
	at_least=5 command=("$(readlink -f "$(command -v python3)")" a.py) ;;
node)
	cat > a.js <<'J'
const { Worker, isMainThread } = require('worker_threads');
if (isMainThread) {
	new Worker(__filename);
	setInterval(() => {}, 100000);
} else {
	Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0);
}
J
	at_least=8 command=(node a.js) ;;
perl) at_least=3 command=(perl -Mthreads -e 'threads->create(sub { sleep 1000 }) for 1, 2; sleep 1000') ;;
swipl) command=(swipl -g 'thread_create(thread_get_message(_), _), thread_get_message(_)') ;;
gofmt) at_least=3 command=("$(go env GOROOT)/bin/gofmt") ;;
go) # the go command, while it waits for the compiler
	cat > a.go <<'G'
package main

func main() {}
G
	printf '#!/bin/sh\nexec sleep 1000 8<&- 9<&-\n' > wait.sh
	chmod +x wait.sh
	at_least=4 command=(env GOCACHE="$work/cache" go build -toolexec "$work/wait.sh" a.go) ;;
qemu) # an emulator whose own threads run other machines' code
	aarch64-linux-gnu-gcc -D_GNU_SOURCE -static -O1 -o threads "$here/tests/diff/threads.c" || exit 1
	at_least=8 command=(qemu-aarch64-static ./threads) ;;
git)
	git init -q . && random 3000000 | base64 -w 70 | awk '
		{ block = block $0 "\n" }
		NR % 200 == 0 {
			printf "blob\nmark :%d\ndata %d\n%s\n", ++n, length(before block), before block
			before = block
			block = ""
		}' | git fast-import --quiet || exit 1
	git cat-file --batch-all-objects --batch-check='%(objectname) a.txt' > objects
	input=objects
	command=(git pack-objects --threads=2 --window=2000 --depth=50 --no-reuse-delta -q --stdout) ;;
xz) input=/dev/urandom output=full at_least=3 command=(xz -T3 --block-size=256KiB -c) ;;
zstd) input=/dev/urandom output=full at_least=3 command=(zstd -T3 -q -c) ;;
sort)
	seq 3000000 | rev > numbers
	command=(sort --parallel=2 -r numbers) output=full ;;
pigz) input=/dev/urandom output=full at_least=3 command=(pigz -p 3) ;;
pbzip2) input=/dev/urandom output=full at_least=3 command=(pbzip2 -p2 -c) ;;
lbzip2) input=/dev/urandom output=full at_least=3 command=(lbzip2 -n 2 -c) ;;
plzip) input=/dev/urandom output=full at_least=3 command=(plzip -n 2 -0 -c) ;;
pixz) input=/dev/urandom output=full at_least=3 command=(pixz -0 -p 2) ;;
7zip) input=/dev/urandom output=full at_least=3 command=(7zz a -bd -mmt2 -si -so -txz a.xz) ;;
mksquashfs)
	mkdir folder
	random 10000000 > folder/text
	at_least=5 command=(mksquashfs folder image -quiet -no-progress -processors 2 -comp xz) ;;
ripgrep) at_least=3 command=(rg -j 3 text quiet quiet quiet quiet) ;;
sysbench) at_least=3 command=(sysbench cpu --threads=2 --time=1000 run) ;;
primesieve) at_least=2 command=(primesieve -q -t 2 1e15) ;;
mbuffer) input=/dev/urandom output=full at_least=3 command=(mbuffer -q -m 1M) ;;
minimap2)
	random 3000000 | od -An -v -tx1 | tr -d ' \n' | tr 0-9a-f ACGTACGTACGTACGT | fold -w 80 | sed '1i >a' > a.fa
	at_least=3 command=(minimap2 -t 2 a.fa -) ;;
redis) # one binary of many names
	at_least=4 command=(bash -c 'exec -a redis-server redis-check-rdb "$@"' - --port 0 --save '' --unixsocket "$work/socket" --dir "$work") ;;
gdb) at_least=2 command=(gdb -nx -q) ;;
perf) at_least=4 command=(perf bench futex hash -t 3 -r 1000) ;;
lld)
	printf 'int main(void) { return 0; }\n' > a.c
	cc -g -static-libgcc -c -o a.o a.c || exit 1
	mkfifo image
	at_least=3 command=(ld.lld --threads=3 --whole-archive "$(cc -print-file-name=libc.a)" a.o -r -o image) ;;
*)
	echo "no program $name"
	exit 1 ;;
esac
command -v "${command[0]}" > /dev/null || { echo "$name: no ${command[0]}"; exit 1; }

pid=
stop() {
	{ pkill -9 -P "$pid"; kill -9 "$pid"; wait "$pid"; } 2> kill.err
}
trap 'stop; rm -rf core folder image numbers .git cache' EXIT

states() { # one letter per thread, and the time each has run
	local s
	for s in /proc/"$pid"/task/*/stat; do
		{ read -r s < "$s"; } 2> states.err || continue
		s=${s##*) }
		set -- $s
		echo "$1 ${12} ${13}"
	done
}

# Wait until it has its threads and they sleep, or have worked for a while; then stop all of them.
caught=
for try in 1 2 3; do
	"${command[@]}" < "$input" > "$output" 2> stderr 8<&- 9>&- &
	pid=$!
	before= resting=0
	for ((i = 0; i < 1200 && resting < 30; i++)); do
		kill -0 "$pid" 2> kill.err || break
		now=$(states)
		if [ "$(wc -l <<< "$now")" -ge $at_least ]; then
			resting=$((resting + 1))
			[ "$now" != "$before" ] || [[ $now =~ [RD] ]] || resting=$((resting + 15))
		fi
		before=$now
		sleep 0.02
	done
	kill -STOP "$pid" 2> kill.err || continue
	for ((i = 0; i < 500; i++)); do
		now=$(states)
		[[ $now =~ (^|$'\n')[^TZ] ]] || break
		sleep 0.02
	done
	[ "$(grep -c T <<< "$now")" -ge $at_least ] && caught=1 && break
	stop
done
[ $caught ] || { echo "$name: never had $at_least threads"; head -n 5 stderr output; exit 1; }

failed=0
eu-stack -n 0 -p "$pid" > eu.live 2> eu.live.err
"$offwind" unwind -q --format text --no-inline --pid "$pid" > ours.live 2> ours.err || { failed=1; cat ours.err; }
CORE_GDB_OUT=$work/gdb.live gdb -nx -batch -p "$pid" -x "$here/tests/diff/core_gdb.py" -ex 'gcore core' > gcore.log 2>&1
[ -s core ] || { echo "$name: no core"; tail -n 5 gcore.log; exit 1; }
CORE_GDB_OUT=$work/gdb.core gdb -nx -batch -ex "core-file core" -x "$here/tests/diff/core_gdb.py" "/proc/$pid/exe" > gdb.log 2>&1
eu-stack -n 0 --core core -e "/proc/$pid/exe" > eu.core 2> eu.core.err
"$offwind" unwind -q --format text --no-inline core > ours.core 2> ours.err || { failed=1; cat ours.err; }
python3 "$here/tests/diff/core_agree.py" "$name" "$pid" "$work" "${verbose[@]}" || failed=1
[ $failed = 0 ] && : > done
exit $failed
