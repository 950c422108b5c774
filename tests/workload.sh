# Provides real programs by other authors, each busy for a second or two, for tests that source this
# file.
#   workload clang|gcc|python3|node|jit|sqlite3|git|openssl      sets the array argv
# They are started directly, without a shell in between: perf script loses the root of processes
# that came from two execs (see tests/diff/README.md).

# Files that they and perf record leave behind (~/.debug, caches) stay in the build directory.
export HOME=$(realpath "$BUILD")/home
unset XDG_CACHE_HOME
mkdir -p "$HOME"
# Compilers must do their work, even if a cache is in front of them.
export CCACHE_DISABLE=1

# Record argv with perf until it ends or has used this many seconds of CPU time, however long that takes on a busy
# machine. Return 1 and print a message if perf crashes each time. The exit code of the programs themselves (git exits
# with 1 for differences) is ignored.
perf_workload() { # SECONDS FILE OPTION…
	local seconds=$1 file=$2 rc
	shift 2
	for _ in 1 2 3 4 5; do # perf 6.1 crashes at times, because of processes that end while it starts
		{ # the shell would report each that was killed
			(ulimit -t "$seconds"; exec timeout -s INT -k 10 200 \
				perf record -q --buildid-mmap -e cpu-clock:u -o "$file" "$@" -- "${argv[@]}") >"$file.out" 2>&1
			rc=$?
		} 2>/dev/null
		# perf ends by the signal that ended the program: SIGKILL, when its CPU time was over.
		[ $rc -lt 128 ] || [ $rc = $((128 + 9)) ] && return
	done
	echo "${argv[0]}: perf record died: $rc"
	tail -n 5 "$file.out"
	return 1
}

workload() {
	local scratch=${WORKLOAD_DIR:-$BUILD/workload}
	mkdir -p "$scratch"
	case $1 in
	clang | gcc)
		# The standard library's templates keep a C++ front end and optimiser busy.
		cat >"$scratch/big.cc" <<'CC'
#include <algorithm>
#include <functional>
#include <iostream>
#include <map>
#include <regex>
#include <string>
#include <vector>
int main(int argc, char **argv)
{
	std::map<std::string, std::vector<std::function<int(int)>>> table;
	std::regex word("([a-z]+)([0-9]*)|(\\w+@\\w+\\.com)");
	for (int i = 0; i < argc; i++) {
		std::smatch m;
		std::string s = argv[i];
		if (std::regex_search(s, m, word))
			table[m[1]].push_back([i](int x) { return x * i; });
	}
	for (auto &[name, list] : table) {
		std::sort(list.begin(), list.end(), [](auto &a, auto &b) { return a(1) < b(2); });
		std::cout << name << list.size() << std::regex_replace(name, word, "$2") << "\n";
	}
}
CC
		argv=(clang++ -std=c++17 -O2 -c -o /dev/null "$scratch/big.cc")
		[ "$1" = clang ] || argv[0]=g++ ;;
	python3)
		# Run the interpreter itself: a launcher script in front of it would be a shell.
		argv=("$(python3 -c 'import sys; print(sys.executable)')" -c '
import json, re
def fib(n): return n if n < 2 else fib(n - 1) + fib(n - 2)
fib(24)
for i in range(60):
    s = json.dumps({str(k): [k, k * 1.5, {"a": str(k)}] for k in range(2000)}, indent=1, sort_keys=True)
    json.loads(s)
    re.sub(r"(\d+)\.(\d+)", lambda m: m.group(2), s[:50000])
    sorted(s[:20000], key=lambda c: -ord(c))') ;;
	node | jit)
		cat >"$scratch/native.js" <<'JS'
const crypto = require('crypto'), zlib = require('zlib');
let n = 0;
for (let i = 0; i < 30; i++) {
  n += crypto.pbkdf2Sync('a', 'b', 60000, 64, 'sha512')[0];
  const b = zlib.deflateSync(Buffer.alloc(1 << 20, 'abcdefgh' + n), { level: 9 });
  n += zlib.inflateSync(b).length;
}
JS
		cat >"$scratch/jit.js" <<'JS'
function walk(n) { return n < 2 ? n : walk(n - 1) + walk(n - 2); }
let total = 0;
for (let i = 0; i < 250; i++) {
  total += walk(22);
  const o = JSON.parse(JSON.stringify(Array.from({ length: 2000 }, (_, i) => ({ i, s: 'x' + i }))));
  o.sort((a, b) => b.s.localeCompare(a.s));
  total += o.map(x => x.s.replace(/(\d)(\d)/, '$2$1')).join('').length;
}
JS
		if [ "$1" = node ]; then
			argv=(node --no-opt --no-sparkplug "$scratch/native.js")
		else
			argv=(node "$scratch/jit.js")
		fi ;;
	sqlite3)
		argv=(sqlite3 :memory: "
WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 500000)
SELECT count(*), sum(length(x)) FROM (SELECT DISTINCT hex(i * 7919 % 10007) || i % 97 AS x FROM n ORDER BY x);
CREATE TABLE t(a, b); CREATE INDEX tb ON t(b);
WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 200000)
INSERT INTO t SELECT i, (i * 48271) % 65537 FROM n;
SELECT count(*) FROM t AS x JOIN t AS y ON x.b = y.a WHERE x.a % 3 = 0 AND y.b LIKE '%7%';") ;;
	git)
		if [ ! -f "$scratch/b.txt" ]; then
			seq 1 120000 | awk '{ print $1 * 7919 % 10007, $1 % 13 }' >"$scratch/a.txt"
			awk 'NR % 17 { print } NR % 23 == 0 { print "new", $1 }' "$scratch/a.txt" >"$scratch/b.txt"
		fi
		argv=(git --no-pager diff --no-index --histogram --word-diff=porcelain "$scratch/a.txt" "$scratch/b.txt") ;;
	openssl)
		argv=(openssl speed -seconds 1 -bytes 16384 aes-256-cbc sha256 rsa2048) ;;
	*)
		echo "workload: no '$1'" >&2
		return 2 ;;
	esac
}
