#!/usr/bin/env bash
# Fuzzes what the daemon answers (tests/fuzz/fuzz_http.c), from a request for each path and argument of its description.
set -eu
trap 'echo "line $LINENO fails: $BASH_COMMAND"' ERR
work=$BUILD/fuzz/http.seeds
rm -rf "$work"
mkdir -p "$work/fuzz_http"
python3 - "$work/fuzz_http" <<'PY'
import sys

stacks = ['', 'from=-1m', 'from=-1d&to=now', 'type=samples', 'focus=f7&ignore=f1', 'module=made', 'comm=prog', 'pid=4,5&tid=5&stop=root', 'x', 'from=x']
bases = ['base_from=-1d&base_to=-1h', 'base.comm=prog', 'base.=x', 'base_to=x']
points = ['', 'from=-1m', 'from=-1d', 'type=cpu', 'focus=f7', 'comm=a%3Cb%3E%26%22%5C', 'pid=4', 'focus=(']
asked = {
    '/': [''], '/metrics': ['', 'x=y'], '/healthz': [''], '/readyz': [''], '/nothing': [''], '/api/v1/openapi.yaml': [''],
    '/debug/pprof/profile': ['seconds=3', 'seconds=x'] + stacks,
    '/api/v1/profile': stacks + ['from=-1d&format=' + f for f in 'pprof folded text tsv jsonl speedscope firefox parquet x'.split()] + ['times&from=-1d'],
    '/api/v1/flamegraph': stacks + bases + ['by=comm', 'by=', 'title=%3C/script%3E'],
    '/api/v1/top': stacks + bases + [f'from=-1d&by={b}' for b in 'symbol module source pid comm thread container stop'.split()] + ['sort=change', 'sort=total', 'n=0', 'n=1'],
    '/api/v1/labels': ['key=' + k + '&' + a for k in ('comm', 'pid', 'stop', '') for a in points] + ['key=tid&n=1'],
    '/api/v1/timeline': points + ['step=1000&by=comm', 'by=pid&n=0', 'by=tid&n=1&from=-1d', 'step=1&from=-1d'],
    '/api/v1/heatmap': points + ['rows=7', 'step=100', 'rows=1000&from=-1d'],
    '/api/v1/samples': stacks + ['n=1', 'n=0'],
    '/api/v1/explain': ['time_ns=1699999998000000000', 'time_ns=1', '', 'time_ns=9223372036854775807'],
    '/api/v1/counters': ['', 'from=-1d', 'to=x'],
    '/api/v1/unwind/abcd': ['', 'n=3'], '/api/v1/unwind/abcd/10': [''], '/api/v1/unwind/': [''], "/api/v1/unwind/ab'/x": [''],
}
seeds = [f'GET {path}?{a}' for path, all in asked.items() for a in all] + ['DELETE /', 'POST /api/v1/top', '', 'GET', 'GET ?']
queries = ['SELECT 1', 'SELECT * FROM history.windows', 'SELECT * FROM history.labels; SELECT * FROM objects', "SELECT 'a\"\\<' AS \"b\"\"c\", x'00ff', 1e999, NULL",
           "SELECT * FROM unwind_rows('abcd')", "ATTACH '/x' AS y", 'PRAGMA table_info(objects)', 'PRAGMA journal_mode', "SELECT load_extension('x')", 'DELETE FROM history.windows',
           "SELECT hex(zeroblob(9))", 'SELECT', ';', '']
seeds += [f'POST /api/v1/query?{f}\n{q}' for q in queries for f in ('', 'format=csv', 'format=x')]
for i, seed in enumerate(seeds):
    open(f'{sys.argv[1]}/{i}', 'w', encoding='utf8').write(seed)
PY
FUZZ_RSS_MB=1024 tests/fuzz/run http 4000 1024 "$work/fuzz_http"
