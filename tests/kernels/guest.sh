#!/usr/bin/env bash
# Runs on a machine that tests/kernels.sh boots, as its first program after init.
set -u
export PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root BUILD=build OFFWIND_DB= LC_ALL=C.UTF-8
# It is emulated, and has no compiler.
export SLOW=5 HZ=999 ROUNDS=6 PREBUILT=/offwind/prebuilt
cd /offwind || exit 1
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t tmpfs tmpfs /run
mount -t tracefs tracefs /sys/kernel/tracing 2>/dev/null
mount -t cgroup2 cgroup2 /sys/fs/cgroup 2>/dev/null
mkdir -p /dev/pts /dev/shm
mount -t tmpfs tmpfs /dev/shm
ln -sf /proc/self/fd /dev/fd
hostname kernels
passed=0 failed=0
say() { printf '%s\n' "$*"; }
say "== $(uname -r)"
build/offwind doctor 2>&1 | tee /tmp/doctor
say "doctor: exit code ${PIPESTATUS[0]}"

run() { # name command…
	local name=$1 log=/tmp/log rc begin=$SECONDS
	shift
	$([ "$(type -t "$1")" = function ] || echo timeout 900) "$@" >"$log" 2>&1 </dev/null
	rc=$?
	if [ $rc = 0 ]; then
		passed=$((passed + 1))
		say "pass $name ($((SECONDS - begin)) s)"
	else
		failed=$((failed + 1))
		say "FAIL $name (exit $rc, $((SECONDS - begin)) s)"
		tail -n 60 "$log"
	fi
	say "== end"
}

tests=$(cat kernels-tests)
for t in ${tests:-kernels/capabilities kernels/check kernels/slices live/stacks live/short}; do
	run "$t" bash "tests/$t.sh"
done
# If the kernel supports both forms of the programs, run the other one, too.
if grep -q '^capture program .* as full programs' /tmp/doctor; then
	export OFFWIND_WITHOUT=find_vma,task_storage,uprobe_multi
	run "kernels/check, with the fallback programs" bash tests/kernels/check.sh
fi
# No loaded program may have caused a warning of the kernel.
complaints() { ! dmesg | grep -A 3 -E '(WARNING|BUG): .*(bpf|perf|probe|fanotify|trace)'; }
run "no complaint of the kernel's" complaints
say "== done: $passed passed, $failed failed"
sync
echo o >/proc/sysrq-trigger
sleep 30
