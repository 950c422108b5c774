#!/usr/bin/env bash
# What frames of interpreted code cost: programs 50 calls deep compute; recordings with and without slices take turns.
# The programs without slices are run by copies of the interpreters under other names, which get no plan.
# Python's calls are of one function, of as many functions, or of as many each on a page of its own: of each function a
# sample has words once, and pages are read once.
# It never fails because something is slow: figures from a busy machine are poor, but for those of one pair.
#
#   DEPTH      calls (default 50)
#   TURNS      of each pair (default 4)
#   LENGTH     of each recording in seconds (default 3)
#   FREQUENCY  997 for the handler; the CPU time of the profilers is measured at 99
#   PROGRAMS   which programs (default: one many spread php ruby perl)
#   PROFILERS  0: leave the profilers out
#
#   handler    us in the kernel for each captured sample, with kernel.bpf_stats_enabled; what runs that are filtered
#              cost, about 0.2 us each, is taken off
#   bytes      in the ring for each sample, without the stack
#   profilers  CPU time of offwind, and of py-spy if that is installed, while two processes of Python compute: what 20
#              seconds of recording take more than 5, so without their start. Fewer than 198 samples a second say that the
#              machine has other work, too.
set -eu
[ "$(id -u)" = 0 ] || { echo "needs root"; exit 77; }
work=$(mktemp -d "${TMPDIR:-/tmp}/offwind-bench.XXXXXX")
stats=$(cat /proc/sys/kernel/bpf_stats_enabled)
trap 'echo $stats >/proc/sys/kernel/bpf_stats_enabled; kill $(jobs -p) 2>/dev/null; rm -rf "$work"' EXIT
offwind=$(realpath "$BUILD/offwind")
depth=${DEPTH:-50}
cat >"$work/deep.py" <<'PY'
import os, sys, time
def deep(n, end):
    if n:
        return deep(n - 1, end)
    return work(end)
def work(end):
    x = 0
    while time.perf_counter() < end and os.getppid() == parent:
        for i in range(1000):
            x += i
    return x
n = int(sys.argv[1]) - 3
if sys.argv[3] != 'one':
    for i in range(n):
        exec(f'def f{i}(n, end):\n    return f{i + 1}(n - 1, end)\n')
        for j in range(20 if sys.argv[3] == 'spread' else 0):
            exec(f'def g{i}_{j}(n, end):\n    return f{i + 1}(n - 1, end)\n')
    exec(f'def f{n}(n, end):\n    return work(end)\n')
    deep = f0
here = os.getpid()
parent = os.getppid() if os.fork() else here
deep(n, time.perf_counter() + float(sys.argv[2]))
PY
cat >"$work/deep.php" <<'PHP'
<?php
$n = (int)$argv[1] - 2;
$text = '';
for ($i = 0; $i < $n; $i++)
    $text .= "function f$i(\$n, \$end) { return f" . ($i + 1) . "(\$n - 1, \$end) + 0; }\n";
$text .= "function f$n(\$n, \$end) { \$x = 0; while (microtime(true) < \$end) for (\$i = 0; \$i < 1000; \$i++) \$x += \$i; return \$x; }\n";
eval($text);
f0($n, microtime(true) + (float)$argv[2]);
PHP
cat >"$work/deep.rb" <<'RUBY'
n = ARGV[0].to_i - 2
now = 'Process.clock_gettime(Process::CLOCK_MONOTONIC)'
text = (0...n).map { |i| "def f#{i}(n, last)\n  f#{i + 1}(n - 1, last)\nend\n" }.join
text << "def f#{n}(n, last)\n  x = 0\n  while #{now} < last\n    i = 0\n    x += i += 1 while i < 1000\n  end\n  x\nend\n"
eval(text)
f0(n, eval(now) + ARGV[1].to_f)
RUBY
cat >"$work/deep.pl" <<'PERL'
use Time::HiRes qw(time);
my $n = $ARGV[0] - 2;
my $text = join '', map { "sub f$_ { my (\$n, \$end) = \@_; return f" . ($_ + 1) . "(\$n - 1, \$end) + 0; }\n" } 0 .. $n - 1;
$text .= "sub f$n { my (\$n, \$end) = \@_; my \$x = 0; while (time() < \$end) { \$x += \$_ for 0 .. 999 } return \$x; }\n";
eval $text;
die $@ if $@;
f0($n, time() + $ARGV[1]);
PERL
# Copies of the interpreters whose files have names that no runtime is known by.
mkdir "$work/plain"
for i in python3 php ruby perl; do
	[ ! -e /usr/bin/$i ] || cp "$(realpath /usr/bin/$i)" "$work/plain/plain-$i"
done
libruby=$(ldd /usr/bin/ruby 2>/dev/null | awk '/libruby/ { print $3 }') || true
if [ -n "$libruby" ]; then
	cp "$(realpath "$libruby")" "$work/plain/plain.so"
	ln -s plain.so "$work/plain/$(basename "$libruby")"
fi
# Print the command of a program, which computes for $2 seconds; $3: plain, or slices.
command_of() {
	local before=/usr/bin/
	[ "$3" = slices ] || before="env LD_LIBRARY_PATH=$work/plain $work/plain/plain-"
	case $1 in
	one | many | spread) echo "${before}python3" "$work/deep.py" "$depth" "$2" "$1" ;;
	php) echo "${before}php" "$work/deep.php" "$depth" "$2" ;;
	ruby) echo "${before}ruby" "$work/deep.rb" "$depth" "$2" ;;
	perl) echo "${before}perl" "$work/deep.pl" "$depth" "$2" ;;
	esac
}
echo 1 >/proc/sys/kernel/bpf_stats_enabled
for _ in $(seq "${TURNS:-4}"); do
	for program in ${PROGRAMS:-one many spread php ruby perl}; do
		command=$(command_of "$program" 0 slices)
		command -v "${command%% *}" >/dev/null || continue
		for how in plain slices; do
			# shellcheck disable=SC2046 # the command's words
			"$offwind" record -q -F "${FREQUENCY:-997}" --stats "$work/stats" -o "$work/a.pb.gz" -- \
				$(command_of "$program" "${LENGTH:-3}" $how)
			/usr/bin/python3 - "$work/stats" "$program" $how <<'PY'
import json, sys
d = json.load(open(sys.argv[1]))
total, program = d['total'], d['program']
n, filtered = total['captured']['samples'], sum(total['filtered'].values())
print(sys.argv[2], sys.argv[3], (program['ns'] - filtered * 200) / n / 1000,
      (total['captured']['bytes'] - total['captured']['stack_bytes']) / n, n)
PY
		done
	done
done >"$work/handler"
echo "$stats" >/proc/sys/kernel/bpf_stats_enabled
/usr/bin/python3 - "$work/handler" <<'PY'
import statistics, sys
names = {'one': 'Python, one function', 'many': 'Python, many functions',
         'spread': 'Python, on many pages', 'php': 'PHP', 'ruby': 'Ruby', 'perl': 'Perl'}
rows = [line.split() for line in open(sys.argv[1])]
print('%-24s %10s %10s %10s %12s %9s' % ('us and bytes a sample', 'without', 'with', 'more', 'bytes more', 'samples'))
for program in dict.fromkeys(row[0] for row in rows):
    mine = [[float(word) for word in row[2:]] for row in rows if row[0] == program]
    pairs = list(zip(mine[::2], mine[1::2]))
    more = sorted(b[0] - a[0] for a, b in pairs)
    print('%-24s %10.2f %10.2f %10.2f %12.0f %9d   %s' % (names[program], statistics.median(a[0] for a, b in pairs),
          statistics.median(b[0] for a, b in pairs), statistics.median(more), statistics.median(b[1] - a[1] for a, b in pairs),
          sum(b[2] for a, b in pairs), ' '.join('%.2f' % x for x in more)))
PY
[ "${PROFILERS:-1}" = 1 ] || exit 0
# Start a program that is not record's own, whose CPU time would be counted with that of record.
begin() {
	local words
	read -ra words < <(command_of many 600 "$1")
	"${words[@]}" &
	program=$!
	sleep 1
}
# Print the CPU time and the samples of a profiler, $1, that is told so by the other words.
profile() {
	local name=$1 seconds samples
	shift
	for seconds in 5 20; do
		/usr/bin/time -f '%U %S' -o "$work/time" "${@//DURATION/$seconds}" >"$work/log" 2>&1 || { tail -n 5 "$work/log" >&2; return 1; }
		if [[ $name == offwind* ]]; then
			samples=$(/usr/bin/python3 -c 'import json, sys; print(json.load(open(sys.argv[1]))["total"]["captured"]["samples"])' "$work/stats")
		else # raw: a line for each stack, with its count at the end
			samples=$(awk '{ n += $NF } END { print n + 0 }' "$work/raw")
		fi
		echo "$(tail -n 1 "$work/time") $samples"
	done >"$work/used"
	/usr/bin/awk -v name="$name" '{ used[NR] = $1 + $2; n[NR] = $3 }
		END { printf "%-16s %5.2f %% of a CPU, %.0f samples a second\n", name, (used[2] - used[1]) / 15 * 100, (n[2] - n[1]) / 15 }' "$work/used"
}
for how in plain slices; do
	begin $how
	profile offwind,$how "$offwind" record -q -F 99 --stats "$work/stats" -o "$work/a.pb.gz" -p "$program" -d DURATION
	[ $how = slices ] || { kill "$program"; wait "$program" 2>/dev/null || true; }
done
if command -v py-spy >/dev/null; then
	spy=(py-spy record --rate 99 --duration DURATION --subprocesses --format raw --output "$work/raw" --pid "$program")
	profile py-spy "${spy[@]}"
	profile "py-spy --native" "${spy[@]}" --native
else
	echo "py-spy           is not installed (Debian has no package of it)"
fi
