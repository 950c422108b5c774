# Makes a capture file small: leaves out what it has of ELF files and its samples do not need, and which machine made it.
#   usage: small.py OFFWIND IN.owc OUT.owc
# FDEs stay if a frame is in their code. Where others were is a CIE that nobody uses, and the table of .eh_frame_hdr has
# those that are left, so the file stays a sound one. So do the symbols of these frames. Other sections are left out if
# all frames of all samples stay the same.
import bisect
import json
import os
import re
import struct
import subprocess
import sys
import zlib

EXPORTS = ("_PyRuntime", "Py_Version", "_PyEval_EvalFrameDefault")
# Keys of proto/capture.proto: number << 3 | kind.
IMAGE, HEADER, HEADER_DROPPED = 42, 34, (26, 34, 98, 162)  # host, kernel, boot_id, command
FILE_PIECE, PIECE_OFF, PIECE_CONTENT = 146, 8, 18
INDEX_FRAME, INDEX_FILE, FRAME_SIZE, FRAME_CONTENT_SIZE = 10, 18, 8, 16
FILE_PATH, FILE_FIRST, FILE_FRAMES = 10, 56, 64


def take_varint(data, at):
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            return value, at


def varint(value):
    out = bytearray()
    while value >= 128:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes(out) + bytes([value])


def fields(data):
    at = 0
    while at < len(data):
        key, at = take_varint(data, at)
        if key & 7 == 0:
            value, at = take_varint(data, at)
        else:
            size, at = (8, at) if key & 7 == 1 else take_varint(data, at)
            value, at = data[at : at + size], at + size
        yield key, value


def field(key, value):
    if key & 7 == 0:
        return varint(key) + varint(value)
    return varint(key) + (varint(len(value)) if key & 7 == 2 else b"") + value


def message(values):
    return b"".join(field(key, value) for key, value in values.items())


def zstd(data, *options):
    return subprocess.run(["zstd", "-q", "-c", *options], input=data, stdout=subprocess.PIPE, check=True).stdout


def records(frame):
    at = 0
    while at < len(frame):
        size, at = take_varint(frame, at)
        yield frame[at : at + size]
        at += size


def without_names(frame):
    """Return a frame without what it says of the machine: in the header, and a search path in the vDSO."""
    out = bytearray()
    for record in records(frame):
        values = list(fields(record))
        if any(key == HEADER for key, _ in values):
            header = b"".join(field(*f) for f in fields(dict(values)[HEADER]) if f[0] not in HEADER_DROPPED)
            record = b"".join(field(*f) for f in values if f[0] != HEADER) + field(HEADER, header)
        if any(key == IMAGE for key, _ in values):
            record = re.sub(rb"/[\w./-]{16,}", lambda path: bytes(len(path[0])), record)
        out += varint(len(record)) + record
    return bytes(out)


class File:
    """The bytes of an ELF file that a capture has; what it has not is zero."""

    def __init__(self, info, frames):
        self.info, self.content = info, bytearray()
        for frame in frames:
            for record in records(frame):
                piece = dict(fields(dict(fields(record))[FILE_PIECE]))
                off, bytes_ = piece.get(PIECE_OFF, 0), piece[PIECE_CONTENT]
                self.content.extend(bytes(max(0, off + len(bytes_) - len(self.content))))
                self.content[off : off + len(bytes_)] = bytes_

    def frame(self):
        """Return a frame with the pieces that are not zero."""
        out, at, end = bytearray(), 0, len(self.content)
        while at < end:
            if not self.content[at]:
                at += 1
                continue
            stop = self.content.find(bytes(32), at)
            stop = end if stop < 0 else stop
            piece = field(PIECE_OFF, at) + field(PIECE_CONTENT, bytes(self.content[at:stop]))
            record = field(FILE_PIECE, piece)
            out += varint(len(record)) + record
            at = stop
        return bytes(out)

    def path(self):
        return self.info[FILE_PATH].decode()

    def segment(self, kind):
        """Return a program header, as a tuple from p_type on."""
        off, size, n = struct.unpack_from("<Q14xHH", self.content, 32)
        for i in range(n):
            header = struct.unpack_from("<IIQQQQQQ", self.content, off + i * size)
            if header[0] == kind:
                return header
        raise ValueError("no such segment")

    def sections(self):
        """Return name, offset and size of all sections that are in the file."""
        off, size, n, names = struct.unpack_from("<Q10xHHH", self.content, 40)
        headers = [struct.unpack_from("<II16xQQ", self.content, off + i * size) for i in range(n)]
        names = headers[names][2]
        return [(self.text(names + name), at, length) for name, kind, at, length in headers if kind not in (0, 8)]

    def text(self, off):
        return self.content[off : self.content.index(0, off)].decode()

    def keep_symbols(self, addresses):
        """Keep the symbols of .dynsym that have one of these addresses, and what runtimes look for."""
        places = {name: (off, size) for name, off, size in self.sections()}
        (off, size), (names, names_size) = places[".dynsym"], places[".dynstr"]
        text = bytearray(names_size)
        for at in range(off + 24, off + size, 24):
            name, value, length = struct.unpack_from("<I4xQQ", self.content, at)
            word = self.text(names + name)
            if word in EXPORTS or any(value <= a < value + length for a in addresses):
                text[name : name + len(word)] = word.encode()
            else:
                self.content[at : at + 24] = bytes(24)
        self.content[names : names + names_size] = text

    def find_fdes(self):
        """Find .eh_frame and its table, whose addresses are relative to it (encodings 0x1b, 0x03, 0x3b)."""
        _, _, self.table, self.vaddr, *_ = self.segment(0x6474E550)
        if bytes(self.content[self.table : self.table + 4]) != b"\x01\x1b\x03\x3b":
            raise ValueError("another .eh_frame_hdr")
        bias = self.vaddr - self.table
        start = self.vaddr + 4 + struct.unpack_from("<i", self.content, self.table + 4)[0] - bias
        n = struct.unpack_from("<I", self.content, self.table + 8)[0]
        self.entries = [struct.unpack_from("<ii", self.content, self.table + 12 + i * 8) for i in range(n)]
        self.fdes, self.eh_frame = {}, start
        while struct.unpack_from("<I", self.content, start)[0]:
            size, cie = struct.unpack_from("<II", self.content, start)
            if cie:
                self.fdes[start] = size + 4
            start += size + 4
        self.end = start
        self.sound = bytes(self.content)

    def fdes_of(self, addresses):
        """Return where the FDEs of these addresses are."""
        begins = [entry[0] for entry in self.entries]
        places = {bisect.bisect(begins, address - self.vaddr) - 1 for address in addresses}
        return {self.table + self.entries[place][1] for place in places if place >= 0}

    def keep_fdes(self, kept):
        self.content[self.table : self.end] = self.sound[self.table : self.end]
        at = 0
        left = [e for e in self.entries if self.table + e[1] in kept]
        struct.pack_into("<I", self.content, self.table + 8, len(left))
        table = b"".join(struct.pack("<ii", *e) for e in left)
        self.content[self.table + 12 : self.table + 12 + len(self.entries) * 8] = table.ljust(len(self.entries) * 8, b"\0")
        gone = [(off, size) for off, size in self.fdes.items() if off not in kept]
        while at < len(gone):
            off, size = gone[at]
            while at + 1 < len(gone) and gone[at + 1][0] == off + size:
                at += 1
                size += gone[at][1]
            # A CIE without augmentation: version, code and data alignment, the return address's column, no rules.
            cie = struct.pack("<II", size - 4, 0) + b"\x01\x00\x01\x78\x10"
            self.content[off : off + size] = cie.ljust(size, b"\0")
            at += 1


class Capture:
    def __init__(self, path):
        with open(path, "rb") as file:
            data = file.read()
        off, size = struct.unpack("<QI", data[-24:-12])
        index = list(fields(data[off + 8 : off + 8 + size]))
        self.head, self.frames, self.files, at = data[:32], [], [], 32
        for _, value in (f for f in index if f[0] == INDEX_FRAME):
            info = dict(fields(value))
            self.frames.append((info, without_names(zstd(data[at : at + info[FRAME_SIZE]], "-d"))))
            at += info[FRAME_SIZE]
        self.first = len(self.frames)
        for _, value in (f for f in index if f[0] == INDEX_FILE):
            info = dict(fields(value))
            first = info[FILE_FIRST]
            self.first = min(self.first, first)
            mine = self.frames[first : first + info[FILE_FRAMES]]
            self.files.append(File(info, [content for _, content in mine]))
        self.last = max(f.info[FILE_FIRST] + f.info[FILE_FRAMES] for f in self.files)

    def write(self, path, level="-1"):
        frames = self.frames[: self.first] + [({}, f.frame()) for f in self.files] + self.frames[self.last :]
        body, index = bytearray(), bytearray()
        for info, content in frames:
            packed = zstd(content, level, "--check")
            index += field(INDEX_FRAME, message({**info, FRAME_SIZE: len(packed), FRAME_CONTENT_SIZE: len(content)}))
            body += packed
        for i, file in enumerate(self.files):
            index += field(INDEX_FILE, message({**file.info, FILE_FIRST: self.first + i, FILE_FRAMES: 1}))
        tail = struct.pack("<QII8s", 32 + len(body), len(index), zlib.crc32(index), b"OFFWIDX1")
        with open(path, "wb") as out:
            out.write(self.head + body + struct.pack("<II", 0x184D2A50, len(index) + 24) + index + tail)


def main():
    offwind, source, target = sys.argv[1:]
    capture = Capture(source)

    def result():
        capture.write(target)
        done = subprocess.run([offwind, "unwind", "-q", "--no-cache", "-f", "jsonl", target], capture_output=True,
                              env={**os.environ, "OFFWIND_DB": ""}, check=False)
        return done.returncode, done.stdout

    want = result()
    assert want[0] == 0 and want[1]
    frames = [f for line in want[1].splitlines() for f in json.loads(line)["frames"]]

    for file in capture.files:
        file.find_fdes()
        addresses = [int(f["address"], 16) for f in frames if f.get("module") == file.path()]
        kept = file.fdes_of(addresses)
        file.keep_fdes(kept)
        file.keep_symbols(addresses)
        assert result() == want
        for name, off, size in file.sections():
            before = bytes(file.content[off : off + size])
            if name in (".eh_frame", ".eh_frame_hdr") or not any(before):
                continue
            file.content[off : off + size] = bytes(size)
            if result() != want:
                file.content[off : off + size] = before
        print(file.path(), len(kept), "FDEs", len(zstd(file.frame(), "-19")), "bytes")
    assert result() == want
    capture.write(target, "-19")
    print(os.path.getsize(target), "bytes")


main()
