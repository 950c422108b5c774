"""Walks a stopped thread of a Go program as Go's own tracebacks do, with .gopclntab only.

It follows Go's runtime/symtab.go and traceback.go (1.16 to 1.20), for x86_64, and shares no code with
what it is compared to.  It needs only sp and pc.
"""
import struct

HEADERS = {0xfffffffa: (None, 2, 5, 6), 0xfffffff0: (2, 3, 6, 7), 0xfffffff1: (2, 3, 6, 7)}
TOP, SP_WRITE = 1, 2


class Table:
    """The table of an executable that is mapped at the addresses it was linked for."""

    def __init__(self, path):
        image = open(path, 'rb').read()
        self.functions = []
        shoff, = struct.unpack_from('<Q', image, 40)
        size, n, names = struct.unpack_from('<3H', image, 58)
        headers = [struct.unpack_from('<IIQQQQ', image, shoff + i * size) for i in range(n)]
        at = [h for h in headers if image[headers[names][4] + h[0]:].startswith(b'.gopclntab\0')]
        if image[16] != 2 or not at:
            return
        data = self.data = image[at[0][4]:at[0][4] + at[0][5]]
        magic, _, _, pointer = struct.unpack_from('<IHBB', data)
        if magic not in HEADERS or pointer != 8:
            return
        word = lambda i: struct.unpack_from('<Q', data, 8 + 8 * i)[0]
        text, names, values, records = HEADERS[magic]
        start = word(text) if text else 0
        width = 4 if text else 8
        form = '<2I' if text else '<2Q'
        for i in range(word(0)):
            entry, record = struct.unpack_from(form, data, word(records) + 2 * width * i)
            record += word(records)
            name, _, _, frame = struct.unpack_from('<4I', data, record + width)
            name = data[word(names) + name:]
            name = name[:name.index(b'\0', 0, 200) if b'\0' in name[:200] else 200].decode('utf-8', 'replace')
            flags = data[record + width + (37 if magic == 0xfffffff1 else 33)]
            self.functions.append((entry + start, name, frame and frame + word(values), flags))
        self.functions.sort()

    def find(self, pc):
        low, high = 0, len(self.functions)
        while low < high:
            middle = (low + high) // 2
            if self.functions[middle][0] <= pc:
                low = middle + 1
            else:
                high = middle
        return self.functions[low - 1] if low else None

    def leb(self, at):
        value = shift = 0
        while True:
            value |= (self.data[at] & 127) << shift
            shift += 7
            at += 1
            if self.data[at - 1] < 128:
                return value, at

    def come_down(self, function, pc):
        """Return how far sp has moved down in the function at pc; None if the table ends before."""
        at, value, end = function[2], -1, function[0]
        while at:
            change, at = self.leb(at)
            if not change and end != function[0]:
                return None
            value += ~(change >> 1) if change & 1 else change >> 1
            units, at = self.leb(at)
            end += units
            if pc < end:
                return value
        return None


def walk(table, read, is_trampoline, pc, sp):
    """Return the pcs, and whether they are complete: no caller is expected where Go itself gives up."""
    word = lambda addr: struct.unpack('<Q', read(addr, 8).ljust(8, b'\0'))[0]
    frames, exact = [pc], True
    while len(frames) < 1000:
        if is_trampoline(pc):  # the kernel's struct ucontext is at sp; its rsp and rip
            sp, pc, exact = word(sp + 160), word(sp + 168), True
            frames.append(pc)
            continue
        function = table.find(pc if exact else pc - 1)
        down = function and table.come_down(function, pc if exact else pc - 1)
        if down is None:
            return frames, False
        name = function[1]
        if name in ('runtime.goexit', 'runtime.rt0_go') or (
                not exact and (name == 'runtime.clone' or
                               function[3] & (TOP | SP_WRITE) and name not in ('runtime.mstart', 'runtime.sigtramp'))):
            return frames, True
        pc = word(sp + down)
        sp += down + 8
        exact = False
        frames.append(pc)
    return frames, False
