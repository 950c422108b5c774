#!/usr/bin/env python3
"""A Python program that says what its thread works for, so that its samples have frames of Python and such labels.
usage: work.py LIBRARY       LIBRARY: tests/live/contexts/library.c"""
import ctypes, mmap, os, struct, sys, time

library = ctypes.CDLL(sys.argv[1])
library.library_publish.argtypes = [ctypes.c_void_p]


def field(number, inside):
    return bytes([number << 3 | 2, len(inside)]) + inside


def publish_process():
    keys = field(5, field(1, field(1, b'http_route')))
    payload = ctypes.create_string_buffer(
        field(2, field(1, b'threadlocal.schema_version') + field(2, field(1, b'tls_v1')))
        + field(2, field(1, b'threadlocal.attribute_key_map') + field(2, keys)))
    fd = os.memfd_create('OTEL_CTX')
    os.ftruncate(fd, 4096)
    memory = mmap.mmap(fd, 4096)
    memory[8:32] = struct.pack('<IIQQ', 2, len(payload) - 1, time.clock_gettime_ns(time.CLOCK_BOOTTIME), ctypes.addressof(payload))
    memory[0:8] = b'OTEL_CTX'
    return payload, memory


def compute():
    total = 0
    for i in range(100000):
        total += i * i


def work_a():
    compute()


def work_b():
    compute()


def work_none():
    compute()


def record(letter, route):
    attributes = bytes([0, len(route)]) + route
    return ctypes.create_string_buffer(bytes([letter]) * 16 + bytes([letter + 1]) * 8 + struct.pack('<BBH', 1, 1, len(attributes)) + attributes)


kept = publish_process()
a, b = record(0xa0, b'/a'), record(0xb0, b'/b')
for name, letter, route in ('work_a', 0xa0, '/a'), ('work_b', 0xb0, '/b'):
    print(name, '*', f'trace_id={letter:02x}' + f'{letter:02x}' * 15, f'span_id={letter + 1:02x}' + f'{letter + 1:02x}' * 7, f'http_route={route}', sep='\t')
print('work_none\t*\nbegun', flush=True)
end = time.monotonic() + 300
while time.monotonic() < end:
    library.library_publish(a)
    work_a()
    library.library_publish(b)
    work_b()
    library.library_publish(None)
    work_none()
