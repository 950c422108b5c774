#!/usr/bin/env bash
# What a store saves, and what its own reading costs: time until the first stack is out in a first
# and in a second run, loading tables, questions.  RECORDINGS: how many of each kind (3).
set -u
offwind=$BUILD/offwind
make -s BUILD="$BUILD" "$BUILD"/tests/bench/table_bench || exit 1
dir=$(mktemp -d -p /dev/shm 2>/dev/null || mktemp -d)
trap 'rm -rf "$dir"' EXIT
. tests/workload.sh

# record FILE WORKLOAD…: programs that run already, so that the first stack is one of theirs
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
"""first.py OFFWIND KIND DB RECORDING: ms until stacks are out, of a first run and a second.

One row a recording: until the first stack, wall and CPU time; and, of a recording of several
programs, until each of them has one, on a terminal, where stacks come line by line."""
import os, pty, re, statistics, subprocess, sys, time

offwind, kind, db, data = sys.argv[1:5]
programs = {'clang': r'libclang|libLLVM', 'python3': r'python', 'node': r'\bnode\b'}
wanted = list(programs) if kind == 'all' else []


def once():
    pipe = subprocess.Popen
    start = time.perf_counter()
    p = pipe([offwind, 'unwind', '-v', '--format', 'tsv', '--db', db, data], stdout=subprocess.PIPE,
             stderr=subprocess.PIPE, bufsize=0)
    seen = b''
    while seen.count(b'\n') < 2:
        more = os.read(p.stdout.fileno(), 65536)
        if not more:
            break
        seen += more
    wall = (time.perf_counter() - start) * 1e3
    _, err = p.communicate()
    err = err.decode()
    cpu = int(re.search(r'(\d+) us of cpu', err).group(1)) / 1e3
    parsed = int(re.search(r'parsed (\d+) times', err).group(1))
    return wall, cpu, parsed


def each():
    main, other = pty.openpty()
    start = time.perf_counter()
    p = subprocess.Popen([offwind, 'unwind', '-q', '--format', 'tsv', '--db', db, data], stdout=other,
                         stdin=subprocess.DEVNULL)
    os.close(other)
    left, text, at = dict(programs), '', 0
    while left:
        try:
            more = os.read(main, 65536)
        except OSError:
            break
        if not more:
            break
        text += more.decode(errors='replace')
        for line in text.split('\n')[:-1]:
            for name in [n for n in left if re.search(left[n], line.split('\t')[2] if line.count('\t') > 2 else '')]:
                del left[name]
        text = text.split('\n')[-1]
    took = (time.perf_counter() - start) * 1e3
    try:
        while os.read(main, 65536):
            pass
    except OSError:
        pass
    p.wait()
    os.close(main)
    return took if not left else float('nan')


def forget():
    for end in ('', '-wal', '-shm'):
        if os.path.exists(db + end):
            os.unlink(db + end)


firsts, seconds = [], []
for i in range(5):
    forget()
    firsts.append(once())
    seconds.append(once())
a = [statistics.median(x[k] for x in firsts) for k in range(3)]
b = [statistics.median(x[k] for x in seconds) for k in range(3)]
print(f'{kind:8} first stack: {a[0]:6.1f} → {b[0]:5.1f} ms, {a[0] / b[0]:4.1f}×   '
      f'CPU {a[1]:6.1f} → {b[1]:5.1f} ms, {a[1] / b[1]:4.1f}×   CFI parsed {a[2]:.0f} → {b[2]:.0f}')
if wanted:
    pairs = []
    for i in range(5):
        forget()
        one = each()
        pairs.append((one, each()))
    a, b = (statistics.median(x[k] for x in pairs) for k in range(2))
    print(f'{kind:8} a stack of each program: {a:6.1f} → {b:5.1f} ms, {a / b:4.1f}×')
PY

echo "-- until the first stack is out: a first run → a second one"
for ((i = 0; i < ${RECORDINGS:-3}; i++)); do
	for kind in clang python3 node all; do
		if [ $kind = all ]; then
			record "$dir/data" clang python3 node
		else
			record "$dir/data" $kind
		fi
		python3 "$dir/first.py" "$offwind" $kind "$dir/first.db" "$dir/data"
	done
done

echo "-- tables out of a store"
big=()
for p in "$(command -v clang++)" "$(command -v node)"; do
	big+=("$(readlink -f "$p")")
done
big+=($(ldd "${big[0]}" | awk '/libLLVM|libclang-cpp/ { print $3 }'))
"$offwind" cache --db "$dir/q.db" prefetch -q "${big[@]}"
"$BUILD/tests/bench/table_bench" -k "$dir/q.db" "${big[@]}"

echo "-- questions"
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
