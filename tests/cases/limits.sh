#!/usr/bin/env bash
# Tests --limit: each limit that refuses something says so, once and with its name and number; none is reached
# by an ordinary program; and wrong values are refused.
set -u
. tests/wait.sh
offwind=$BUILD/offwind
dir=$(mktemp -d)
failures=0
fail() {
	echo "FAIL: $*"
	failures=$((failures + 1))
}

cat >"$dir/deep.c" <<'C'
#include <stdio.h>
#include <unistd.h>
static volatile int more = 1;
__attribute__((noinline)) void a_function_with_a_name_of_more_than_sixteen_bytes(int n)
{
	if (n)
		a_function_with_a_name_of_more_than_sixteen_bytes(n - 1);
	else
		for (puts("ready"), fflush(stdout);;)
			pause();
	more = n;
}
int main(void)
{
	a_function_with_a_name_of_more_than_sixteen_bytes(20);
	return more;
}
C
gcc -g -O0 -fno-omit-frame-pointer -o "$dir/deep" "$dir/deep.c" || exit 1
"$dir/deep" >"$dir/said" &
pid=$!
trap 'kill $pid; rm -rf "$dir"' EXIT
until_or_dead $pid test -s "$dir/said" || exit 1
unwind() { "$offwind" unwind -q --no-cache --pid $pid -f tsv -o "$dir/out" "$@" 2>"$dir/err"; }

if ! unwind; then
	cat "$dir/err"
	echo "no process can be read here"
	exit 77
fi
! grep -q 'limit ' "$dir/err" || fail "an ordinary program reaches a limit: $(cat "$dir/err")"
[ "$(grep -c more_than_sixteen_bytes "$dir/out")" = 21 ] || fail "the stack: $(cat "$dir/out")"

# reached NAME=N LINES: the command goes on, and says which limit was reached. Of the function's frames so many are left.
reached() {
	local n
	unwind --limit "$1" || fail "--limit $1: exit $?: $(cat "$dir/err")"
	[ "$(grep -cE "^offwind: warning: limit $1 reached [1-9][0-9]* times?: .*; --limit ${1%=*}=N changes it\$" "$dir/err")" = 1 ] &&
		[ "$(grep -c 'limit ' "$dir/err")" = 1 ] || fail "--limit $1: it says: $(cat "$dir/err")"
	n=$(grep -c "$2" "$dir/out")
	[ "$n" = "$3" ] || fail "--limit $1: $n lines with $2, not $3: $(cat "$dir/out")"
}
reached frames=5 '' 6 # and the header
grep -q max_frames "$dir/out" || fail "the reason of the stop: $(cat "$dir/out")"
reached name-bytes=16 'a_function_with_	' 21
grep -qw a_function_with_ "$dir/out" && ! grep -q more_than_sixteen "$dir/out" || fail "a name that is cut: $(cat "$dir/out")"
reached lines=1 'deep\.c:7' 0
reached symbols=1 more_than_sixteen_bytes 21 # by debug information
! grep -qE 'deregister_tm|_init' "$dir/out" || fail "wrong names: $(cat "$dir/out")"
reached instructions=1 '' 2
grep -qw limit "$dir/out" || fail "the reason of the stop: $(cat "$dir/out")"
# The program's mappings come first, and those with code stay.
reached all-mappings=8 a_function_with_ 21
reached mappings=8 a_function_with_ 21
unwind --limit frames=5 --limit frames=2000 --limit symbols=100000 || fail "repeated: exit $?"
[ "$(grep -c more_than_sixteen_bytes "$dir/out")" = 21 ] || fail "the last value counts"

"$offwind" unwind -q --no-cache -o "$dir/x.pb.gz" tests/cases/perfdata/file.data || fail "pprof"
"$offwind" report --limit profile-bytes=1K "$dir/x.pb.gz" >/dev/null 2>"$dir/err" && fail "a large profile is read"
grep -q 'limit profile-bytes=1024 reached 1 time:' "$dir/err" || fail "a large profile: $(cat "$dir/err")"

echo "== the option"
for command in record top unwind explain report flamegraph; do
	"$offwind" $command --limit help >"$dir/help" 2>&1 || fail "$command --limit help: exit $?"
	[ "$(grep -cE '^[a-z-]+ +[1-9][0-9]*  [a-z]' "$dir/help")" -ge 20 ] || fail "$command --limit help: $(cat "$dir/help")"
	"$offwind" $command --help | grep -q -- '--limit NAME=N' || fail "$command --help"
done
"$offwind" unwind --limit frames=77 --limit help | grep -qE '^frames +77 ' || fail "the value in force"
for wrong in frames frames= frames=0 frames=-1 frames=x frames=1K frames=99999999999 =3 frame=3 framess=3 '' open-files=1 history-bytes=1KK; do
	"$offwind" unwind --limit "$wrong" x >"$dir/out" 2>&1
	[ $? = 2 ] && grep -q '^offwind: --limit' "$dir/out" && [ "$(wc -l <"$dir/out")" = 1 ] || fail "--limit '$wrong': $(cat "$dir/out")"
done
# The names in the manual of the limits are those of the program.
sed -n '/^### Limits that can be set/,/^### Other/p' docs/security.md | grep '^|' | cut -d'|' -f2 | grep -oE '`[a-z-]+`' | tr -d '`' | sort >"$dir/described"
"$offwind" unwind --limit help | sed 1d | cut -d' ' -f1 | sort >"$dir/names"
diff "$dir/names" "$dir/described" || fail "docs/security.md describes other limits"
exit $((failures > 0))
