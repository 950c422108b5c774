#!/usr/bin/env bash
# Measures what a store saves and what reading it costs, each beside its target: the time until the
# first stack is printed in a first and in a second run, loading tables, queries. RECORDINGS: how
# many of each kind (3).
set -u
offwind=$BUILD/offwind
make -s BUILD="$BUILD" "$BUILD"/tests/bench/table_bench || exit 1
dir=$(mktemp -d -p /dev/shm 2>/dev/null || mktemp -d)
trap 'rm -rf "$dir"' EXIT
. tests/workload.sh

# record FILE WORKLOAD…: the programs run already, so that the first stack is one of theirs
record() {
	local out=$1 pids=() w
	shift
	for w in "$@"; do
		workload "$w"
		"${argv[@]}" >/dev/null 2>&1 &
		pids+=($!)
	done
	sleep 0.7
	perf record -q --buildid-mmap -o "$out" -F 199 --call-graph dwarf,32768 -e cpu-clock:u \
		-p "$(IFS=,; echo "${pids[*]}")" -- sleep 1 >"$dir/log" 2>&1
	kill "${pids[@]}" 2>/dev/null
	wait "${pids[@]}" 2>/dev/null
}

cat >"$dir/first.py" <<'PY'
"""first.py OFFWIND KIND DB RECORDING [OPTION…]: until stacks are out, of first runs and of second ones.

One row: CPU and wall time until all of the first sample's rows were read from a pipe, CPU also
without what a program that does nothing takes.  Of a recording of several programs also until each
of them has a stack, on a terminal, where they come line by line.  Medians of five pairs of runs."""
import os, pty, re, statistics, subprocess, sys, time

offwind, kind, db, data = sys.argv[1:5]
options = sys.argv[5:]
programs = {'clang': r'libclang|libLLVM', 'python3': r'python', 'node': r'\bnode\b'}
command = [offwind, 'unwind', '--format', 'tsv', '--db', db, *options]


def forget():
    for end in ('', '-wal', '-shm'):
        if os.path.exists(db + end):
            os.unlink(db + end)


def nothing():
    """ms of CPU until a program that does nothing has ended."""
    pid = os.posix_spawn('/bin/true', ['true'], os.environ)
    used = os.wait4(pid, 0)[2]
    return (used.ru_utime + used.ru_stime) * 1e3


def once(size):
    start = time.perf_counter()
    p = subprocess.Popen([*command, '-v', data], stdout=subprocess.PIPE, stderr=subprocess.PIPE, bufsize=0)
    seen = 0
    while seen < size:
        more = os.read(p.stdout.fileno(), 65536)
        if not more:
            break
        seen += len(more)
    wall = (time.perf_counter() - start) * 1e3
    err = p.communicate()[1].decode()
    cpu = int(re.search(r'(\d+) us of cpu', err).group(1)) / 1e3
    parsed = int(re.search(r'parsed (\d+) times', err).group(1))
    return cpu, wall, parsed


def each():
    """ms until each program has a stack."""
    main, other = pty.openpty()
    start = time.perf_counter()
    p = subprocess.Popen([*command, '-q', data], stdout=other, stdin=subprocess.DEVNULL)
    os.close(other)
    found, text = {}, ''
    while len(found) < len(programs):
        try:
            more = os.read(main, 65536)
        except OSError:
            break
        if not more:
            break
        text += more.decode(errors='replace')
        *lines, text = text.split('\n')
        for line in lines:
            module = line.split('\t')[2] if line.count('\t') > 2 else ''
            for name in programs:
                if name not in found and re.search(programs[name], module):
                    found[name] = (time.perf_counter() - start) * 1e3
    try:
        while os.read(main, 65536):
            pass
    except OSError:
        pass
    p.wait()
    os.close(main)
    return [found.get(name, float('nan')) for name in programs]


def median(rows):
    return [statistics.median(column) for column in zip(*rows)]


forget()
text = subprocess.run([*command, '-q', data], stdout=subprocess.PIPE, check=True).stdout
rows = text.split(b'\n')
first = [r for r in rows[1:] if r.startswith(b'1\t')]
size = sum(len(r) + 1 for r in [rows[0], *first])
modules = ' '.join(sorted({r.split(b'\t')[2].decode(errors='replace') for r in first}))
firsts, seconds = [], []
for i in range(5):
    forget()
    firsts.append(once(size))
    seconds.append(once(size))
base = statistics.median(nothing() for i in range(15))
a, b = median(firsts), median(seconds)
label = ' '.join([kind, *options])
print(f'{label:18} CPU {a[0]:6.1f} → {b[0]:4.1f} ms, {a[0] / b[0]:5.1f}×   less {base:.1f} of starting a program '
      f'{(a[0] - base) / (b[0] - base):5.1f}×   wall {a[1]:6.1f} → {b[1]:5.1f} ms, {a[1] / b[1]:5.1f}×   '
      f'CFI parsed {a[2]:.0f} → {b[2]:.0f}   ({modules})')
if kind == 'all':
    pairs = []
    for i in range(5):
        forget()
        pairs.append((each(), each()))
    one, two = (median(p[k] for p in pairs) for k in range(2))
    text = '   '.join(f'{name} {x:6.1f} → {y:5.1f} ms, {x / y:5.1f}×' for name, x, y in zip(programs, one, two))
    print(f'{"":18} until each has one: {text}   all three: {max(one) / max(two):5.1f}×')
PY

echo "-- until the first stack is out: a first run → a second one   (wanted: ≥ 10×, and no CFI parsed)"
for ((i = 0; i < ${RECORDINGS:-3}; i++)); do
	for kind in clang python3 node all; do
		if [ $kind = all ]; then
			record "$dir/data" clang python3 node
		else
			record "$dir/data" $kind
		fi
		python3 "$dir/first.py" "$offwind" $kind "$dir/first.db" "$dir/data"
		[ $kind != all ] || python3 "$dir/first.py" "$offwind" $kind "$dir/first.db" "$dir/data" --no-lines
	done
done

echo "-- tables out of a store   (wanted: ≤ 0.5 ms/MB)"
big=()
for p in "$(command -v clang++)" "$(command -v node)"; do
	big+=("$(readlink -f "$p")")
done
big+=($(ldd "${big[0]}" | awk '/libLLVM|libclang-cpp/ { print $3 }'))
"$offwind" cache --db "$dir/q.db" prefetch -q "${big[@]}"
"$BUILD/tests/bench/table_bench" -k "$dir/q.db" "${big[@]}"

echo "-- questions   (wanted: ≥ 1 M rows a second; one pc: its blocks)"
python3 - "$offwind" "$dir/q.db" <<'PY'
import os, resource, statistics, subprocess, sys, time

offwind, db = sys.argv[1:]


def ask(sql):
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    start = time.perf_counter()
    out = subprocess.run([offwind, 'cache', '--db', db, 'query', '--format', 'csv', sql],
                         stdout=subprocess.PIPE, check=True).stdout
    wall = time.perf_counter() - start
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return out, wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


every = 'FROM objects, unwind_rows(objects.id)'
for columns in ('start, "end", cfa_kind, cfa_reg, cfa_offset, fp, ra, registers, signal, slow, expression',
                'unwind_rows.*', 'start, words'):
    runs = [ask(f'SELECT {columns} {every}') for _ in range(5)]
    rows = runs[0][0].count(b'\n') - 1
    wall, cpu = (statistics.median(r[k] for r in runs) for k in (1, 2))
    print(f'{rows} rows: {rows / wall / 1e6:.2f} M rows/s, {rows / cpu / 1e6:.2f} M a second of CPU: SELECT {columns}')
out, wall, cpu = ask("SELECT bytes_read, (SELECT max(size) FROM tables) FROM unwind_rows('libLLVM-14', 0x1234567)")
print('one pc: %s of %s bytes read, %.1f ms' % (*out.decode().split()[-1].split(','), wall * 1e3))
PY
