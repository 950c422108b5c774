#!/usr/bin/env bash
# Opening ELF files with our reader and with elfutils' libelf: every program and library of the system, and two files
# that claim much.
set -u
work=$BUILD/bench
mkdir -p "$work"
make -s BUILD="$BUILD" "$BUILD"/tests/bench/elf_bench || exit 1
echo "libelf $(dpkg-query -W -f '${Version}' libelf-dev)"
find /usr/bin /usr/lib/x86_64-linux-gnu -maxdepth 1 -type f \( -perm /111 -o -name '*.so*' \) | sort | head -n 3000 |
	xargs "$BUILD/tests/bench/elf_bench"

# A sparse file of 1 GiB whose section names take all of it, and one that has as many sections as fit.
python3 - "$work" <<'PY'
import struct, sys
GIB = 1 << 30
def file(name, shnum, shstrndx, sections):
    with open(sys.argv[1] + '/' + name, 'wb') as f:
        f.write(struct.pack('<16sHHIQQQIHHHHHH', b'\x7fELF\2\1\1', 3, 62, 1, 0, 64, 4096, 0, 64, 56, 1, 64, shnum, shstrndx))
        f.write(struct.pack('<IIQQQQQQ', 1, 5, 0, 0, 0, 4096, 4096, 4096))
        f.seek(4096)
        f.write(sections)
        f.truncate(GIB)
def section(name, kind, off, size):
    return struct.pack('<IIQQQQIIQQ', name, kind, 0, 0, off, size, 0, 0, 1, 0)
file('elf_names', 3, 1, section(0, 0, 0, 0) + section(1, 3, 8192, GIB - 8192) + section(1, 1, 0, 64))
file('elf_sections', 0, 0, section(0, 0, 0, (GIB - 4096) // 64))
PY
for file in elf_names elf_sections; do
	"$BUILD/tests/bench/elf_bench" "$work/$file"
	rm -f "$work/$file"
done
