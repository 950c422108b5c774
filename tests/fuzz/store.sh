#!/usr/bin/env bash
# Fuzzes the store with whole databases and with changed values (tests/fuzz/fuzz_store.c, fuzz_store_rows.c).
set -eu
trap 'echo "line $LINENO fails: $BASH_COMMAND"' ERR
work=$BUILD/fuzz/store.seeds
rm -rf "$work"
mkdir -p "$work/fuzz_store"

cat > "$work/a.c" <<'C'
void fill(char *p, int n);
int helper(int n) { char a[64]; fill(a, n); return a[n]; }
void fill(char *p, int n) { while (n) p[--n] = (char)n; }
int main(int argc, char **argv) { return argv[0][0] + helper(argc); }
C
gcc -O2 -nostdlib -Wl,-emain -Wl,-z,noseparate-code -Wl,--build-id -o "$work/plain" "$work/a.c"
sleep 2.1 # a file that changed less than two seconds ago is not recognized again
"$BUILD/offwind" cache prefetch -q --db "$work/whole" "$work/plain"
# Small pages, so that most of the file has a meaning.
sqlite3 "$work/whole" 'pragma journal_mode = delete; pragma page_size = 1024; vacuum' > "$work/log"
: > "$work/empty"
seed() { # what is done, query, ELF file, database
	python3 -c 'import struct, sys
elf, db = (open(name, "rb").read() for name in sys.argv[3:])
sys.stdout.buffer.write(bytes([int(sys.argv[1]), int(sys.argv[2])]) + struct.pack("<H", len(elf)) + elf + db)' \
		"$@" > "$work/fuzz_store/$1-$2-$(basename "$4")"
}
for query in {0..9}; do
	seed $((query % 3)) $query "$work/empty" "$work/whole"
done
for use in 128 129; do
	seed $use 0 "$work/plain" "$work/whole"
done
seed 129 1 "$work/plain" "$work/empty"

mkdir "$work/rows"
python3 - "$work/rows" <<'PY'
import struct, sys
def write(name, data): open(f"{sys.argv[1]}/{name}", "wb").write(data)
# Byte 0 says what is done: 1 look up, 2 fill, 4 change, 8 query; its high bits, which change and query.
for done in [0, 1, 2, 3, 7] + [4 + 16 * which for which in range(5)] + [8 + 16 * which for which in range(16)]:
    write(f"none{done}", bytes([done]))
    for column in range(done % 4, 52, 4):
        write(f"number{done}-{column}", bytes([done, column, 8]) + struct.pack("<q", -1))
for blob in range(4):
    for at in range(0, 160, 8):
        write(f"patch{blob}-{at}", bytes([1, blob, 0xc0 + 6]) + struct.pack("<HI", at, 1))
PY
FUZZ_RSS_MB=1024 tests/fuzz/run store 1500 40000 "$work/fuzz_store"
FUZZ_RSS_MB=1024 tests/fuzz/run store_rows 4000 400 "$work/rows"
