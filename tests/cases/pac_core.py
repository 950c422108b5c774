"""Signs the return addresses of an aarch64 core, with or without a note that says which bits the signatures take.

usage: pac_core.py CORE RETURN-ADDRESSES OUT SIGNED-ALONE

The signatures take bits 36 to 54 of code addresses, as with 36 bits of address.  The stack of this core lies
above 36 bits, so that only NT_ARM_PAC_MASK can say which bits they are.
"""
import struct
import sys

core, addresses, out, alone = sys.argv[1:]
MASK = 0x007ffff000000000
PAC = 0x002a555000000000
data = bytearray(open(core, 'rb').read())
want = {int(l, 16) for l in open(addresses)}
phoff, = struct.unpack_from('<Q', data, 32)
size, n = struct.unpack_from('<HH', data, 54)
signed = 0
for i in range(n):
    kind, flags, off, vaddr, _, filesz, _, _ = struct.unpack_from('<IIQQQQQQ', data, phoff + i * size)
    if kind == 4:
        note = i, off, filesz
    if kind != 1 or not flags & 2:
        continue
    for at in range(off, off + filesz - 7, 8):
        word, = struct.unpack_from('<Q', data, at)
        if word in want:
            struct.pack_into('<Q', data, at, word | PAC)
            signed += 1
open(alone, 'wb').write(data)
i, off, filesz = note
notes, at = bytearray(), off
while at < off + filesz:
    name, desc, kind = struct.unpack_from('<III', data, at)
    end = at + 12 + (name + 3 & ~3) + (desc + 3 & ~3)
    notes += data[at:end]
    if kind == 1:  # NT_PRSTATUS; struct user_pac_mask of that thread follows
        notes += struct.pack('<III8sQQ', 6, 16, 0x406, b'LINUX', MASK, MASK)
    at = end
struct.pack_into('<Q', data, phoff + i * size + 8, len(data))
struct.pack_into('<Q', data, phoff + i * size + 32, len(notes))
open(out, 'wb').write(data + notes)
sys.exit(0 if signed >= 4 else 1)
