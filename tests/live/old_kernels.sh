#!/usr/bin/env bash
# Tests the replacements for what older kernels lack, on this kernel: the BPF programs without
# bpf_find_vma, task storage, bpf_task_pt_regs and cookies, mappings without build-ids, no
# PROCMAP_QUERY, names of kernel addresses from kallsyms. The stacks are the same.
set -u
. "$(dirname "$0")/../recorder.sh"

for one in find_vma loop task_storage task_pt_regs attach_cookie; do
	OFFWIND_WITHOUT=$one "$offwind" doctor 2>&1 | grep -q '^capture program *ok *loads into the kernel, as fallback programs' || fail "without $one doctor does not tell which programs"
done
"$offwind" doctor | grep -q '^capture program *ok *loads into the kernel, as full programs' || fail "doctor does not tell which programs this kernel gets"
OFFWIND_WITHOUT=ringbuf "$offwind" record -d 1 -o "$dir/e.pb.gz" 2>"$dir/log"
[ $? = 1 ] && grep -q 'needs Linux 5.10' "$dir/log" && [ "$(wc -l <"$dir/log")" = 1 ] || fail "too old a kernel: $(cat "$dir/log")"
export OFFWIND_WITHOUT=find_vma,task_storage,mmap_build_id,procmap_query,uprobe_multi,snprintf,reduced_btf
"$offwind" doctor >"$dir/doctor" 2>&1
[ $? = 0 ] && grep -q '^mappings *ok .*build-ids are read from the files' "$dir/doctor" && grep -q '^running programs .*no PROCMAP_QUERY' "$dir/doctor" || fail "$(cat "$dir/doctor")"

echo "== stacks of every kind"
bash tests/live/stacks.sh || fail "stacks"

echo "== short-lived programs, without build-ids from the kernel"
ROUNDS=3 bash tests/live/short.sh || fail "short-lived programs"

echo "== stacks of wakers"
"$offwind" record --no-cache -F 99 --comm wk_pipe --off-cpu --wakers --sample-type off_cpu_samples -f folded -o "$dir/folded" -- "$BUILD/tests/live/waits" wake 2>"$dir/log" || fail "$(cat "$dir/log")"
n=$(awk '/a_pipe_gives;.*;\[woken by\] wk_a;.*b_pipe_takes;/ { n += $NF } END { print n + 0 }' "$dir/folded")
[ "$n" -ge 32 ] || fail "stacks of wakers: $n of 40: $(cat "$dir/folded")"

echo "== events"
"$offwind" record -o "$dir/e.pb.gz" -e sched:sched_process_exec -- sh -c 'for i in 1 2 3 4; do /bin/true; done' 2>"$dir/log" || fail "$(cat "$dir/log")"
grep -q 'captured 5 = unwound 5 ' "$dir/log" || fail "not five execs: $(cat "$dir/log")"
gcc -O1 -fno-builtin -pthread -o "$dir/alloc" tests/live/alloc.c || fail gcc
"$offwind" record -o "$dir/e.pb.gz" --uprobe "$dir/alloc:churn" -- "$dir/alloc" 2>"$dir/log" || fail "$(cat "$dir/log")"
grep -q 'captured 1 = unwound 1 (root 1) ' "$dir/log" || fail "not one call: $(cat "$dir/log")"
"$offwind" record -o "$dir/e.pb.gz" --off-cpu=20ms -- sh -c 'sleep 0.05; sleep 0.05' 2>"$dir/log" || fail "$(cat "$dir/log")"
n=$(go tool pprof -top -sample_index=off_cpu_samples -focus=clock_nanosleep "$dir/e.pb.gz" 2>/dev/null | sed -nE 's/^Showing nodes accounting for ([0-9]+),.*/\1/p')
[ "${n:-0}" = 2 ] || fail "${n:-no} sleeps, not two"
"$offwind" record -o "$dir/e.pb.gz" --alloc=1 -m 64M -- "$dir/alloc" 2>"$dir/log" || fail "$(cat "$dir/log")"
"$offwind" report -n 30 --type inuse_space "$dir/e.pb.gz" | grep -q ' 2.86 MiB .* zeroed$' || fail "allocations: $("$offwind" report -n 30 --type inuse_space "$dir/e.pb.gz")"
# Without cookies, each probe has a program of its own. Two forks of the shell, a fork and a thread of the other
# program.
"$offwind" record -o "$dir/e.pb.gz" -e sched:sched_process_exec,sched:sched_process_fork -e page-faults,cpu-clock \
	--uprobe "$dir/alloc:churn" --uprobe "$dir/alloc:leak" -- sh -c "/bin/true; $dir/alloc 10; exec /bin/true" 2>"$dir/log" || fail "$(cat "$dir/log")"
for one in sched:sched_process_exec=4 sched:sched_process_fork=4 churn=1 leak=1; do
	n=$(go tool pprof -top -nodefraction=0 -sample_index=${one%=*} "$dir/e.pb.gz" 2>/dev/null | sed -nE 's/^Showing nodes accounting for ([0-9]+),.*/\1/p')
	[ "${n:-0}" = ${one#*=} ] || fail "${one%=*}: ${n:-none}, not ${one#*=}"
done

[ $failures = 0 ] || { echo "$failures failures"; exit 1; }
