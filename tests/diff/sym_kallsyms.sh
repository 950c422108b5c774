#!/usr/bin/env bash
# Tests the lookup of every code symbol of the running kernel, at its first byte and at the last
# byte before the next symbol of the same module; awk and sort compute the expected symbols.
set -eu
trap 'echo "line $LINENO fails: $BASH_COMMAND"' ERR
export LC_ALL=C
copy=$BUILD/kallsyms
cat /proc/kallsyms > "$copy"
if ! grep -qv '^0* ' "$copy"; then
	echo "kallsyms hides its addresses from this user"
	exit 77
fi
# The best name of each address comes first; symbols that are not code remain as ends.
awk '{
	code = $2 ~ /^[TtWw]$/
	rank = $2 == "T" ? 0 : $2 == "t" ? 2 : 1
	match($3, /^_*/)
	print $1, !code, rank, RLENGTH, length($3), $3, $4
}' "$copy" | sort -k1,1 -k2,2n -k3,3n -k4,4n -k5,5n -k6,6 | awk '$1 != last { print; last = $1 }' > "$copy.best"
awk '
# The address before, as text: awk counts in doubles.
function before(a,    i, d, tail) {
	for (i = length(a); (d = substr(a, i, 1)) == "0"; i--)
		tail = tail "f"
	return substr(a, 1, i - 1) substr("0123456789abcde", index("123456789abcdef", d), 1) tail
}
$1 ~ /^0*$/ { next }
{
	if (code && module == $7)
		print before($1), name
	code = !$2
	module = $7
	name = $6 ($7 == "" ? "" : " " $7)
	if (code)
		print $1, name
}' "$copy.best" > "$copy.expected"
cut -d' ' -f1 "$copy.expected" | "$BUILD/tests/diff/sym_dump" kernel "$copy" > "$copy.ours"
cut -d' ' -f2- "$copy.expected" | diff "$copy.ours" - > "$copy.diff" || {
	echo "names differ (ours <, awk >):"
	head -n 20 "$copy.diff"
	exit 1
}
n=$(wc -l < "$copy.expected")
echo "$n addresses"
[ "$n" -gt 10000 ]
