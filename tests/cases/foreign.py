#!/usr/bin/env python3
"""Writes files in the layouts of perf.data and of ELF cores, as other programs write them.

usage: foreign.py KIND OUT PROGRAM BUILD-ID main=ADDRESS [name=ADDRESS…]
       foreign.py no-files|relative OUT CORE      a core whose list of mapped files is removed or changed
The addresses are those of symbols in PROGRAM, an ELF file that is not a PIE.
"""
import struct, sys, zlib

HZ = 1000
IP, TID, TIME, CALLCHAIN, BRANCH = 1, 2, 4, 1 << 5, 1 << 11
MMAP, SAMPLE, MMAP2 = 1, 9, 10
ATTR, TRACING_DATA, FEATURE, AUXTRACE = 64, 66, 80, 71
USER = 2
BUILD_ID, HOSTNAME, ARCH = 2, 3, 6


def attr(sample_type, branch=0):
    flags = 1 << 10 | 1 << 18  # freq, sample_id_all
    return struct.pack('<IIQQQQQIIQQQQIiQIHHIIQ', 1, 136, 0, HZ, sample_type, 0, flags, 0, 0, 0, 0, branch,
                       0, 0, 0, 0, 0, 0, 0, 0, 0, 0)


def record(kind, body, misc=USER):
    return struct.pack('<IHH', kind, misc, 8 + len(body)) + body


def big_record(kind, body):  # simpleperf's: the size has 32 bits, the upper ones first
    size = 8 + len(body)
    return struct.pack('<IHH', kind, size >> 16, size & 0xffff) + body


def string(s):
    s = s.encode() + b'\0'
    return s + b'\0' * (-len(s) % 8)


def trailer(time):
    return struct.pack('<IIQ', 7, 7, time)


def mmap(path, start, size, time=1):
    return record(MMAP, struct.pack('<IIQQQ', 7, 7, start, size, 0) + string(path) + trailer(time))


def sample(ip, time, more=b''):
    return record(SAMPLE, struct.pack('<QIIQ', ip, 7, 7, time) + more)


def feature_string(s):
    s = string(s)
    return struct.pack('<I', len(s)) + s


def build_ids(path, build_id, kind=USER):
    # { header; pid; u8 id[20], without a count of the valid bytes; u8 reserved[4]; name }
    return record(0, struct.pack('<i', -1) + build_id.ljust(24, b'\0') + string(path), kind)


def perf_file(the_attr, records, features={}):
    """Write a file of perf record: header, attrs, records, features."""
    attrs_at = 104
    data_at = attrs_at + len(the_attr) + 16
    bits = 0
    for f in features:
        bits |= 1 << f
    header = struct.pack('<8sQQQQQQQQQQQQ', b'PERFILE2', 104, len(the_attr) + 16, attrs_at, len(the_attr) + 16, data_at, len(records),
                         0, 0, bits, 0, 0, 0)
    out = header + the_attr + struct.pack('<QQ', 0, 0) + records
    at = len(out) + 16 * len(features)
    table = contents = b''
    for f in sorted(features):
        table += struct.pack('<QQ', at + len(contents), len(features[f]))
        contents += features[f]
    return out + table + contents


def perf_pipe(the_attr, records, features={}):
    """Write the same in the form of perf record -o -."""
    out = struct.pack('<8sQ', b'PERFILE2', 16) + record(ATTR, the_attr + struct.pack('<Q', 1), 0)
    for f in sorted(features):
        out += record(FEATURE, struct.pack('<Q', f) + features[f], 0)
    return out + records


def segments(core):
    n, = struct.unpack_from('<H', core, 56)
    at, = struct.unpack_from('<Q', core, 32)
    for i in range(n):
        yield struct.unpack_from('<IIQQQQQQ', core, at + 56 * i)  # type, flags, offset, vaddr, paddr, filesz, memsz, align


def change_core(kind, core):
    """Change a core of gcore: remove the list of mapped files, as before Linux 3.7, or use names that do not begin with a slash."""
    core = bytearray(core)
    found = 0
    for p_type, _, off, _, _, size, _, _ in segments(core):
        end = off + size
        while p_type == 4 and off + 12 <= end:
            name_size, size, note = struct.unpack_from('<III', core, off)
            body = off + 12 + (name_size + 3) // 4 * 4
            if note == 0x46494c45:  # NT_FILE
                found += 1
                if kind == 'no-files':
                    struct.pack_into('<I', core, off + 8, 0x4c494600)
                else:
                    n, = struct.unpack_from('<Q', core, body)
                    names = body + 16 + 24 * n
                    text = core[names:body + size].split(b'\0')
                    core[names:body + size] = b'\0'.join(b'x' + t[1:] if t[:1] == b'/' else t for t in text)
            off = body + (size + 3) // 4 * 4
    assert found == 1, found
    return core


def main():
    kind, out = sys.argv[1:3]
    if kind in ('no-files', 'relative'):
        open(out, 'wb').write(change_core(kind, open(sys.argv[3], 'rb').read()))
        return
    program, build_id = sys.argv[3], bytes.fromhex(sys.argv[4])
    at = {name: int(value, 16) for name, _, value in (a.partition('=') for a in sys.argv[5:])}
    plain = attr(IP | TID | TIME)
    mapped = mmap(program, 0x400000, 0x100000)
    samples = [sample(at['main'] + 4, 100 + i) for i in range(10)]
    if kind == 'padded':
        made = perf_file(plain, mapped + b''.join(samples), {BUILD_ID: build_ids(program, build_id)})
    elif kind == 'simpleperf':
        # A list of kernel symbols of more than 64 KiB, tracing data of two versions, and a type that is not known yet.
        data = bytes(range(256)) * 4
        made = perf_file(plain, mapped + samples[0] + big_record(32769, struct.pack('<I', 100000) + b'\xff' * 100004) + samples[1] +
                         record(TRACING_DATA, struct.pack('<I', len(data) - 20) + data, 0) + samples[2] +
                         big_record(32777, struct.pack('<I', len(data)) + data) + samples[3] + big_record(32800, b'') +
                         b''.join(samples[4:]), {BUILD_ID: build_ids(program, build_id)})
    elif kind == 'lbr':
        # The kernel's own chain has two user frames, of which the second is invalid; three calls are open.
        chain = struct.pack('<QQQQQQ', 5, 2**64 - 128, 0xffffffff81000010, 2**64 - 512, at['leaf'] + 4, 0)
        calls = struct.pack('<Q', 2) + b''.join(struct.pack('<QQQ', at[f] + 4, at[t], 0) for f, t in (('middle', 'leaf'), ('main', 'middle')))
        the_attr = attr(IP | TID | TIME | CALLCHAIN | BRANCH, 1 << 0 | 1 << 11)  # user, call stack
        made = perf_file(the_attr, mapped + b''.join(sample(at['leaf'] + 4, 100 + i, chain + calls) for i in range(10)))
    elif kind == 'first':
        made = b'PERFFILE' + bytes(200)
    elif kind == 'trace':
        made = perf_file(plain, mapped + record(AUXTRACE, struct.pack('<QQQIIII', 64, 0, 0, 0, 0, 0, 0), 0) + bytes(64))
    elif kind in ('pipe', 'pipe-elsewhere', 'pipe-untold'):
        host = {'pipe': open('/proc/sys/kernel/hostname').read().strip(), 'pipe-elsewhere': 'another-machine'}
        features = {HOSTNAME: feature_string(host[kind]), ARCH: feature_string('x86_64')} if kind in host else {}
        made = perf_pipe(plain, mapped + b''.join(samples), features)
    open(out, 'wb').write(made)


main()
