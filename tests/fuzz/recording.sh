#!/usr/bin/env bash
# Fuzzes what a recording reads: its command line, the memory of other processes, what the kernel says of them.
set -eu
trap 'echo "line $LINENO fails: $BASH_COMMAND"' ERR
work=$BUILD/fuzz/recording.seeds
rm -rf "$work"
mkdir -p "$work"/{hotspot,v8,record,options,proc,context,threads,cpython,calls}
python3 - "$work" <<'PY'
import struct, sys
work = sys.argv[1]
# Changes of a sound machine: a place, a length, bytes.
for how in range(8):
    for name, changes in {
        'none': b'',
        'first': struct.pack('<HB8s', 64 + how * 8, 8, b'\xff' * 8) + b'\0\0\0',
        'later': b'\0\0\0' + struct.pack('<HB8s', 0x1800 + how * 128, 8, bytes(8)) + b'\0\0\0',
    }.items():
        open(f'{work}/hotspot/{name}{how}', 'wb').write(bytes([how]) + changes)
# No heap of this machine has a whole segment.
open(f'{work}/hotspot/segments', 'wb').write(bytes.fromhex('20a0002180feffffffff5dffffff'))
# Changes of a sound Python process (tests/cpython_image.h): of frames, code objects, texts, line tables, threads.
for version in range(7):
    for name, place, value in ('none', 0, b''), ('cycle', 0x4008, struct.pack('<Q', 0x7f0000004000)), ('frame', 0x4000, b'\xff' * 80), \
            ('code', 0x8400, b'\xff' * 200), ('length', 0x8110, b'\xff' * 8), ('kind', 0x8120, b'\x28'), ('lines', 0x8310, b'\x40' + bytes(15) + b'\xf0' * 64), \
            ('thread', 0x3000, b'\0' * 255), ('stack', 0xf100, struct.pack('<3Q', *(0x7f000000f100,) * 3)):
        for gil in 0, 0x80:
            open(f'{work}/cpython/{name}{version}{gil}', 'wb').write(bytes([version + gil]) + (struct.pack('<HB', place, len(value)) + value if value else b''))
# schema/capture.h: a sample, with a second stack, holes, an allocation, with a kernel stack, and with slices, which refer to a base.
for name, flags, interrupted, kernel, slices, refer, more in (
        ('plain', 1, 0, 0, 0, 0, 0), ('second', 1, 40, 0, 0, 0, 8 + 40), ('kernel', 1, 0, 16, 0, 0, 16), ('holes', 0x11, 0, 0, 0, 0, 40),
        ('alloc', 0x2001, 0, 0, 0, 0, 24), ('slices', 1, 0, 0, 20, 0, 160), ('refer', 1, 0, 0, 21, 1, 168)):
    head = struct.pack('<IIHHHHIIIIQQQQ', 0, 0, flags, kernel // 8, 0, 1, 7, 8, 7, interrupted, 1, 2, 3, 4)
    head += struct.pack('<17Q', *(0x7000 + 8 * i for i in range(17))) + b'name'.ljust(16, b'\0') + struct.pack('<IHBB', 1000, slices, 1, refer)
    words = (4 << 56 | 0x1000, 1, 2, 3, 4) * 4 + (128 << 32 | 9,) * refer
    open(f'{work}/record/{name}', 'wb').write(b'\2' + head + bytes(600 + more - 8 * slices) + struct.pack(f'<{slices}Q', *words[:slices]))
# perf_event_open(2): fork, exit, two names, a mapping by inode and one by build-id, lost records.
ident = struct.pack('<IIQQII', 7, 8, 99, 1, 0, 0)
task = struct.pack('<IIIIQ', 7, 1, 8, 1, 9)
mapping = struct.pack('<IIQQQ', 7, 8, 0x1000, 0x2000, 0)
for name, kind, misc, body in (('fork', 7, 0, task), ('exit', 4, 0, task), ('comm', 3, 0, struct.pack('<II8s', 7, 8, b'name')),
                               ('exec', 3, 1 << 13, struct.pack('<II8s', 7, 8, b'name')),
                               ('inode', 10, 0, mapping + struct.pack('<IIQQII24s', 8, 1, 5, 6, 5, 2, b'/bin/x (deleted)')),
                               ('build_id', 10, 1 << 14, mapping + struct.pack('<B3x20sII8s', 20, bytes(range(20)), 5, 2, b'/bin/x')),
                               ('lost', 2, 0, struct.pack('<QQ', 1, 5))):
    record = struct.pack('<IHH', kind, misc, 8 + len(body) + len(ident)) + body + ident
    for mode in 1, 3:
        open(f'{work}/record/{name}{mode}', 'wb').write(bytes([mode]) + record)
lines = {
    'record': ('-F 99 -a -o x.gz -d 1.5', '-e cycles:u -e r1a8 -e sched:sched_switch --off-cpu=1ms --', '-p 1,2 --tid 3 --comm a,b',
               '--alloc=512 -e cpu-clock/period=1000/', '--uprobe /bin/sh:main+0x10 --rotate 10 --keep 3', '--user 0 --cgroup / -c 100'),
    'report': ('-n 5 --by line --sort total --type cpu', '--focus a|b --ignore (x) --module libc', '--pid 1,2 --label a=b --time 1.5,+2',
               '--time 10%-20% --least 0.5 --callers f', '--container abc -f folded -o - --diff base in'),
}
for command, mode in (('record', 1), ('report', 0)):
    for i, line in enumerate(lines[command]):
        open(f'{work}/options/{command}{i}', 'wb').write(bytes([mode]) + line.replace(' ', '\n').encode() + b'\n')
# opentelemetry-proto: a Resource, a ProcessContext, values of each kind.
def field(number, inside): return bytes([number << 3 | 2, len(inside)]) + inside
def pair(number, key, any): return field(number, field(1, key) + field(2, any))
resource = pair(1, b'service.name', field(1, b'shop')) + pair(1, b'a.int', b'\x18\x07') + pair(1, b'a.bool', b'\x10\1') + pair(1, b'a.d', b'\x21' + struct.pack('<d', .5))
for name, payload in {'resource': resource + b'\x10\1', 'context': field(1, resource) + pair(2, b'thread.kind', field(1, b'x')),
                      'own': pair(1, b'pid', field(1, b'1')) + pair(1, b'k8s.pod.uid', field(1, b'1')) + pair(1, b'telemetry.sdk.name', field(1, b'x')),
                      'twice': resource + resource, 'list': pair(1, b'a.list', field(5, field(1, field(1, b'x'))))}.items():
    for rules in 0, 1:
        open(f'{work}/context/{name}{rules}', 'wb').write(bytes([rules]) + payload)
# What a thread says: a record at a place of words and beside it, in a module that it has not used, cut short, being written.
keys = pair(2, b'threadlocal.attribute_key_map', field(5, b''.join(field(1, field(1, k)) for k in (b'route', b'user.id', b'a.b', b'pid'))))
keys += pair(2, b'threadlocal.schema_version', field(1, b'tls_v1'))
attributes = b'\0\3one\1\3bob\2\1x\3\1y\0\3two'
def slice_(place, data): return bytes([place, (len(data) + 7) // 8]) + data.ljust((len(data) + 7) // 8 * 8, b'\0')
for name, valid, skip, slots, size in (('sound', 1, 0, 0, len(attributes)), ('beside', 1, 4, 0, len(attributes)), ('odd', 1, 7, 1, len(attributes)),
                                       ('unused', 1, 0, -1, 0), ('long', 1, 0, 0, 999), ('changing', 0, 0, 0, 4)):
    ids, rest = bytes(range(1, 25)), bytes(skip) + struct.pack('<BBH', valid, 1, size) + attributes
    parts = [slice_(0, struct.pack('<q', slots)), slice_(2, bytes(8)), slice_(4, ids), slice_({0: 5, 4: 6, 7: 7}[skip], rest), slice_(3, bytes(8)), slice_(8, bytes(8))]
    for n in 2, 4, 6:
        open(f'{work}/threads/{name}{n}', 'wb').write(bytes([n]) + b''.join(parts[:n]) + keys)
# Labels of goroutines: a list of two, cut short, and a bucket of a map with one pair.
def text(at, t): return slice_(8, struct.pack('<QQ', 0x7f0000001000 + at, len(t))) + (slice_(4 if at < 8 else 6, bytes(at % 8) + t) if t else b'')
list_ = [slice_(10, bytes(8)), slice_(8, struct.pack('<QQ', 1, 2)), text(0, b'route'), text(5, b'/a'), text(0, b'span_id'), text(2, b'00f067aa0ba902b7'), slice_(3, bytes(8))]
map_ = [slice_(9, bytes(8)), slice_(8, struct.pack('<4Q', 1, 0, 1, 0)), slice_(8, b'\x42' + bytes(7))] + [text(0, b'route')] + [text(0, b'')] * 7 + [text(1, b'/a')] + [text(0, b'')] * 7
for name, parts in ('list', list_), ('map', map_ + [slice_(3, bytes(8))]):
    whole = b''.join(parts)
    for n in 3, 9, 23:
        open(f'{work}/threads/{name}{n}', 'wb').write(bytes([n]) + whole)
# schema/calls_blob.h: frames with two calls and with none, a second blob that replaces them, and one that forgets.
def calls(flags, frames, calls, texts):
    texts = b''.join(t + b'\0' for t in texts)
    blob = b''.join(struct.pack('<QQII', *f) for f in frames) + b''.join(struct.pack('<IIII', *c) for c in calls) + texts + b'\0'
    head = struct.pack('<IHHQIIIhhhhQQQ', 0x4c43574f, 1, 1, 64 + len(blob), len(frames), len(calls), flags, -3, -8, 13, 0, 100, 200, 0)
    return struct.pack('<I', 64 + len(blob)) + head + blob
at = 64 + 2 * 24 + 2 * 16
two = calls(0, [(7, 8, 0, 2), (0x1000, 0, 2, 0)], [(at, at + 2, 5, 1), (at, 0, 0, 0)], [b'f', b'F.java'])
open(f'{work}/calls/two', 'wb').write(two)
open(f'{work}/calls/again', 'wb').write(two + calls(0, [(7, 8, 0, 1)], [(64 + 24 + 16, 0, 1, 1)], [b'new']))
open(f'{work}/calls/forgotten', 'wb').write(two + calls(1, [], [], []))
# Changes of a sound heap: none, a word of an object, a map; reading that is cut short.
for name, change in {'none': b'\0', 'few': b'\1', 'word': b'\0' + struct.pack('<HBQ', 0x400, 8, 1 << 40), 'map': b'\0' + struct.pack('<HBH', 0x20c, 2, 1)}.items():
    open(f'{work}/v8/{name}', 'wb').write(change)
open(f'{work}/proc/maps', 'w').write('1000-2000 r-xp 00000000 08:01 5 /bin/a\\012b (deleted)\n2000-3000 rw-p 00000000 00:00 0 [heap]\n')
open(f'{work}/proc/status', 'w').write('Name:\tx\nState:\tZ (zombie)\nTgid:\t5\nPPid:\t4\nThreads:\t2\n')
open(f'{work}/proc/mountinfo', 'w').write('22 1 0:27 / /mnt rw - fuse.x /dev/x rw,user_id=5\n23 1 8:1 / / rw shared:1 - ext4 /dev/vda rw\n')
open(f'{work}/proc/cgroup', 'w').write('/kubepods.slice/cri-containerd-' + '0123456789abcdef' * 4 + '.scope\n')
PY
tests/fuzz/run options 5000 400 "$work/options"
tests/fuzz/run proc_text 8000 2000 "$work/proc"
tests/fuzz/run otel_ctx 20000 1000 "$work/context"
tests/fuzz/run context 20000 1000 "$work/threads"
tests/fuzz/run calls 20000 1000 "$work/calls"
tests/fuzz/run v8 3000 400 "$work/v8"
tests/fuzz/run hotspot 2000 1000 "$work/hotspot"
tests/fuzz/run cpython 20000 600 "$work/cpython"
tests/fuzz/run live_record 100000 2000 "$work/record"
