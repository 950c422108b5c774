#!/usr/bin/env bash
# Compares frames with libunwind's and libdwfl's, pc by pc, on fresh recordings of real programs.
# Where those two agree, at least 99.9 % of the samples are equal or in three classes in which they
# are known to be wrong (README.md in this directory). node runs as usual, with generated code,
# which they cannot walk: 99.5 % of its stacks are complete.
#   usage: peers.sh [-v] [PROGRAM…]
set -u
export LC_ALL=C
work=$(mktemp -d "${TMPDIR:-/tmp}/offwind-peers.XXXXXX")
trap 'rm -rf "$work"' EXIT
. tests/workload.sh
export WORKLOAD_DIR=$work
show=()
[ "${1-}" = -v ] && { show=(-v); shift; }

# $1 program, $2 frequency, $3 bytes of stack
record() {
	workload "$1"
	perf_workload 3 "$work/$1.data" -F "$2" --call-graph "dwarf,$3"
}

[ $# -gt 0 ] || set -- clang gcc git sqlite3 python3 node jit
all=()
for program; do
	if [ "$program" = jit ]; then
		record jit 1997 65528 || exit 1
		all+=("jit:99.5=$work/jit.data")
	else
		record "$program" 997 32768 || exit 1
		all+=("$program=$work/$program.data")
	fi
done
"$BUILD/tests/diff/peers" "${show[@]}" "${all[@]}" 2> "$work/err"
rc=$?
cat "$work/err"
exit $rc
