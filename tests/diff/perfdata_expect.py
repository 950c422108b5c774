#!/usr/bin/env python3
"""Turns the output of `perf script -D -F event,period` for a recording into the lines of perfdata_dump.

usage: perfdata_expect.py [BUILDIDS] < DUMP

BUILDIDS is the output of `perf buildid-list -i FILE`.  The contents of a record come from perf's words;
only the stack bytes come from its hex dump.
"""
import re
import struct
import sys
import zlib

# psABI, figure 3.36, with perf's names; AADWARF64 section 4.1
DWARF = {"AX": 0, "DX": 1, "CX": 2, "BX": 3, "SI": 4, "DI": 5, "BP": 6, "SP": 7, "IP": 16}
DWARF.update({"R%d" % n: n for n in range(8, 16)})
PROT = {"r": 1, "w": 2, "x": 4}
CONTEXT_MAX, CONTEXT_KERNEL = 2**64 - 4095, 2**64 - 128

ids = {}
if len(sys.argv) > 1:
    for line in open(sys.argv[1], errors="surrogateescape"):
        build_id, _, name = line.rstrip("\n").partition(" ")
        ids[name] = build_id
kernel_id = ids.get("[kernel.kallsyms]", "")

HEAD = re.compile(r"^(?:(\d+) )?(-?\d+) 0x[0-9a-f]+(?:@\S+)? \[0x[0-9a-f]+\]: PERF_RECORD_(\w+)(.*)$")
MAP = re.compile(r"^ (-?\d+)/(-?\d+): \[(?:0x)?([0-9a-f]+)\((?:0x)?([0-9a-f]+)\) @ (?:0x)?([0-9a-f]+)"
                 r"(?: ([0-9a-f]+):([0-9a-f]+) (\d+) (\d+)| <([0-9a-f]*)>)?\]: (\S+) (.*)$", re.S)
SAMPLE = re.compile(r"^\(IP, 0x([0-9a-f]+)\): (-?\d+)/(-?\d+): 0x([0-9a-f]+) period: (\d+)")


def mapping(time, text):
    m = MAP.match(text)
    if not m:
        sys.exit("not understood: " + text)
    pid, tid, start, size, off, major, minor, ino, gen, build_id, prot, path = m.groups()
    bits = sum(PROT.get(c, 0) for c in prot)
    if len(prot) == 1:  # MMAP says no more than executable or not
        bits = 5 if prot == "x" else 3
    if not build_id:
        build_id = ids.get(path, kernel_id if path.startswith("[kernel.kallsyms]") else "")
    deleted = path.endswith(" (deleted)")
    if deleted:
        path = path[:-10]
    start, size = int(start, 16), int(size, 16)
    if size:
        print("mapping %s/%s %s %x-%x off %x prot %d dev %x:%x ino %s %s%s id %s %s" % (
            pid, tid, time, start, min(start + size, 2**64 - 1), int(off, 16), bits,
            int(major or "0", 16), int(minor or "0", 16), ino or 0, gen or 0,
            " deleted" if deleted else "", build_id, path))


def sample(cpu, time, text, lines, raw):
    misc, pid, tid, ip, period = SAMPLE.match(text).groups()
    mode, ip = int(misc, 16) & 7, int(ip, 16)
    chain, regs, abi, stack, events, users = [], {}, None, None, [], False
    for line in lines:
        if m := re.match(r"^\.\.\.\.\.\s+\d+: ([0-9a-f]{16})$", line):
            chain.append(int(m[1], 16))
        elif m := re.match(r"^\.\.\. user regs: mask 0x[0-9a-f]+ ABI (\S+)", line):
            abi, users = m[1], True
        elif line.startswith("... intr regs:"):
            users = False
        elif users and (m := re.match(r"^\.\.\.\. (\w+)\s+0x([0-9a-f]+)$", line)):
            regs[m[1]] = int(m[2], 16)
        elif m := re.match(r"^\.\.\. ustack: size (\d+), offset 0x([0-9a-f]+)", line):
            stack = int(m[1]), int(m[2], 16)
        elif m := re.match(r"^\s*(\d+)\s+(\S+):\s*$", line):
            events.append((m[2], m[1]))
    kernel, inside = [], mode == 1
    for entry in chain:
        if entry >= CONTEXT_MAX:
            inside = entry == CONTEXT_KERNEL
        elif inside:
            kernel.append(entry)
    if mode == 1 and not kernel:
        kernel = [ip]
    known = {DWARF[name]: value for name, value in regs.items() if name in DWARF}
    if abi is None and mode == 2 and not WANTS_REGS:
        known, abi = {16: ip}, "64-bit"
    out = ""
    # perf's offset is that of the size; the bytes follow it.
    size = stack and struct.unpack_from("<Q", raw, stack[1])[0]
    out += " user" if known else ""
    out += " compat" if abi == "32-bit" else ""
    out += " cut" if stack and known and stack[0] and stack[0] == size else ""
    out += "".join(" r%d=%x" % (reg, known[reg]) for reg in sorted(known))
    if stack and known and stack[0]:
        out += " stack %x+%d crc %x" % (known[7], stack[0],
                                        zlib.crc32(raw[stack[1] + 8:stack[1] + 8 + stack[0]]))
    if kernel:
        out += " kernel" + "".join(" %x" % entry for entry in kernel)
    # Of a group there is one for each event that has occurred since the last sample.
    for event, count in events or [("?", period)]:
        print("sample %s/%s %s %s cpu %s period %s" % (pid, tid, time, event, cpu or 0, count) + out)


def tell(head, lines, raw):
    cpu, time, kind, text = head.groups()
    if kind in ("MMAP", "MMAP2"):
        # A path with newlines goes on in the lines behind it, up to an empty one.
        mapping(time, "\n".join([text] + lines[:(lines + [""]).index("")]))
    elif kind == "COMM":
        # Any program on this machine may have a name with newlines.
        text = "\n".join([text] + lines)
        execs, comm, pid, tid = re.match(r"( exec)?: (.*):(-?\d+)/(-?\d+)\s*$", text, re.S).groups()
        if execs:
            print("exec %s/%s %s" % (pid, tid, time))
        print("comm %s/%s %s %s" % (pid, tid, time, comm))
    elif kind in ("FORK", "EXIT"):
        pid, tid, ppid, ptid = re.match(r"^\((-?\d+):(-?\d+)\):\((-?\d+):(-?\d+)\)$", text).groups()
        if kind == "EXIT":
            print("exit %s/%s %s" % (pid, tid, time))
            return
        print("fork %s/%s %s from %s/%s" % (pid, tid, time, ppid, ptid))
        if time == "0" and pid != ppid:  # perf found it running, and tells its mappings itself
            print("exec %s/%s %s" % (pid, tid, time))
    elif kind in ("LOST", "LOST_SAMPLES"):
        n = int(re.search(r"(\d+)$", text)[1])
        if time == "0":  # perf's own count at the end, which includes what the kernel said before
            lost["counted"] += n
            return
        lost["told"] += n
        print("lost 0/0 %s reason 0 samples %s sideband 0" % (time, n))
    elif kind == "SAMPLE":
        sample(cpu, time, text, lines, raw)


lost = {"told": 0, "counted": 0}
dump = sys.stdin.read().split("\n")
WANTS_REGS = any(line.startswith("... user regs:") for line in dump)
head, lines, raw, newest = None, [], bytearray(), 0
for line in dump:
    if m := re.match(r"^\.  [0-9a-f]{4,}:((?:  ?[0-9a-f]{2}){1,16})", line):
        raw += bytes.fromhex(m[1])
    elif re.match(r"^(?:0x)?[0-9a-f]+@?\S* \[0x[0-9a-f]+\]: event: \d+", line):
        if head:
            tell(head, lines, raw)
        head, lines, raw = None, [], bytearray()
    elif m := HEAD.match(line):
        head, newest, lines = m, max(newest, int(m[2])), []
    else:
        lines.append(line)
if head:
    tell(head, lines, raw)
if lost["counted"] > lost["told"]:
    print("lost 0/0 %d reason 0 samples %d sideband 0" % (newest, lost["counted"] - lost["told"]))
