"""Writes small ELF executables byte by byte, with whatever sections and headers a test wants.

The program in them is a loop: it computes, and sleeps if the writer said so.
"""
import os, struct

BASE, CODE = 0x400000, 0x401000  # where the file and its code are mapped
CODE_OFF, DATA_OFF = 0x1000, 0x2000
ALLOC, COMPRESSED = 2, 0x800  # SHF_ALLOC, SHF_COMPRESSED
# xor ebp,ebp; call f; f: inc rax; jmp f
SPIN = bytes.fromhex('31ed' 'e800000000' '48ffc0' 'ebfb')
ZLIB, ZSTD = 1, 2  # ELFCOMPRESS_*


def at_times(rounds, pause_ns):
    """Return a program that counts down from rounds, and then sleeps, for ever."""
    return (bytes.fromhex('31ed' 'e800000000')                       # xor ebp,ebp; call f
            + b'\xb9' + struct.pack('<I', rounds)                    # f: mov ecx,rounds
            + bytes.fromhex('ffc9' '75fc')                           # 1: dec ecx; jnz 1b
            + b'\x68' + struct.pack('<i', pause_ns)                  # push pause_ns
            + bytes.fromhex('6a00' '4889e7' '31f6' 'b823000000' '0f05' '59' '59')  # push 0; nanosleep(rsp, 0); pop; pop
            + bytes.fromhex('ebe0'))                                 # jmp f


def uleb(n):
    out = b''
    while True:
        out += bytes([n & 127 | (128 if n > 127 else 0)])
        n >>= 7
        if not n:
            return out


def sleb(n):
    out = b''
    while True:
        byte = n & 127
        n >>= 7
        if (n == 0 and not byte & 64) or (n == -1 and byte & 64):
            return out + bytes([byte])
        out += bytes([byte | 128])


class Hole:
    """A section without contents in the file system."""

    def __init__(self, size):
        self.size = size


class At:
    """A section whose header claims an offset and a size."""

    def __init__(self, off, size):
        self.off, self.size = off, size


def chdr(kind, size):
    """Elf64_Chdr: what a compressed section begins with."""
    return struct.pack('<IIQQ', kind, 0, size, 1)


def section(name, data, addr=0, kind=1, flags=0, link=0, entry=0):
    return (name, kind, (ALLOC if addr else 0) | flags, addr, data, link, entry)


def phdr(kind, off, addr, size, flags=4):
    return struct.pack('<IIQQQQQQ', kind, flags, off, addr, addr, size, size, 0x1000 if kind == 1 else 4)


def build(path, sections, code=SPIN, build_id=None, interp=None, headers=(), e_type=2, size=0, counts=None):
    """
    Write an executable.  sections are made by section(); headers(where) returns more program headers, where is the
    sections' offset and size by name.  size: of the whole file, if that is larger.  counts: e_phnum and e_shnum as
    the ELF header claims them.
    """
    code = code.ljust(4096, b'\x90')
    names, off, heads, blobs, where = b'\0', DATA_OFF, [bytes(64)], [(CODE_OFF, code)], {}
    sections = [section('.text', At(CODE_OFF, len(code)), CODE)] + list(sections) + [section('.shstrtab', None, kind=3)]
    index = {s[0]: i + 1 for i, s in enumerate(sections)}
    for name, kind, flags, addr, data, link, entry in sections:
        name_at, names = len(names), names + os.fsencode(name) + b'\0'
        if data is None:
            data = names
        if isinstance(data, At):
            at, length = data.off, data.size
        else:
            at, length = off, data.size if isinstance(data, Hole) else len(data)
            off = (off + length + 15) & ~15
        if isinstance(data, (bytes, bytearray)):
            blobs.append((at, data))
        where[name] = (at, length)
        heads.append(struct.pack('<IIQQQQIIQQ', name_at, kind, flags, addr, at, length, index[link] if link else 0, 0, 8, entry))
    segments = [phdr(1, 0, BASE, DATA_OFF, 5)]
    if interp:
        blobs.append((0x900, interp + b'\0'))
        segments.insert(0, phdr(3, 0x900, BASE + 0x900, len(interp) + 1))
    if build_id:
        note = struct.pack('<III', 4, len(build_id), 3) + b'GNU\0' + build_id
        blobs.append((0x800, note))
        segments.append(phdr(4, 0x800, BASE + 0x800, len(note)))
    segments += headers(where) if callable(headers) else headers
    n_phdr, n_shdr = counts or (len(segments), len(heads))
    with open(path, 'wb') as f:
        f.write(struct.pack('<16sHHIQQQIHHHHHH', b'\x7fELF\2\1\1', e_type, 62, 1, CODE, 64, off, 0, 64, 56, n_phdr, 64, n_shdr,
                            len(heads) - 1))
        f.write(b''.join(segments))
        for at, data in blobs:
            f.seek(at)
            f.write(data)
        f.seek(off)
        f.write(b''.join(heads))
        if size:
            f.truncate(max(size, f.tell()))
    os.chmod(path, 0o755)


# ---- call frame information (LSB 5.0 §10.6, DWARF 5 §6.4) ----------------------------------------
FRAME = b'\x0c\7\x08\x90\1'  # DW_CFA_def_cfa rsp+8; DW_CFA_offset ra at cfa-8
# DW_CFA_offset for each register: every row is then as large as can be.
REGISTERS = b''.join(b'\x05' + uleb(r) + b'\1' for r in range(33) if r != 16)


def entry(body):
    return struct.pack('<I', len(body)) + body


def cie(program=FRAME, augmentation=b'zR', data=b'\0'):
    """A CIE whose FDEs have absolute addresses of eight bytes."""
    return entry(struct.pack('<IB', 0, 1) + augmentation + b'\0' + uleb(1) + sleb(-8) + uleb(16)
                 + (uleb(len(data)) + data if augmentation.startswith(b'z') else b'') + program)


def fde(at, start, size, program=b''):
    """An FDE at this offset of its section, of a CIE at offset 0."""
    return entry(struct.pack('<IQQ', at + 4, start, size) + b'\0' + program)


def fdes(first, count, start, size=lambda i: 64):
    """A CIE and count FDEs without instructions."""
    out, one = bytearray(first), struct.Struct('<IIQQB3x')
    for i in range(count):
        out += one.pack(24, len(out) + 4, start(i), size(i), 0)
    return bytes(out) + bytes(4)


def frames(program, size=4096, first=None):
    """.eh_frame with one FDE that executes program."""
    first = first or cie()
    return first + fde(len(first), CODE, size, program) + bytes(4)


def cfa_expression(ops):
    return b'\x0f' + uleb(len(ops)) + ops
