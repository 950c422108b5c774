"""Writes a table as Go 1.20's linker makes it, with three functions of 64 bytes, the first at TEXT.

usage: gopclntab.py FILE TEXT
"""
import struct
import sys

names = b'main.main\0runtime.goexit\0runtime.mcall\0'
values = bytes([0, 2, 4, 0x40, 40, 0x3f, 4, 0, 2, 64, 0])  # a frame in the middle; none
search, records = b'', b''
for i, (name, frame, flags) in enumerate(((0, 1, 0), (10, 8, 1), (25, 8, 2))):
    search += struct.pack('<II', 64 * i, 32 + len(records))
    records += struct.pack('<10I4B', 64 * i, name, 0, 0, frame, 0, 0, 0, 0, 0, 0, flags, 0, 0)
search += struct.pack('<II', 192, 0)
header = struct.pack('<IHBB8Q', 0xfffffff1, 0, 1, 8, 3, 0, int(sys.argv[2], 0), 72, 0, 0,
                     72 + len(names), 72 + len(names) + len(values))
open(sys.argv[1], 'wb').write(header + names + values + search + records)
