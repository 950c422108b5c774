"""Writes a core file of one thread in some hundred bytes, with a mapped ELF file in its memory."""
import struct
import sys


def note(kind, desc, name=b'CORE\0'):
    pad = lambda b: b + b'\0' * (-len(b) % 4)
    return struct.pack('<III', len(name), len(desc), kind) + pad(name) + pad(desc)


def ehdr(kind, phnum, machine=62):
    return b'\x7fELF\2\1\1' + b'\0' * 9 + struct.pack('<HHIQQQIHHHHHH', kind, machine, 1, 0, 64, 0, 0, 64, 56, phnum, 64, 0, 0)


def phdr(kind, flags, off, vaddr, size, mem=None):
    return struct.pack('<IIQQQQQQ', kind, flags, off, vaddr, vaddr, size, size if mem is None else mem, 4)


build_id = note(3, bytes(range(20)), b'GNU\0')
elf = ehdr(3, 3) + phdr(1, 5, 0, 0, 512) + phdr(4, 4, 256, 256, len(build_id)) + phdr(2, 6, 320, 320, 64)
elf = elf.ljust(256, b'\0') + build_id
elf = elf.ljust(320, b'\0') + struct.pack('<QQQQQQQQ', 5, 0x400040, 6, 0x400080, 4, 0x4000c0, 0, 0)
elf = elf.ljust(512, b'\x90')
regs = [0] * 27
regs[16], regs[19] = 0x400010, 0x7000
status = b'\0' * 32 + struct.pack('<I', 77).ljust(80, b'\0') + struct.pack('<27Q', *regs) + b'\0' * 8
files = struct.pack('<QQQQQ', 1, 4096, 0x400000, 0x401000, 0) + b'/bin/x\0'
auxv = struct.pack('<QQQQQQ', 3, 0x400040, 33, 0x9000, 0, 0)
info = (b'\0' * 24 + struct.pack('<I', 77)).ljust(40, b'\0') + b'name'.ljust(96, b'\0')
notes = note(1, status) + note(3, info) + note(6, auxv) + note(0x46494c45, files)
off = 64 + 4 * 56
stack = struct.pack('<64Q', *range(0x400000, 0x400000 + 64 * 16, 16))
core = ehdr(4, 4) + phdr(4, 0, off, 0, len(notes)) + phdr(1, 5, off + len(notes), 0x400000, 512, 4096)
core += phdr(1, 6, off + len(notes) + 512, 0x7000, 512) + phdr(1, 5, off + len(notes), 0x9000, 512)
open(sys.argv[1], 'wb').write(core + notes + elf + stack)
