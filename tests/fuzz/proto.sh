#!/usr/bin/env bash
# Fuzzes the readers of pprof profiles and capture files, starting from sound files.
set -eu
trap 'echo "line $LINENO fails: $BASH_COMMAND"' ERR
work=$BUILD/fuzz/proto.seeds
rm -rf "$work"
mkdir -p "$work"/{pprof,owc}

printf 'a;ls/main;ls/f;libc.so/?;kernel:k 3\nb;ls/main;ls/main;ls/g 4\n' | "$BUILD/tests/diff/pprof_make" > "$work/pprof/gzip"
gunzip < "$work/pprof/gzip" > "$work/pprof/plain"
"$BUILD/offwind" unwind -q -o - tests/cases/perfdata/file.data 2>/dev/null | gunzip > "$work/pprof/recording"
# A sample without frames, as each view shows it: the sum of the bytes chooses the view.
python3 - "$work/pprof" <<'PY'
import sys
for view in range(16):
    text = b"\x0a\4\x08\1\x10\2" + b"\x12\2\x10\3" + b"\x32\0\x32\7samples\x32\5count" + b"\x48"
    open(f"{sys.argv[1]}/view{view}", "wb").write(text + bytes([(view - sum(text)) % 16]))
PY
"$BUILD/tests/unit/test_owc" "$work/all.owc" 40
{ printf '\0'; cat "$work/all.owc"; } > "$work/owc/file"
tail -c +33 "$work/all.owc" | zstd -dcq > "$work/content"
for n in 200 1000 4000 15000; do
	{ printf '\1'; head -c $n "$work/content"; } > "$work/owc/content$n"
	{ printf '\2'; head -c $n "$work/content"; } > "$work/owc/cut$n"
done
{ printf '\1'; head -c 100 "$work/content"; tail -c 100 "$work/content"; } > "$work/owc/ends"

export FUZZ_RSS_MB=2048
tests/fuzz/run pprof 100000 8192 "$work/pprof"
tests/fuzz/run owc 20000 16000 "$work/owc"
