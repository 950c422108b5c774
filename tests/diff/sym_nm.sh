#!/usr/bin/env bash
# Compares symbol tables of installed binaries with readelf's symbols and eu-addr2line (classes of
# difference: sym_nm.md) and with those of what a capture stores of each, and PLT names with objdump; then the same without
# section headers.
set -u
libdir=/usr/lib/$(uname -m)-linux-gnu
files=0 failures=0
for f in /bin/bash "$libdir"/libc.so.6 "$libdir"/libm.so.6 "$libdir"/libstdc++.so.6 \
	"$libdir"/libcrypto.so.3 "$libdir"/libsqlite3.so.0 "$libdir"/libelf.so.1 "$libdir"/libLLVM-14.so.1 \
	"$libdir"/libpython3.*.so.1.0 /usr/bin/python3.[0-9]* /usr/bin/git /usr/bin/perf /usr/bin/node \
	"$BUILD"/offwind "$BUILD"/tests/unit/test_sym_table; do
	[ -f "$f" ] && readelf -h "$f" > /dev/null 2>&1 || continue
	files=$((files + 1))
	python3 tests/diff/sym_nm.py "$BUILD/tests/diff/sym_dump" "$f" 400 || failures=$((failures + 1))
	"$BUILD/tests/diff/sym_dump" table "$f" > "$BUILD/file.names"
	"$BUILD/tests/diff/sym_dump" extract "$f" | diff "$BUILD/file.names" - > "$BUILD/extract.diff" || {
		echo "$f: a capture stores less than its symbols"; head -n 10 "$BUILD/extract.diff"; failures=$((failures + 1)); }
done
[ $files -ge 10 ] || { echo "only $files files to compare"; exit 1; }

names=0
for f in /bin/bash "$libdir"/libc.so.6 "$libdir"/libstdc++.so.6 "$libdir"/libsqlite3.so.0; do
	"$BUILD/tests/diff/sym_dump" table "$f" | awk '/@plt$/ { print $1, $3 }' | sort > "$BUILD/plt.ours"
	objdump -d -j .plt -j .plt.sec -j .plt.got "$f" 2> /dev/null |
		sed -nE 's/^([0-9a-f]+) <(.*@plt)>:$/\1 \2/p' | sort > "$BUILD/plt.objdump"
	diff "$BUILD/plt.ours" "$BUILD/plt.objdump" > "$BUILD/plt.diff" || {
		echo "$f: PLT names are not objdump's"; head -n 10 "$BUILD/plt.diff"; failures=$((failures + 1)); }
	names=$((names + $(wc -l < "$BUILD/plt.ours")))
done

# Without section headers, and with them cut off, PT_DYNAMIC leads to the same dynamic symbols.
printf 'int used(void);\nint used(void) { return 1; }\n' > "$BUILD/narrow.c"
gcc -m32 -nostdlib -shared -fPIC -Wl,--hash-style=sysv -o "$BUILD/narrow.so" "$BUILD/narrow.c" || exit 1
for f in /bin/bash "$libdir"/libc.so.6 "$libdir"/libstdc++.so.6 "$BUILD/narrow.so"; do
	strip -o "$BUILD/headers" "$f"
	"$BUILD/tests/diff/sym_dump" table "$BUILD/headers" | grep -v '@plt$' | cut -d' ' -f1,3 > "$BUILD/headers.names"
	for how in none cut; do
		python3 - "$f" "$BUILD/headers" $how <<-'PY'
			import struct, sys
			b = bytearray(open(sys.argv[1], "rb").read())
			at, form, count = (40, "<Q", 60) if b[4] == 2 else (32, "<I", 48)  # e_shoff, e_shnum
			start = struct.unpack_from(form, b, at)[0]
			if sys.argv[3] == "none":
			    struct.pack_into(form, b, at, 0)
			    struct.pack_into("<HH", b, count, 0, 0)
			else:
			    del b[start + 1:]
			open(sys.argv[2], "wb").write(b)
		PY
		"$BUILD/asan/tests/diff/sym_dump" table "$BUILD/headers" 2> "$BUILD/headers.err" |
			cut -d' ' -f1,3 | diff - "$BUILD/headers.names" > "$BUILD/headers.diff" || {
			echo "$f, section headers $how: other symbols"
			head -n 10 "$BUILD/headers.diff"
			failures=$((failures + 1))
		}
	done
	[ -s "$BUILD/headers.names" ] || failures=$((failures + 1))
done
echo "$files files, $names PLT names"
[ $failures -eq 0 ] && [ $names -gt 100 ]
