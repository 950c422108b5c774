"""Makes the hostile executables of tests/faults/hostile.py: each function writes the program `path`, and what belongs to it.

Each program spends a part of its time in one loop, so it is sampled, and its file is read.
"""
import lzma, os, struct, subprocess, zlib

from elf import (ALLOC, BASE, CODE, COMPRESSED, FRAME, REGISTERS, ZLIB, ZSTD, At, Hole, at_times, build, cfa_expression, chdr, cie,
                 entry, fde, fdes, frames, phdr, section, sleb, uleb)

EH = 0x500000  # where .eh_frame claims to be mapped
MB = 1 << 20
LOOP = at_times(1000000, 15000000)
OBJECTS = {}


def hostile(function):
    OBJECTS[function.__name__.replace('_', '-')] = function
    return function


def program(path, *sections, **more):
    build(path, sections, code=more.pop('code', LOOP), **more)


def with_frames(path, data, **more):
    program(path, section('.eh_frame', data, EH), **more)


# ---- call frame information ------------------------------------------------------------------------
PAIRS = b'\x0a\x0b'  # DW_CFA_remember_state, DW_CFA_restore_state


@hostile
def cfa_loop(path):
    """an expression that jumps back for ever"""
    with_frames(path, frames(cfa_expression(b'\x2f\xfd\xff')))


@hostile
def cfa_long(path):
    """an expression of 32 MB"""
    with_frames(path, frames(cfa_expression(b'\x96' * (32 * MB))))


@hostile
def cfa_stack(path):
    """an expression that pushes without end, and one that reads the kernel's addresses"""
    with_frames(path, frames(cfa_expression(b'\x12' * MB) + b'\x10\x03' + uleb(10) + b'\x0e' + b'\xff' * 8 + b'\x06'))


@hostile
def cfa_same(path):
    """a caller's frame that is the callee's: the walk never moves"""
    with_frames(path, frames(b'\x16\x07\x02\x77\x00' + cfa_expression(b'\x77\x00') + b'\x16\x10\x03\x0c' + struct.pack('<I', CODE + 7)))


@hostile
def remember_pairs(path):
    """half a million remember/restore pairs, all registers in each"""
    with_frames(path, frames(REGISTERS + PAIRS * 500000))


@hostile
def remember_deep(path):
    """20 million states remembered, none restored"""
    with_frames(path, frames(b'\x0a' * 20000000))


@hostile
def cie_bomb(path):
    """a CIE that takes milliseconds, with 20,000 FDEs"""
    with_frames(path, fdes(cie(FRAME + REGISTERS + PAIRS * 499000), 20000, lambda i: CODE + 64 * i))


@hostile
def cie_chain(path):
    """100,000 CIEs that each take a while, with an FDE each"""
    out = bytearray()
    for i in range(100000):
        at = len(out)
        out += cie(FRAME + REGISTERS + PAIRS * 20)
        out += entry(struct.pack('<IQQ', len(out) + 4 - at, CODE + 16 * (i % 256), 16) + b'\0')
    with_frames(path, bytes(out) + bytes(4))


@hostile
def augmentation_long(path):
    """an augmentation of 16 MB"""
    with_frames(path, frames(b'', first=cie(augmentation=b'z' + b'R' * (16 * MB))))


@hostile
def augmentation_wild(path):
    """encodings that no standard has, a personality at the end of memory"""
    first = cie(augmentation=b'zPLRSBG', data=b'\xff' * 20)
    with_frames(path, first + fde(len(first), CODE, 64) + cie(augmentation=b'zR', data=b'\x9b') + bytes(4))


@hostile
def entry_lengths(path):
    """entries whose lengths overlap, wrap and never advance"""
    good = cie()
    with_frames(path, good + fde(len(good), CODE, 4096) + struct.pack('<IQ', 0xffffffff, 0xfffffffffffffff0) + bytes(16)
                + struct.pack('<II', 0xfffffff0, 1) + struct.pack('<I', 1) * 64)


@hostile
def fde_overlap(path):
    """a million FDEs that overlap"""
    with_frames(path, fdes(cie(), 1000000, lambda i: CODE + (i * 2654435761 & 0xffff), lambda i: 64 + (i & 0xffff)))


@hostile
def fde_rows(path):
    """one function with 8 million rows"""
    with_frames(path, frames(b'\x41\x0e\x10\x41\x0e\x08' * 4000000, size=8000001))


@hostile
def hdr_count(path):
    """a search table that claims 4 billion entries"""
    table = struct.pack('<BBBBiI', 1, 0x1b, 3, 0x3b, 0, 0xffffffff) + os.urandom(1 << 16)
    program(path, section('.eh_frame', frames(b''), EH), section('.eh_frame_hdr', table, 0x600000),
            headers=lambda where: [phdr(0x6474e550, where['.eh_frame_hdr'][0], 0x600000, len(table))])


@hostile
def frame_hole(path):
    """.eh_frame of 1 GB without contents"""
    with_frames(path, Hole(1 << 30))


@hostile
def frame_holes(path):
    """.eh_frame and .debug_frame of 255 MB without contents"""
    program(path, section('.eh_frame', Hole(255 * MB), EH), section('.debug_frame', Hole(255 * MB)))


# ---- compressed sections -----------------------------------------------------------------------------
def zeros(size):
    """A zlib stream (RFC 1950) of size zeros, made of one block that is repeated: quick, however large."""
    c = zlib.compressobj(9, wbits=-15)
    block = c.compress(bytes(MB)) + c.flush(zlib.Z_FULL_FLUSH)
    return b'\x78\xda' + block * (size // MB) + b'\3\0' + struct.pack('>HH', size % 65521, 1)


@hostile
def zlib_bombs(path):
    """12 programs, each with two sections that unpack from 0.25 MB to 255 MB"""
    data = chdr(ZLIB, 255 * MB) + zeros(255 * MB)
    for i in range(12):
        name = path if not i else '%s.%d' % (path, i)
        program(name, section('.eh_frame', data, EH, flags=COMPRESSED), section('.debug_frame', data, flags=COMPRESSED))


@hostile
def zstd_bomb(path):
    """.debug_frame that unpacks to 255 MB from 8 KB"""
    packed = subprocess.run(['zstd', '-q', '-3', '-c'], input=bytes(255 * MB), capture_output=True, check=True).stdout
    program(path, section('.debug_frame', chdr(ZSTD, 255 * MB) + packed, flags=COMPRESSED))


@hostile
def xz_bomb(path):
    """MiniDebugInfo that unpacks to 255 MB"""
    program(path, section('.gnu_debugdata', lzma.compress(bytes(255 * MB), preset=0)))


@hostile
def compressed_lies(path):
    """compressed sections that claim 16 EB, another format, nothing, and themselves"""
    z = zlib.compress(bytes(4096))
    program(path, section('.eh_frame', chdr(ZLIB, (1 << 64) - 1) + z, EH, flags=COMPRESSED),
            section('.debug_frame', chdr(77, 4096) + z, flags=COMPRESSED), section('.debug_info', b'', flags=COMPRESSED),
            section('.zdebug_line', b'ZLIB' + struct.pack('>Q', 1 << 60) + z), section('.symtab', chdr(ZSTD, 1) + z, kind=2, flags=COMPRESSED))


# ---- headers ----------------------------------------------------------------------------------------------
@hostile
def sections_wrap(path):
    """sections that begin and end beyond the address space and the file"""
    program(path, section('.eh_frame', At(0xffffffffffffff00, 0x1000), 0xfffffffffffff000),
            section('.symtab', At(0x7fffffffffffffff, 0x7fffffffffffffff), kind=2, link='.strtab', entry=24),
            section('.strtab', At(0, 0xffffffffffffffff), kind=3), section('.debug_info', At(64, 1 << 62)),
            section('.gnu_debugdata', At(1 << 63, 5)), section('.debug_line', At(0, 24), flags=COMPRESSED))


@hostile
def sections_overlap(path):
    """every section is the whole file"""
    whole = At(0, 12288)
    program(path, section('.eh_frame', whole, EH), section('.debug_frame', whole), section('.symtab', whole, kind=2, link='.strtab', entry=24),
            section('.strtab', whole, kind=3), *(section(n, whole) for n in ('.debug_info', '.debug_abbrev', '.debug_line', '.debug_str',
            '.gnu_debugdata', '.gopclntab', '.gnu_debuglink', '.gnu_debugaltlink', '.note.gnu.build-id')), size=16384)


@hostile
def sections_many(path):
    """60,000 sections of one name"""
    program(path, *[section('.eh_frame', b'', EH)] * 60000)


@hostile
def headers_many(path):
    """65,535 program headers and as many sections claimed"""
    program(path, section('.eh_frame', frames(b''), EH), headers=[phdr(1, 0x1000 * i, 0x10000000 + 0x1000 * i, 0) for i in range(20)],
            counts=(25, 65535), size=4 * MB)


@hostile
def file_huge(path):
    """a program of 8 TB, its sections at the far end"""
    program(path, section('.eh_frame', At((8 << 40) - 65536, 4096), EH), section('.symtab', At((8 << 40) - 32768, 24000), kind=2, link='.text', entry=24),
            size=8 << 40)


@hostile
def notes_endless(path):
    """notes of 0 and of 4 GB bytes where the build-id is looked for"""
    note = struct.pack('<III', 0, 0, 3) * 300000 + struct.pack('<III', 0xffffffff, 0xffffffff, 3)
    program(path, section('.note.gnu.build-id', note, 0x600000, kind=7), headers=lambda where: [phdr(4, where['.note.gnu.build-id'][0], 0x600000, len(note))])


# ---- symbols ----------------------------------------------------------------------------------------------
def symbol(name, value, size, kind=0x12):
    return struct.pack('<IBBHQQ', name, kind, 0, 1, value, size)


def with_symbols(path, symbols, names, **more):
    program(path, section('.symtab', symbols, kind=2, link='.strtab', entry=24), section('.strtab', names, kind=3), **more)


@hostile
def symbols_hole(path):
    """50 million symbols without contents"""
    with_symbols(path, Hole(24 * 50000000), b'\0a\0')


@hostile
def symbols_many(path):
    """a million symbols that overlap"""
    one = struct.Struct('<IBBHQQ')
    with_symbols(path, b''.join(one.pack(1, 0x12, 0, 1, CODE + (i * 2654435761 & 0xffff), 1 + (i & 0xfff)) for i in range(1000000)), b'\0same\0')


@hostile
def name_long(path):
    """a name of 64 MB"""
    with_symbols(path, symbol(0, 0, 0, 0) + symbol(1, CODE, 4096), b'\0' + b'A' * (64 * MB) + b'\0')


@hostile
def name_suffixes(path):
    """60,000 symbols whose names of 60 KB are parts of one"""
    with_symbols(path, symbol(0, 0, 0, 0) + b''.join(symbol(1 + i % 20, CODE + i % 64, 1) for i in range(60000)), b'\0' + b'B' * 60000 + b'\0')


@hostile
def name_open(path):
    """names that do not end, and that begin behind the table"""
    with_symbols(path, symbol(0, 0, 0, 0) + symbol(1, CODE, 16) + symbol(0xfffffff0, CODE + 16, 4000), b'\0' + b'C' * 5000)


@hostile
def names_mangled(path):
    """names that demangle to exponentially much, and deeply nested ones"""
    def seq(k):
        return b'S_' if not k else b'S' + b'0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ'[k - 1:k] + b'_'
    double = b'_Z1f3fooIiiE3fooIS_S_E' + b''.join(b'3fooI' + seq(k) * 2 + b'E' for k in range(1, 30))
    names, table = b'\0', bytearray(symbol(0, 0, 0, 0))
    for i, name in enumerate([double, b'_Z' + b'K' * 15000 + b'i', b'_R' + b'N' * 8000, b'_ZN' + b'1a' * 7000 + b'Ev', b'_R' + b'INv' * 3000,
                              b'_Z1fI' + b'St4pairI' * 900 + b'i' + b'E' * 901 + b'vv']):
        table += symbol(len(names), CODE + 2 * i, 2 if i < 5 else 4000)
        names += name + b'\0'
    with_symbols(path, bytes(table), names)


@hostile
def names_control(path):
    """names with control bytes, terminal sequences, markup, and another reading direction"""
    evil = b'\x1b[31m\x1b]0;x\x07<script>alert(1)</script>\n\t"\',;=cmd|calc!A0\xff\xc2\x9b\xe2\x80\xae\xe2\x80\xa8'
    with_symbols(path, symbol(0, 0, 0, 0) + symbol(1, CODE, 4096), b'\0' + evil + b'\0')


@hostile
def go_counts(path):
    """Go's function table, which claims 140 trillion functions"""
    head = struct.pack('<IBBBBQQQQQQQ', 0xfffffff1, 0, 0, 1, 8, 0x7fffffffffff, 0xffffffff, CODE, 8, 72, 72, 72)
    program(path, section('.gopclntab', head + b'\xff' * MB, 0x700000))


@hostile
def go_functions(path):
    """Go's function table with a million functions in one place"""
    n, one = 1000000, struct.Struct('<II')
    head = struct.pack('<IBBBBQQQQQQQ', 0xfffffff1, 0, 0, 1, 8, n, 0, CODE, 0x100, 0x200, 0x300, 0x400).ljust(0x400, b'\0')
    program(path, section('.gopclntab', head + b''.join(one.pack(i & 0xffff, 8 * n) for i in range(n)) + bytes(256), 0x700000))


# ---- debug information --------------------------------------------------------------------------------
ABBREV = (uleb(1) + uleb(0x11) + b'\1' + uleb(0x0e) + uleb(0x0e) + uleb(0x11) + uleb(0x01) + uleb(0x12) + uleb(0x07) + uleb(0x10) + uleb(0x17)
          + b'\0\0' + uleb(2) + uleb(0x1d) + b'\1' + uleb(0x31) + uleb(0x13) + uleb(0x11) + uleb(0x01) + uleb(0x12) + uleb(0x07) + b'\0\0\0')


def unit(children):
    """A compilation unit (DWARF 4) over the code, with these children."""
    body = struct.pack('<HIB', 4, 0, 8) + uleb(1) + struct.pack('<IQQI', 0, CODE, 4096, 0) + children
    return struct.pack('<I', len(body)) + body


@hostile
def dwarf_bomb(path):
    """debug sections that unpack to 6 GB"""
    size = 2000 * MB
    data = (chdr(ZLIB, size) + zeros(size)).ljust(size // 200 + 64, b'\0')
    program(path, section('.debug_info', unit(b'\0')), section('.debug_abbrev', ABBREV),
            *(section(n, data, flags=COMPRESSED) for n in ('.debug_str', '.debug_line', '.debug_ranges')))


@hostile
def dwarf_nested(path):
    """a million inlined calls in one another, each its own origin"""
    one = struct.Struct('<BIQQ')
    program(path, section('.debug_info', unit(b''.join(one.pack(2, 36, CODE, 4096) for _ in range(1000000)) + bytes(1000001))),
            section('.debug_abbrev', ABBREV), section('.debug_str', b'unit\0'), section('.debug_line', bytes(64)))


@hostile
def dwarf_lines(path):
    """a line program of 16 MB that never ends a sequence and goes back"""
    head = struct.pack('<BBBbBB', 1, 1, 1, -5, 14, 13) + b'\0\1\1\1\1\0\0\0\1\0\0\1' + b'\0' + b'a.c\0\0\0\0' + b'\0'
    body = struct.pack('<HI', 4, len(head)) + head + b'\0\x09\2' + struct.pack('<Q', CODE) + (b'\x14' * 200 + b'\0\x09\2' + struct.pack('<Q', CODE)) * 80000
    program(path, section('.debug_info', unit(b'\0')), section('.debug_abbrev', ABBREV), section('.debug_str', b'unit\0'),
            section('.debug_line', struct.pack('<I', len(body)) + body))


@hostile
def link_hole(path):
    """a debug link to a file of 8 TB without contents, whose checksum is wanted"""
    program(path, section('.gnu_debuglink', b'hole.debug\0\0' + struct.pack('<I', 1)))
    with open(os.path.join(os.path.dirname(path), 'hole.debug'), 'wb') as f:
        f.truncate(8 << 40)


@hostile
def link_fifo(path):
    """debug links to a FIFO, to a device and to itself"""
    here = os.path.dirname(path)
    for name, make in (('fifo.debug', os.mkfifo), ('zero.debug', lambda p: os.symlink('/dev/zero', p)), ('link.debug', lambda p: os.symlink('link.debug', p))):
        make(os.path.join(here, name))
    program(path, section('.gnu_debuglink', b'fifo.debug\0\0' + struct.pack('<I', 1)),
            section('.gnu_debugaltlink', os.fsencode(os.path.join(here, 'zero.debug')) + b'\0' + b'\1' * 20))


# ---- identity ---------------------------------------------------------------------------------------------
@hostile
def id_twice(path):
    """two programs with one build-id and different call frame information"""
    program(path, section('.eh_frame', frames(b''), EH), build_id=b'\7' * 20)
    program(path + '.1', section('.eh_frame', frames(cfa_expression(b'\x2f\xfd\xff')), EH), build_id=b'\7' * 20)


@hostile
def id_libc(path):
    """the build-id of libc, with call frame information of its own"""
    for line in open('/proc/self/maps'):
        if '/libc.so' in line or '/libc-' in line:
            libc = line.split()[-1]
    notes = subprocess.run(['readelf', '-n', libc], capture_output=True, text=True, check=True).stdout
    with_frames(path, frames(cfa_expression(b'\x2f\xfd\xff')), build_id=bytes.fromhex(notes.split('Build ID: ')[1].split()[0]))


@hostile
def interpreter(path):
    """an interpreter of its own, whose call frame information loops"""
    with_frames(path + '.1', frames(cfa_expression(b'\x2f\xfd\xff')), e_type=3)
    with_frames(path, frames(b''), interp=os.fsencode(path) + b'.1')


def make(name, directory):
    """Write the programs of one case. Return their paths; the interpreter of another is no program."""
    path = os.path.join(directory, name)
    OBJECTS[name](path)
    more = [] if name == 'interpreter' else [os.path.join(directory, n) for n in sorted(os.listdir(directory)) if n.startswith(name + '.')]
    return [path] + more
