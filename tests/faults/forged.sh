#!/usr/bin/env bash
# Tests another user's file that has the build-id, the size and the XXH64 of a real one: whatever
# the store has seen of this file, other users' frames and names stay the same. Needs root, to act
# as two users.
set -u
. tests/perf.sh
offwind=${OFFWIND:-$BUILD/offwind}
[ "$(id -u)" = 0 ] || { echo "needs root"; exit 77; }
dir=$(mktemp -d)
chmod 755 "$dir"
pids=()
trap 'kill "${pids[@]}" 2>/dev/null; rm -rf "$dir"' EXIT
failures=0

fail() {
	echo "FAIL: $*"
	failures=$((failures + 1))
}

cat >"$dir/lib.c" <<'C'
#include <unistd.h>
/* No frame pointers, and frames of sizes that differ. */
static __attribute__((noinline)) void honest_leaf(volatile char *p) { volatile char room[200]; for (;;) { room[*p & 63]++; if (getppid() == 1) pause(); } }
static __attribute__((noinline)) void honest_middle(volatile char *p) { volatile char room[48]; room[*p & 31] = 1; honest_leaf(room); room[0]++; }
void honest_outer(volatile char *p) { volatile char room[80]; room[*p & 63] = 2; honest_middle(room); room[0]++; }
C
cat >"$dir/main.c" <<'C'
void honest_outer(volatile char *);
int main(void) { char c = 0; honest_outer(&c); return c; }
C
flags="-O1 -fomit-frame-pointer -fno-optimize-sibling-calls -fno-inline -fno-stack-protector -fcf-protection=none -Wl,--build-id"
mkdir "$dir/real" "$dir/user"
# The rules of the last function may be damaged: one word there decides the hash if it is after the last whole stripe of
# 32 bytes.
for nops in 16 24 32 40; do
	echo "__asm__(\".globl zz\\n.type zz,@function\\nzz: .cfi_startproc\\nnop\\n.cfi_escape $(printf '0,%.0s' $(seq $nops))0\\nret\\n.cfi_endproc\\n.size zz,.-zz\");" >"$dir/zz.c"
	gcc $flags -shared -fPIC -Wl,-soname,libh.so -o "$dir/real/libh.so" "$dir/lib.c" "$dir/zz.c" || fail gcc
	size=$(readelf -SW "$dir/real/libh.so" | sed -nE 's/.* \.eh_frame +PROGBITS +[0-9a-f]+ [0-9a-f]+ ([0-9a-f]+).*/\1/p')
	[ $((0x$size % 32)) -ge 8 ] && break
done
gcc $flags -o "$dir/main" "$dir/main.c" "$dir/real/libh.so" || { fail gcc; exit 1; }
for kind in hash address names; do
	mkdir "$dir/user/$kind"
	python3 "$(dirname "$0")/forged.py" $kind "$dir/real/libh.so" "$dir/user/$kind/libh.so" || fail "forging ($kind)"
	chown -R 4242:4242 "$dir/user/$kind"
	chmod 755 "$dir/user/$kind/libh.so"
	readelf -n "$dir/user/$kind/libh.so" | grep 'Build ID' | cmp -s - <(readelf -n "$dir/real/libh.so" | grep 'Build ID') || fail "$kind: another build-id"
	cmp -s "$dir/real/libh.so" "$dir/user/$kind/libh.so" && fail "$kind: the same file"
done
sleep 2.2 # until files are identified by

# captures FILE LIBRARIES [PROGRAM]: a recording in which all functions were seen
captures() {
	for _ in $(seq 10); do
		LD_LIBRARY_PATH=$2 perf_record --buildid-mmap -o "$1" -F 499 --call-graph dwarf,4096 -e cpu-clock:u -- \
			timeout 0.4 "${3:-$dir/main}" >"$dir/log" 2>&1
		"$offwind" unwind --format tsv --no-cache -o "$1.tsv" "$1" 2>"$dir/err" || fail "unwind: $(cat "$dir/err")"
		grep -q honest_leaf "$1.tsv" && grep -q honest_middle "$1.tsv" && grep -q honest_outer "$1.tsv" && return
	done
	fail "perf record: $(cat "$dir/log" "$dir/err")"
}
captures "$dir/data" "$dir/real"

# A run with the store gives the same result as a run without it.
# is_true DB WHAT
is_true() {
	"$offwind" unwind --format tsv --db "$1" -o "$dir/out" "$dir/data" 2>"$dir/err" || fail "$2: $(cat "$dir/err")"
	cmp -s "$dir/data.tsv" "$dir/out" || fail "$2: $(diff "$dir/data.tsv" "$dir/out" | grep '^>' | head -n 4) $(cat "$dir/err")"
}

echo "== a forged file comes first, or second"
for kind in hash address names; do
	"$offwind" cache --db "$dir/$kind.db" prefetch -q "$dir/user/$kind/libh.so" || fail "$kind: prefetch"
	is_true "$dir/$kind.db" "$kind, first"
	is_true "$dir/$kind.db" "$kind, again"
	"$offwind" cache --db "$dir/$kind.2.db" prefetch -q "$dir/real/libh.so" || fail "$kind: prefetch"
	"$offwind" cache --db "$dir/$kind.2.db" prefetch -q "$dir/user/$kind/libh.so" || fail "$kind: prefetch"
	is_true "$dir/$kind.2.db" "$kind, second"
	[ "$kind" = names ] && continue # its rules are the same
	n=$(sqlite3 "$dir/$kind.2.db" 'SELECT count(*), count(DISTINCT identity), count(DISTINCT src_hash) FROM objects WHERE path LIKE "%/libh.so"')
	[ "$n" = '2|2|1' ] || fail "$kind: rows: $n"
done

echo "== two mounts show two files at one path"
# record needs BPF; other tests report if it does not work
if "$offwind" doctor >/dev/null 2>&1 && unshare -m true 2>/dev/null; then
	mkdir "$dir/place"
	cp "$dir/real/libh.so" "$dir/place/"
	cat >"$dir/attack.sh" <<A
mount --bind "$dir/user/names/libh.so" "$dir/place/libh.so" || exit 1
exec env LD_LIBRARY_PATH="$dir/place" "$dir/main"
A
	setpriv --reuid 4242 --regid 4242 --clear-groups unshare -Ur -m bash "$dir/attack.sh" &
	pids+=($!)
	attacker=$!
	for _ in $(seq 1000); do grep -q libh.so "/proc/$attacker/maps" 2>/dev/null && break; sleep 0.01; done
	LD_LIBRARY_PATH=$dir/place "$dir/main" &
	pids+=($!)
	victim=$!
	for _ in $(seq 5); do
		"$offwind" record -q -F 199 -p "$attacker" -p "$victim" -d 2 --db "$dir/live.db" -o "$dir/both.pb.gz" 2>"$dir/err" || fail "record: $(cat "$dir/err")"
		"$offwind" report -f folded --sample-type samples --pid "$victim" "$dir/both.pb.gz" >"$dir/victim" 2>"$dir/err"
		"$offwind" report -f folded --sample-type samples --pid "$attacker" "$dir/both.pb.gz" >"$dir/attacker" 2>"$dir/err"
		grep -q honest_middle "$dir/victim" && grep -q forged_middle "$dir/attacker" && break
	done
	grep -q honest_middle "$dir/victim" && ! grep -q forged_ "$dir/victim" || fail "root's process: $(head -n 3 "$dir/victim")"
	grep -q forged_middle "$dir/attacker" || fail "the other one: $(head -n 3 "$dir/attacker")"
	kill "$attacker" "$victim"
	is_true "$dir/live.db" "afterwards"
else
	echo "no recording here: $("$offwind" doctor 2>&1 | grep -m 1 -i fail)"
fi

echo "== the file is gone"
for owner in 0 4242; do
	mkdir "$dir/gone.$owner"
	cp "$dir/real/libh.so" "$dir/main" "$dir/gone.$owner/"
	chown 0:0 "$dir/gone.$owner/main"
	chown "$owner:$owner" "$dir/gone.$owner/libh.so"
done
sleep 2.2
for owner in 0 4242; do
	data=$dir/perf.$owner db=$dir/gone.$owner.db
	captures "$data" "$dir/gone.$owner" "$dir/gone.$owner/main"
	"$offwind" unwind --format tsv --db "$db" -o "$dir/out" "$data" 2>"$dir/err" || fail "unwind: $(cat "$dir/err")"
	cmp -s "$data.tsv" "$dir/out" || fail "a store changes frames"
	rm "$dir/gone.$owner/libh.so"
	"$offwind" unwind --format tsv --db "$db" -o "$dir/after" "$data" 2>"$dir/err" || fail "unwind: $(cat "$dir/err")"
	if [ "$owner" = 0 ]; then
		cmp -s "$data.tsv" "$dir/after" || fail "root's file: other frames: $(diff "$data.tsv" "$dir/after" | head -n 4) $(cat "$dir/err")"
	else
		grep -q honest_middle "$dir/after" && fail "a stranger answers for a file that is gone"
		grep -q 'libh.so: gone; .* another user could write' "$dir/err" || fail "refused without a word: $(cat "$dir/err")"
		# The user who calls sudo vouches for his own files.
		SUDO_UID=4242 "$offwind" unwind --format tsv --db "$db" -o "$dir/after" "$data" 2>"$dir/err" || fail "unwind: $(cat "$dir/err")"
		cmp -s "$data.tsv" "$dir/after" || fail "the caller's own file: $(cat "$dir/err")"
	fi
done

echo "== the store is nobody else's to read"
(umask 0 && "$offwind" cache --db "$dir/made/offwind.db" prefetch -q "$dir/real/libh.so") || fail "prefetch"
sqlite3 "$dir/made/offwind.db" ".system stat -c '%a %n' $dir/made $dir/made/*" 'SELECT count(*) FROM objects' >"$dir/out"
grep -vE "^(700 $dir/made|600 .*|[0-9]+)\$" "$dir/out" && fail "modes: $(cat "$dir/out")"

[ $failures = 0 ] || { echo "$failures failures"; exit 1; }
