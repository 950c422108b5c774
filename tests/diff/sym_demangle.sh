#!/usr/bin/env bash
# Compares demangled names of libstdc++, libLLVM and clang with those of c++filt -i.
set -eu
trap 'echo "line $LINENO fails: $BASH_COMMAND"' ERR
libdir=/usr/lib/$(uname -m)-linux-gnu
names=$BUILD/names
for f in "$libdir"/libstdc++.so.6 "$libdir"/libLLVM-14.so.1 /usr/lib/llvm-14/lib/libclang-cpp.so.14; do
	[ -f "$f" ] && nm -D "$f"
done | awk 'NF > 1 { sub(/@.*/, "", $NF); print $NF, $(NF - 1) }' | sort -u > "$names.types"
cut -d' ' -f1 "$names.types" | sort -u > "$names"
# Add clones, which dynamic symbols do not have; only functions have clones.
awk '/^_Z.* [TW]$/ && NR % 10 == 0 {
	print $1 ".cold"; print $1 ".constprop.0"; print $1 ".part.3.isra.1"; print $1 ".llvm.17"
}' "$names.types" > "$names.clones"
cat "$names.clones" >> "$names"
"$BUILD/tests/diff/sym_dump" demangle < "$names" > "$names.ours"
c++filt -i < "$names" > "$names.filt"
if ! diff "$names.ours" "$names.filt" > "$names.diff"; then
	echo "names differ (ours <, c++filt >):"
	head -n 20 "$names.diff"
	exit 1
fi
n=$(grep -c '(' "$names.ours")
echo "$(wc -l < "$names") names, $n with parameters"
[ "$n" -gt 5000 ]
