#!/usr/bin/env bash
# Tests that a history of an older version gives the same answers: the first command that may write it upgrades it. What is in the
# way leaves it as it was. tests/cases/history has one of each schema, and what the version that made it replied.
set -u
offwind=$(realpath "$BUILD/offwind")
kept=$PWD/tests/cases/history
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cd "$dir" || exit 1
failures=0

fail() {
	echo "FAIL: $*"
	failures=$((failures + 1))
}

make() { # schema: a history of that schema, h.db
	rm -f h.db*
	{ cat "$kept/schema_$1.sql"; echo "PRAGMA application_id = 1331120201; PRAGMA user_version = $1;"; } | sqlite3 h.db
}

answers() {
	"$offwind" report --from @1 --to @2000000000 -f folded -o - h.db
	for by in symbol module thread exe; do
		"$offwind" report --from @1 --to @2000000000 -n 0 --bars never --by "$by" h.db
	done
}

for sql in "$kept"/schema_*.sql; do
	schema=${sql##*_}
	schema=${schema%.sql}
	make "$schema"
	echo "== schema $schema, which another daemon has"
	flock h.db-lock "$offwind" report --from @1 h.db >out 2>&1 && fail "it was read"
	grep -q "another daemon records" out && grep -q "older offwind (schema $schema)" out || { cat out; fail "a reason"; }
	echo "== what is in the way"
	sqlite3 h.db 'CREATE TABLE labels_hash (x)'
	"$offwind" report --from @1 h.db >out 2>&1 && fail "it was read"
	[ "$(sqlite3 h.db 'PRAGMA user_version')" = "$schema" ] || fail "it is not as it was"
	sqlite3 h.db 'DROP TABLE labels_hash'
	echo "== the upgrade"
	answers >out 2>&1
	diff out "$kept/schema_$schema.answers" || fail "other answers"
	[ "$(sqlite3 h.db 'PRAGMA integrity_check')" = ok ] || fail "integrity"
	[ "$(sqlite3 h.db 'PRAGMA user_version')" -gt "$schema" ] || fail "it is not upgraded"
	# Ids of rows that were deleted are not used again: what the last rows were is as before.
	make "$schema"
	sqlite3 h.db 'DELETE FROM labels WHERE id = (SELECT max(id) FROM labels)'
	before=$(sqlite3 h.db "SELECT seq FROM sqlite_sequence WHERE name = 'labels'")
	"$offwind" report --from @1 h.db >out 2>&1 || fail "it is not read"
	[ "$(sqlite3 h.db "SELECT seq FROM sqlite_sequence WHERE name = 'labels'")" = "$before" ] || fail "ids are used again"
done

echo "$failures failures"
exit $((failures > 0))
