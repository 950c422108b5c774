#!/usr/bin/env bash
# Checks capture files with other programs: zstd tests and unpacks the frames, protoc decodes every
# record and the index, and the counts agree with the trailer.
set -u
work=$BUILD/diff/owc
rm -rf "$work"; mkdir -p "$work"
"$BUILD/tests/unit/test_owc" "$work/a.owc" 3000 || { echo "no capture"; exit 1; }
tail -c +33 "$work/a.owc" > "$work/a.zst"
zstd -tq "$work/a.zst" || { echo "zstd finds it damaged"; exit 1; }
zstd -dqc "$work/a.zst" > "$work/content"

# A message of all records, so that one decoding takes them all.
cat > "$work/all.proto" <<'P'
syntax = "proto3";
import "proto/capture.proto";
message All { repeated offwind.capture.Record records = 1; }
P
python3 - "$work" <<'PY' || exit 1
import struct, sys, zlib
work = sys.argv[1]
data, out, at = open(work + '/content', 'rb').read(), open(work + '/all', 'wb'), 0
while at < len(data):
    size = shift = 0
    start = at
    while True:
        byte = data[at]
        at += 1
        size |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            break
    out.write(b'\x0a' + data[start:at + size])
    at += size
assert at == len(data)
whole = open(work + '/a.owc', 'rb').read()
assert whole[:16] == b'OFFWIND1' + struct.pack('<II', 1, 32)
off, size, crc, magic = struct.unpack('<QII8s', whole[-24:])
assert magic == b'OFFWIDX1' and off + 8 + size + 24 == len(whole)
assert struct.unpack('<II', whole[off:off + 8]) == (0x184d2a50, size + 24)
index = whole[off + 8:-24]
assert zlib.crc32(index) == crc
open(work + '/index', 'wb').write(index)
PY
protoc --decode=All -I . -I "$work" "$work/all.proto" < "$work/all" > "$work/all.txt" 2> "$work/stderr" &&
protoc --decode=offwind.capture.Index proto/capture.proto < "$work/index" > "$work/index.txt" 2>> "$work/stderr" ||
	{ cat "$work/stderr"; exit 1; }

python3 - "$work" <<'PY'
import os, re, sys
work = sys.argv[1]
text = open(work + '/all.txt').read()
kinds = re.findall(r'^  (\w+) \{', text, re.M)
trailer = dict(re.findall(r'(\w+): (\d+)', text[text.index('  trailer {'):]))
events = [k for k in kinds if k in ('mapping', 'exec', 'fork', 'exit', 'comm', 'sample', 'lost')]
frames = re.findall(r'frames \{(.*?)\}', open(work + '/index.txt').read(), re.S)
total = lambda key: sum(int(n) for f in frames for n in re.findall(r'\b%s: (\d+)' % key, f))
facts = {
    'a header first, a trailer last': kinds[0] == 'header' and kinds[-1] == 'trailer',
    'images before mappings of them, once each': kinds.count('image') == 3,
    'symbols': text.count('symbols {') >= 3 and '"do_syscall_64"' in text,
    'all that was written': len(events) + sum(map(kinds.count, ('cgroup', 'freed', 'generated', 'memory', 'waker'))) == 3000,
    'events as the trailer counts them': len(events) == int(trailer['n_events']),
    'samples as the trailer counts them': kinds.count('sample') == int(trailer['n_samples']),
    'events as the index counts them': total('n_events') == len(events) and total('n_samples') == kinds.count('sample'),
    'frame sizes': total('content_size') == os.path.getsize(work + '/content'),
}
for what, ok in facts.items():
    if not ok:
        print('not so: ' + what)
sys.exit(not all(facts.values()))
PY
