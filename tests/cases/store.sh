#!/usr/bin/env bash
# Tests the store as its users see it: a second run parses nothing and prints the same; a damaged
# file costs a warning but no profile; offwind cache and the standard sqlite3 shell can read it.
set -u
. tests/wait.sh
. tests/perf.sh
offwind=$BUILD/offwind
dir=$(mktemp -d)
trap 'chmod -R u+w "$dir"; rm -rf "$dir"' EXIT
export HOME=$dir # where perf record keeps files
failures=0

fail() {
	echo "FAIL: $*"
	failures=$((failures + 1))
}

data=$dir/perf.data
# Without --buildid-mmap, perf 6.1 may crash while offwind records, see docs/kernels.md. The kernel is left out: only
# the running kernel can name BPF programs of others, and only while they exist.
perf_record --buildid-mmap -o "$data" -F 2000 --call-graph dwarf,8192 -e cpu-clock:u -- \
	"$(python3 -c 'import sys; print(sys.executable)')" -c 'import json
for i in range(30): json.loads(json.dumps({str(k): [k] for k in range(3000)}, indent=1))' >"$dir/log" 2>&1 ||
	{ cat "$dir/log"; fail "perf record"; exit 1; }
mkdir "$dir/torn" && head -c 200 "$(command -v ls)" >"$dir/torn/ls" # will be old enough to be identified by its inode
db=$dir/store/offwind.db
unwind() { "$offwind" unwind --format tsv --no-inline -o "$1" "${@:2}" "$data" 2>"$dir/err"; }

echo "== a second run"
unwind "$dir/none" --no-cache || fail "without: $(cat "$dir/err")"
[ ! -e "$db" ] || fail "--no-cache made a store"
unwind "$dir/first" -v --db "$db" || fail "first: $(cat "$dir/err")"
cp "$dir/err" "$dir/first.err"
unwind "$dir/second" -v --db "$db" || fail "second: $(cat "$dir/err")"
cmp "$dir/none" "$dir/first" && cmp "$dir/none" "$dir/second" || fail "a store changes frames"
grep -qE 'compiled, [1-9][0-9]* stored.*parsed [1-9]' "$dir/first.err" || fail "first: $(cat "$dir/first.err")"
grep -qE '[1-9][0-9]* tables found, 0 not there; 0 compiled, 0 stored, 0 damaged.* parsed 0 times' "$dir/err" || fail "second: $(cat "$dir/err")"
grep -qE ' symbols of [1-9][0-9]* files found, 0 stored' "$dir/err" || fail "symbols: $(cat "$dir/err")"
[ "$(stat -c %a "$db")" = 600 ] || fail "others may read it"
"$offwind" explain --db "$db" "$data" >/dev/null 2>"$dir/err" || fail "explain: $(cat "$dir/err")"
OFFWIND_DB=$db unwind "$dir/third" -v && grep -q ' parsed 0 times' "$dir/err" || fail "OFFWIND_DB"
OFFWIND_DB='' unwind "$dir/third" -v && ! grep -q ' parsed ' "$dir/err" || fail "OFFWIND_DB, empty"

echo "== what is wrong costs one warning and no profile"
# warns PATTERN DB
warns() {
	unwind "$dir/x" --db "$2" || fail "$2: $(cat "$dir/err")"
	cmp -s "$dir/none" "$dir/x" || fail "$2: other frames: $(diff "$dir/none" "$dir/x" | head -n 8)"
	[ "$(grep -c 'stay in memory' "$dir/err")" = 1 ] && grep -qE -- "$1" "$dir/err" || fail "$2: $(cat "$dir/err")"
}
echo "a text, and no database at all, whatever its name may be" >"$dir/text.db"
cp "$dir/text.db" "$dir/text.old"
warns 'text.db: file is not a database' "$dir/text.db"
cmp -s "$dir/text.db" "$dir/text.old" || fail "a text was changed"
sqlite3 "$dir/other.db" 'CREATE TABLE t (x)'
warns 'other.db: is a database of another program' "$dir/other.db"
cp "$db" "$dir/newer.db"
sqlite3 "$dir/newer.db" 'PRAGMA user_version = 999'
warns 'newer.db: was created by a newer offwind .schema 999' "$dir/newer.db"
warns 'Is a directory|is not a file' "$dir"
: >"$dir/file"
warns 'file/x.db: Not a directory' "$dir/file/x.db"
head -c 40000 "$db" >"$dir/cut.db"
unwind "$dir/x" --db "$dir/cut.db"
cmp -s "$dir/none" "$dir/x" || fail "a store that was cut short: $(cat "$dir/err")"
# Another process holds the lock for longer than anyone waits.
cp "$db" "$dir/locked.db"
sqlite3 "$dir/locked.db" 'DELETE FROM tables' 'PRAGMA wal_checkpoint' >/dev/null
mkfifo "$dir/hold"
exec 7<>"$dir/hold"
printf '%s\n' 'BEGIN IMMEDIATE;' ".system touch $dir/held" >"$dir/lock.sql"
cat "$dir/lock.sql" - <&7 | sqlite3 "$dir/locked.db" & # runs until it is killed
until_or_dead $! test -e "$dir/held" || exit 1
warns 'cannot keep a table: (Device or resource busy|database is locked)' "$dir/locked.db"
kill %1 2>/dev/null
wait 2>/dev/null
exec 7>&-

echo "== questions"
cache() { "$offwind" cache --db "$db" "$@" 2>"$dir/err"; }
id=$(cache query --format csv "SELECT lower(hex(build_id)) FROM objects WHERE path LIKE '%/libc.so.6'" | tail -n 1)
libc=$(cache query --format csv "SELECT path FROM objects WHERE path LIKE '%/libc.so.6'" | tail -n 1)
[ "$(readelf -n "$libc" | sed -n 's/.*Build ID: //p')" = "$id" ] || fail "build-id of $libc: $id"
for object in "$id" "${id:0:8}" libc.so.6 libc "$libc"; do
	cache show "$object" >"$dir/out" && grep -q "^build-id  *$id" "$dir/out" || fail "show $object: $(cat "$dir/err")"
done
# A table is missing: nothing is looked for that a query could not find.
cp "$db" "$dir/broken.db"
sqlite3 "$dir/broken.db" 'ALTER TABLE objects RENAME TO others' && "$offwind" cache --db "$dir/broken.db" show "$libc" 2>"$dir/err"
[ $? = 1 ] && grep -q 'the store is damaged' "$dir/err" || fail "a store without objects: $(cat "$dir/err")"
cache ls --match libc.so >"$dir/out" && grep -q "^$id .*$libc\$" "$dir/out" || fail ls
# Rows agree with readelf's, by the CFA at 200 addresses.
readelf --debug-dump=frames-interp "$libc" 2>/dev/null | awk '
	/ FDE / { fde = 1; next } / CIE / { fde = 0; next }
	fde && length($1) == 16 && $1 ~ /^[0-9a-f]+$/ { print $1, $2 }' | awk 'NR % 40 == 1 || $2 == "exp"' | head -n 300 >"$dir/want"
[ "$(wc -l <"$dir/want")" = 300 ] && grep -q ' exp' "$dir/want" || fail "readelf"
cache lookup libc $(cut -d' ' -f1 "$dir/want") |
	awk '$1 ~ /^0x/ { sub(/^0x/, "", $1); sub(/:.*/, "", $1); pc = sprintf("%16s", $1); gsub(/ /, "0", pc) } length($1) == 16 && $1 ~ /^[0-9a-f]+$/ { print pc, $2 }' >"$dir/got"
cmp "$dir/want" "$dir/got" || fail "lookup is not readelf's: $(diff "$dir/want" "$dir/got" | head -n 5)"
# There are as many procedures as FDEs in readelf that cover something.
fdes=$(readelf --debug-dump=frames "$libc" 2>/dev/null | sed -nE 's/.* FDE .*pc=([0-9a-f]+)\.\.([0-9a-f]+)/\1 \2/p' | awk '$1 "" != $2 ""' | sort -u | wc -l)
[ "$(cache query --format csv "SELECT count(*) FROM unwind_fdes('libc')" | tail -n 1)" = "$fdes" ] || fail "unwind_fdes"
sqlite3 -csv "$db" ".load $BUILD/offwind_sqlite" "SELECT * FROM unwind_rows('libc')" >"$dir/shell" 2>"$dir/err" || fail "the shell: $(cat "$dir/err")"
cache query --format csv "SELECT * FROM unwind_rows('libc')" >"$dir/ours"
python3 -c '
import csv, sys
a, b = (list(csv.reader(open(p, newline=""))) for p in sys.argv[1:])
assert a[1:] == b' "$dir/ours" "$dir/shell" || fail "the shell says something else"
[ -s "$dir/shell" ] || fail "the shell says nothing"
# A search by comparison finds the same as reading every row.
for where in 'start = 160880' '"end" > 160880 AND start <= 160880' 'start >= 170000 AND start < 171000' '"end" = 0' 'start < 0'; do
	for table in unwind_rows unwind_fdes unwind_gaps; do
		a=$(cache query --format csv "SELECT count(*), sum(start) FROM $table('libc') WHERE $where" | tail -n 1)
		b=$(cache query --format csv "SELECT count(*), sum(start) FROM $table('libc') WHERE ${where//start/+start}" | tail -n 1)
		[ "$a" = "$b" ] || fail "$table WHERE $where: $a, not $b"
	done
done
[ "$(cache query --format csv "SELECT count(*) FROM objects, unwind_gaps(objects.id) WHERE size < 16" | tail -n 1)" = 0 ] || fail "join"
cache query "DELETE FROM tables"
[ $? = 1 ] && grep -q 'readonly' "$dir/err" || fail "a question changed something: $(cat "$dir/err")"
cache query "SELECT * FROM unwind_rows('nobody')"
[ $? = 1 ] && grep -q "no object 'nobody'" "$dir/err" || fail "nobody: $(cat "$dir/err")"
cache query --format json "SELECT 1 AS a, NULL AS b, 'x\"' || char(10) AS c, x'ff' AS d" | python3 -c '
import json, sys
assert json.load(sys.stdin) == [{"a": 1, "b": None, "c": "x\"\n", "d": "ff"}]' || fail json
# What a terminal would obey is escaped: ESC, CSI, the Arabic letter mark, an override; a dash is not.
[ "$(cache query --format json "SELECT 1e999 AS a, -1e999 AS b, 'Inf' AS c" | grep a)" = '{"a":9e999,"b":-9e999,"c":"Inf"}' ] || fail "infinity is no JSON"
[ "$(cache query --format json "SELECT char(27, 155, 1564, 8238, 8211) AS t" | grep t)" = '{"t":"\u001b\u009b\u061c\u202e–"}' ] || fail "json that a terminal obeys"
cache verify || fail "verify: $(cat "$dir/err")"

# Functions by name: the function that covers the address of malloc in nm is malloc; a name finds its rows.
malloc=$(nm -D --defined-only "$libc" | awk '$3 ~ /^malloc@@/ { print $1 }')
[ "$(cache query --format csv "SELECT function FROM unwind_rows('libc', 0x$malloc)" | tail -n 1)" = malloc ] || fail "a function's name: $(cat "$dir/err")"
[ "$(cache query --format csv "SELECT start = 0x$malloc FROM unwind_fdes('libc') WHERE function = 'malloc'" | tail -n 1)" = 1 ] || fail "a function by its name"
cache lookup libc "$malloc" | grep -q 'function malloc 0x' || fail "lookup names it"
# … from the store, if the file is gone.
sqlite3 "$db" ".backup $dir/gone.db"
sqlite3 "$dir/gone.db" "UPDATE objects SET path = '/nowhere/libc.so.6' WHERE path = '$libc'"
[ "$("$offwind" cache --db "$dir/gone.db" query --format csv "SELECT function FROM unwind_rows('libc', 0x$malloc)" | tail -n 1)" = malloc ] || fail "a name out of the store"
sqlite3 "$dir/gone.db" 'DELETE FROM symbols'
[ "$("$offwind" cache --db "$dir/gone.db" query --format csv "SELECT function LIKE '0x%' FROM unwind_rows('libc', 0x$malloc)" | tail -n 1)" = 1 ] || fail "no name"

sqlite3 "$dir/gone.db" ".restore $db" "UPDATE symbols SET symbols = CAST(substr(symbols, 1, 5000) || x'0a0b0c' || substr(symbols, 5004) AS BLOB) WHERE path = '$libc'"
"$offwind" cache --db "$dir/gone.db" verify --repair >"$dir/out" 2>"$dir/err"
[ $? = 3 ] && grep -q 'its symbols are damaged' "$dir/out" && grep -q ' 1 damaged and deleted; ' "$dir/err" || fail "damaged symbols: $(cat "$dir/out" "$dir/err")"
"$offwind" cache --db "$dir/gone.db" verify >"$dir/out" 2>"$dir/err" || fail "damaged symbols: $(cat "$dir/out" "$dir/err")"
# However many are damaged, all of them are dropped.
sqlite3 "$dir/gone.db" ".restore $db" "WITH RECURSIVE i(k) AS (SELECT 1 UNION ALL SELECT k + 1 FROM i WHERE k < 100) INSERT INTO symbols
	(dev, ino, elf_off, reader, file_size, uid, mtime_ns, ctime_ns, beside, owner, build_id, path, last_used, n, size, symbols)
	SELECT dev, 1000000000 + k, elf_off, reader, file_size, uid, mtime_ns, ctime_ns, beside, owner, build_id, path, last_used, n, size, symbols FROM symbols, i WHERE path = '$libc'"
"$offwind" cache --db "$dir/gone.db" verify --repair >"$dir/out" 2>"$dir/err"
[ $? = 3 ] && [ "$(grep -c 'its symbols are damaged' "$dir/out")" = 100 ] || fail "100 damaged: $(cat "$dir/out" "$dir/err")"
"$offwind" cache --db "$dir/gone.db" verify >"$dir/out" 2>"$dir/err" || fail "damaged ones are left: $(cat "$dir/out" "$dir/err")"

# A store of an older version is upgraded by the first command that may write it.
sqlite3 "$db" ".backup $dir/older.db"
sqlite3 "$dir/older.db" 'DROP TABLE building' 'ALTER TABLE quarantine DROP COLUMN size' 'ALTER TABLE quarantine DROP COLUMN contents' 'PRAGMA user_version = 4'
[ "$("$offwind" cache --db "$dir/older.db" query --format csv 'SELECT count(*) FROM building' | tail -n 1)" = 0 ] || fail "an older store"

echo "== one table as a file"
cache export libc -o "$dir/libc.owt" || fail "export: $(cat "$dir/err")"
"$offwind" cache --db "$dir/b.db" import "$dir/libc.owt" 2>"$dir/err" || fail "import: $(cat "$dir/err")"
sqlite3 "$db" ".backup $dir/twice.db"
"$offwind" cache --db "$dir/twice.db" import "$dir/libc.owt" 2>"$dir/err"
[ "$(sqlite3 "$dir/twice.db" "SELECT count(*) FROM objects WHERE path = '$libc' AND file_size > 100000")" = 1 ] || fail "import over one that is there"
unwind "$dir/x" -v --db "$dir/b.db" && cmp -s "$dir/x" "$dir/none" && grep -q ' 1 tables found' "$dir/err" || fail "an imported table: $(cat "$dir/err")"
for at in 0 100 5000 -10; do
	python3 - "$dir/libc.owt" "$dir/bad.owt" "$at" <<'PY'
import sys
data = bytearray(open(sys.argv[1], 'rb').read())
data[int(sys.argv[3])] ^= 4
open(sys.argv[2], 'wb').write(data)
PY
	"$offwind" cache --db "$dir/c.db" import "$dir/bad.owt" 2>"$dir/err"
	[ $? = 1 ] && grep -q 'bad.owt: is' "$dir/err" || fail "import of a damaged table: $(cat "$dir/err")"
done

echo "== prefetch, verify, gc"
mkdir "$dir/tree"
cp "$libc" "$dir/tree/" && cp "$(command -v ls)" "$dir/tree/" && echo text >"$dir/tree/text" && mkfifo "$dir/tree/pipe"
"$offwind" cache --db "$dir/p.db" prefetch "$dir/tree" 2>"$dir/err" && grep -q '2 files: 2 stored, 0 already there, 0 failed' "$dir/err" || fail "prefetch: $(cat "$dir/err")"
"$offwind" cache --db "$dir/p.db" prefetch "$dir/tree" 2>"$dir/err" && grep -q '0 stored, 2 already there' "$dir/err" || fail "prefetch again: $(cat "$dir/err")"
sqlite3 "$dir/p.db" "UPDATE tables SET rules = zeroblob(length(rules)) WHERE object = 1"
"$offwind" cache --db "$dir/p.db" verify >"$dir/out" 2>"$dir/err"
[ $? = 3 ] && grep -q 'table is damaged' "$dir/out" && grep -q '2 tables, 1 damaged' "$dir/err" || fail "verify finds damage: $(cat "$dir/out" "$dir/err")"
"$offwind" cache --db "$dir/p.db" verify --repair >"$dir/out" 2>&1
"$offwind" cache --db "$dir/p.db" verify >"$dir/out" 2>"$dir/err" && grep -q '1 tables, 0 damaged' "$dir/err" || fail "verify --repair: $(cat "$dir/out" "$dir/err")"
"$offwind" cache --db "$dir/p.db" gc 2>"$dir/err" && grep -q ' 0 objects deleted' "$dir/err" || fail "gc: $(cat "$dir/err")"
"$offwind" cache --db "$dir/p.db" gc --budget 1K 2>"$dir/err" && grep -q ' 2 objects deleted' "$dir/err" || fail "gc --budget: $(cat "$dir/err")"

echo "== quarantine"
# prefetch EXPECTED-LINE
again() { "$offwind" cache --db "$dir/p.db" prefetch "$dir/torn" 2>"$dir/err"; grep -q "$1" "$dir/err" || fail "$1: $(cat "$dir/err")"; }
again ' 1 failed, 0 in quarantine'
again ' 0 failed, 1 in quarantine'
"$offwind" cache --db "$dir/p.db" verify >"$dir/out" 2>"$dir/err" && grep -q '/torn/ls: in quarantine since .*: is a damaged ELF file' "$dir/out" && grep -q '1 in quarantine' "$dir/err" || fail "verify: $(cat "$dir/out" "$dir/err")"
"$offwind" cache --db "$dir/p.db" ls >/dev/null 2>"$dir/err" && grep -q '1 objects are in quarantine' "$dir/err" || fail "ls: $(cat "$dir/err")"
sqlite3 "$dir/p.db" 'UPDATE quarantine SET builder = builder - 1'
again ' 1 failed, 0 in quarantine' # a newer builder tries again …
again ' 0 failed, 1 in quarantine'
touch "$dir/torn/ls"
sleep 2.2
again ' 1 failed, 0 in quarantine' # … and a file that has changed is tried again
"$offwind" cache --db "$dir/p.db" verify --repair >/dev/null 2>&1
again ' 1 failed, 0 in quarantine'

# Two processes ended while they compiled a file, as shown by what such a process leaves behind.
sqlite3 "$dir/p.db" 'CREATE TABLE seen AS SELECT * FROM building' \
	'CREATE TRIGGER see AFTER DELETE ON building BEGIN INSERT INTO seen VALUES (old.id, old.build_id, old.path, old.builder, old.file, old.pid, old.begun, old.since); END'
cp "$(command -v cat)" "$dir/tree/cat" && sleep 2.2
"$offwind" cache --db "$dir/p.db" prefetch -q "$dir/tree/cat" || fail "prefetch cat"
over="INSERT INTO building (build_id, path, builder, file, pid, begun, since)
	SELECT build_id, path, builder, file, 99999999, 1, unixepoch() FROM seen WHERE path LIKE '%/cat'"
sqlite3 "$dir/p.db" 'DROP TRIGGER see' "DELETE FROM objects WHERE path LIKE '%/cat'" "$over LIMIT 1"
"$offwind" cache --db "$dir/p.db" verify >"$dir/out" 2>&1
grep -q '/tree/cat: a process ended while it compiled this file, on 2' "$dir/out" || fail "one that ended: $(cat "$dir/out")"
sqlite3 "$dir/p.db" "$over LIMIT 1"
for i in 1 2; do
	"$offwind" cache --db "$dir/p.db" prefetch "$dir/tree/cat" 2>"$dir/err"
	grep -q ' 0 failed, 1 in quarantine' "$dir/err" && [ "$(grep -c '/tree/cat: not used, the file is in quarantine since 2.*: 2 processes ended while they compiled it' "$dir/err")" = 1 ] ||
		fail "two that ended: $(cat "$dir/err")"
done
"$offwind" cache --db "$dir/p.db" verify --repair >/dev/null 2>&1
"$offwind" cache --db "$dir/p.db" prefetch "$dir/tree/cat" 2>"$dir/err" && grep -q '1 stored' "$dir/err" || fail "let go: $(cat "$dir/err")"
[ "$(sqlite3 "$dir/p.db" 'SELECT count(*) FROM building')" = 0 ] || fail "a note is left"

echo "== one pc, one block"
size=$(cache query --format csv "SELECT size FROM tables ORDER BY n_rows DESC LIMIT 1" | tail -n 1)
big=$(cache query --format csv "SELECT object FROM tables ORDER BY n_rows DESC LIMIT 1" | tail -n 1)
one=$(cache query --format csv "SELECT max(bytes_read) FROM unwind_rows($big, (SELECT start + 1 FROM unwind_fdes($big) LIMIT 1 OFFSET 1000))" | tail -n 1)
all=$(cache query --format csv "SELECT max(bytes_read) FROM unwind_rows($big)" | tail -n 1)
[ "$one" -gt 0 ] && [ "$all" -gt "$one" ] && [ $((one * 3)) -lt "$size" ] || fail "one pc: $one bytes read of $size, all: $all"
# Lookups in the undamaged part of a table are answered; lookups in the damaged part are reported.
cp "$db" "$dir/flipped.db"
sqlite3 "$dir/flipped.db" "UPDATE tables SET rules = CAST(substr(rules, 1, length(rules) - 100) || x'5a5a' || substr(rules, length(rules) - 97) AS BLOB) WHERE object = $big"
"$offwind" cache --db "$dir/flipped.db" query --format csv "SELECT words FROM unwind_rows($big, (SELECT start + 1 FROM unwind_fdes($big) LIMIT 1 OFFSET 1000))" >"$dir/out" 2>"$dir/err" && grep -q CFA "$dir/out" || fail "far from the damage: $(cat "$dir/err")"
"$offwind" cache --db "$dir/flipped.db" query --format csv "SELECT count(*) FROM unwind_rows($big)" >"$dir/out" 2>"$dir/err"
[ $? = 1 ] && grep -q 'is damaged' "$dir/err" || fail "where the damage is: $(cat "$dir/out" "$dir/err")"

echo "== diff"
cat >"$dir/a.c" <<'C'
int kept(int x) { return x + 1; }
int moved(int x) { volatile char room[64]; room[x & 63] = 1; return room[0]; }
int lost(int x) { return x * 3; }
C
gcc -O1 -shared -fPIC -o "$dir/a.so" "$dir/a.c" || fail gcc
sed 's/room\[64\]/room[640]/' "$dir/a.c" >"$dir/b.c"
sed -i 's/^int lost.*/__asm__(".globl lost\\n.type lost,@function\\n.balign 64\\nlost: lea (%rdi,%rdi,2),%eax\\nret\\n.zero 64\\n.size lost,.-lost");/' "$dir/b.c"
gcc -O1 -shared -fPIC -o "$dir/b.so" "$dir/b.c" || fail gcc
"$offwind" cache diff "$dir/a.so" "$dir/a.so" >"$dir/out" || fail "a file differs from itself: $(cat "$dir/out")"
"$offwind" cache diff "$dir/a.so" "$dir/b.so" >"$dir/out" 2>&1
[ $? = 3 ] && grep -q '^changed .* moved+' "$dir/out" && grep -q '^lost .* lost: ' "$dir/out" && ! grep -q ' kept' "$dir/out" ||
	fail "diff: $(cat "$dir/out")"

[ $failures = 0 ] || { echo "$failures failures"; exit 1; }
