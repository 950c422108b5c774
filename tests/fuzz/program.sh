#!/usr/bin/env bash
# Fuzzes whole commands with damaged recordings, profiles and stores.
set -eu
trap 'echo "line $LINENO fails: $BASH_COMMAND"' ERR
work=$BUILD/fuzz/program.seeds
rm -rf "$work"
mkdir -p "$work/seeds"
seed() { # command's number, file, how much of it
	{ printf "\\$1"; head -c "${3:-30000}" "$2"; } >"$work/seeds/$(basename "$2")$1"
}
python3 tests/fuzz/frozen_seeds.py "$work/core"
"$BUILD/tests/unit/test_owc" "$work/capture.owc" 40
for file in tests/cases/perfdata/*.data "$work/core" "$work/capture.owc"; do
	for command in 0 1 2 15; do # octal
		seed $command "$file" 12000
	done
done
"$BUILD/offwind" unwind -q -o "$work/profile.gz" tests/cases/perfdata/file.data || [ $? = 3 ]
gzip -dc "$work/profile.gz" >"$work/profile"
for command in 3 4 5 14; do
	seed $command "$work/profile.gz"
	seed $command "$work/profile"
done
echo 'int main(int argc, char **argv) { return argv[0][0] + argc; }' >"$work/a.c"
gcc -O2 -s -Wl,--build-id -o "$work/plain" "$work/a.c"
"$BUILD/offwind" cache prefetch --db "$work/store" "$work/plain" >"$work/log" 2>&1
# Small pages, so that most of the file has a meaning.
sqlite3 "$work/store" 'pragma journal_mode = delete; pragma page_size = 1024; vacuum' >>"$work/log"
for command in 6 7 10 11 13; do
	seed $command "$work/store"
done
# A database of another program, whose id is more than an int.
{ printf '\5SQLite format 3\0'; head -c 84 /dev/zero | tr '\0' '\377'; } > "$work/seeds/other"
"$BUILD/offwind" cache export -q --db "$work/store" plain -o "$work/exported"
seed 12 "$work/exported"
FUZZ_RSS_MB=2048 tests/fuzz/run program 4000 32000 "$work/seeds"
