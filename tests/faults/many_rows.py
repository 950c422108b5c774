#!/usr/bin/env python3
"""
Makes functions with very many rows of unwind information: code.bin, frame.bin and size.h.

  usage: many_rows.py DIR FUNCTIONS PAIRS

Each function pushes and pops a register PAIRS times, and each push and pop is a row of its own. In
the middle, between a push and its pop, it calls the function that it was given in rdi.
"""
import struct
import sys

directory, functions, pairs = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
TEXT = 0x10000000  # where the linker puts code.bin
half = pairs // 2

code_of_one = b"\x50\x58" * half + b"\x50\xff\xd7\x58" + b"\x50\x58" * (pairs - half - 1) + b"\xc3"
size = (len(code_of_one) + 15) & ~15

# DW_CFA_advance_loc 1 (the call's row: 3), DW_CFA_def_cfa_offset
pushed, popped = b"\x41\x0e\x10", b"\x41\x0e\x08"
rows = (pushed + popped) * half + pushed + b"\x43\x0e\x08" + (pushed + popped) * (pairs - half - 1)


def entry(body):
    return struct.pack("<I", len(body) + -(len(body) + 4) % 8) + body + b"\0" * (-(len(body) + 4) % 8)


# Version 1, "zR", code alignment 1, data alignment -8, return address 16, absolute addresses;
# DW_CFA_def_cfa rsp+8, DW_CFA_offset ra at cfa-8.
frame = bytearray(entry(struct.pack("<I", 0) + b"\x01zR\0\x01\x78\x10\x01\x00\x0c\x07\x08\x90\x01"))
code = bytearray()
for i in range(functions):
    frame += entry(struct.pack("<IQQ", len(frame) + 4, TEXT + i * size, len(code_of_one)) + b"\0" + rows)
    code += code_of_one + b"\xcc" * (size - len(code_of_one))
frame += b"\0\0\0\0"
open(f"{directory}/code.bin", "wb").write(code)
open(f"{directory}/frame.bin", "wb").write(frame)
open(f"{directory}/size.h", "w").write(f"#define N {functions}\n#define SIZE {size}\n")
print(f"{functions * pairs * 2} rows, {len(frame) >> 20} MiB of .eh_frame")
