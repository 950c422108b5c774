#!/usr/bin/env bash
# Tests whole stacks of real programs: of each one's user samples, at least 99 of 100 end at a root;
# the output says why the others do not.
set -u
. "$(dirname "$0")/../recorder.sh"
export WORKLOAD_DIR=$dir
. tests/workload.sh

# Java without options: its compiled code has no frame pointers.
cat >"$dir/Work.java" <<'J'
import java.util.TreeMap;
public class Work {
	static int fib(int n) { return n < 2 ? n : fib(n - 1) + fib(n - 2); }
	static int texts(int n) {
		TreeMap<String, Integer> m = new TreeMap<>();
		for (int i = 0; i < n; i++)
			m.merge(Integer.toString(i * 7919 % 10007), 1, Integer::sum);
		return m.size();
	}
	public static void main(String[] args) {
		long sum = 0;
		for (int i = 0; i < 2000; i++)
			sum += fib(22) + texts(3000);
		System.out.println(sum);
	}
}
J
javac -d "$dir" "$dir/Work.java" || { echo "FAIL: javac"; exit 1; }
cat >"$dir/work.rs" <<'R'
use std::collections::BTreeMap;
fn main() {
    let mut m: BTreeMap<String, Vec<Box<dyn Fn(i32) -> i32>>> = BTreeMap::new();
    for i in 0..10 {
        m.entry(format!("{}", i % 3)).or_default().push(Box::new(move |x| x * i));
    }
    for (k, v) in &m {
        let mut s: Vec<i32> = v.iter().map(|f| f(2)).collect();
        s.sort_by(|a, b| b.cmp(a));
        println!("{} {:?} {:?}", k, s, k.parse::<f64>());
    }
}
R

# Go's programs, stripped: this one calls the vDSO all the time, on another stack.
cat >"$dir/clock.go" <<'G'
package main

import "time"

//go:noinline
func deep(k int) (t time.Time) {
	for i := 0; k == 0 && i < 1000; i++ {
		t = time.Now()
	}
	if k > 0 {
		t = deep(k - 1).Add(1)
	}
	return
}

func main() {
	for i := 0; i < 2; i++ {
		go func() {
			for {
				deep(20)
			}
		}()
	}
	for end := time.Now().Add(5 * time.Second); deep(10).Before(end); {
	}
}
G
# The same with C, which runs on the first thread before Go does.
cat >"$dir/begin.go" <<'G'
package main

/*
#include <time.h>
static void used(void) {}
__attribute__((constructor)) static void begin(void)
{
	struct timespec t;

	do
		clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
	while (t.tv_nsec < 50000000);
}
*/
import "C"

func init() { C.used() }
G
export GO111MODULE=off GOFLAGS= GOCACHE=$PWD/$BUILD/go-cache
go build -ldflags='-s -w' -o "$dir/clock" "$dir/clock.go" && go build -o "$dir/cgo" "$dir/clock.go" "$dir/begin.go" || { echo "FAIL: go build"; exit 1; }

# Add to the earlier counts: 0 when there are enough samples, 1 when there are not, 2 when there never will be.
# Each round is longer: programs begin with stacks that are cut, and on a busy machine do little else at first.
whole() { # program ROUND
	rm -f "$dir/stats"
	# The exit code is the program's, if it ends by itself: git exits with 1 for differences.
	"$offwind" record -q -F 997 -d $((800 * $2))ms --stack-max 1M --stats "$dir/stats" -o "$dir/a.pb.gz" -- "${argv[@]}" >/dev/null 2>"$dir/log"
	[ $? -le 1 ] && [ -s "$dir/stats" ] || { cat "$dir/log"; return 2; }
	python3 - "$dir" "$1" <<-'P'
	import collections, json, os, sys
	seen = f"{sys.argv[1]}/seen.{sys.argv[2]}"
	u = collections.Counter(json.load(open(seen)) if os.path.exists(seen) else {})
	u += collections.Counter(json.load(open(f"{sys.argv[1]}/stats"))["total"]["unwound"])
	json.dump(u, open(seen, "w"))
	del u["no_user_state"]
	n, root = sum(u.values()), u.pop("root", 0)
	# What C's first thread does in the vDSO is cut until the thread is sampled in Go's code, which may take a busy
	# machine a second: then the part is less in a longer recording.
	cgo = sys.argv[2] == "cgo"
	enough = n >= 100 and root >= (0.95 if cgo else 0.99) * n
	# With few samples, one in a hundred is chance.
	most = 6000 if cgo else 600
	if enough or n >= most:
	    print(f"{sys.argv[2]}: {root} of {n} user samples end at a root", *(f"{k} {v}" for k, v in u.items()))
	sys.exit(0 if enough else 2 if n >= most else 1)
	P
}

# rustup's rustc finds no toolchain with another home.
for rustc in $(type -ap rustc); do "$rustc" --version > /dev/null 2>&1 && break; done

for program in clang gcc rustc python3 node jit java gofmt clock cgo sqlite3 git openssl; do
	case $program in
	java) argv=(java -cp "$dir" Work) ;;
	gofmt) argv=("$(go env GOROOT)/bin/gofmt" -d "$(go env GOROOT)/src/net") ;;
	clock | cgo) argv=("$dir/$program") ;;
	rustc) argv=("$rustc" -O --emit=obj -o "$dir/work.o" "$dir/work.rs") ;;
	*) workload $program ;;
	esac
	for round in $(seq 12); do
		whole $program $round
		rc=$?
		[ $rc = 1 ] || break
	done
	[ $rc = 0 ] || { echo "FAIL: $program"; failures=$((failures + 1)); }
done
[ $failures = 0 ] || { echo "$failures failures"; exit 1; }
