#!/usr/bin/env bash
# Tests the copy of kallsyms that perf stores beside the build-id of the recorded kernel, and that
# offwind stores if there is none. Kernel frames get the same names from the copy as from the kernel
# itself, unless the kernel's _text has another address.
set -eu
. tests/perf.sh
trap 'echo "line $LINENO fails: $BASH_COMMAND"' ERR
export LC_ALL=C
if ! grep -qv '^0* ' /proc/kallsyms; then
	echo "kallsyms hides its addresses from this user"
	exit 77
fi
work=$(mktemp -d "$BUILD/kept.XXXXXX")
trap 'rm -rf "$work"' EXIT
export HOME=$work/home
unset XDG_CACHE_HOME
mkdir "$HOME"
names() {
	"$BUILD/offwind" unwind "$work/perf.data" --format tsv --no-inline > "$work/$1" 2> "$work/err"
}
for _ in 1 2 3 4 5; do # BPF programs of others have names only while they exist
	rm -rf "$HOME/.cache"
	perf_record --buildid-mmap -F 999 --call-graph dwarf,4096 -o "$work/perf.data" -- \
		dd if=/dev/urandom of=/dev/null bs=1M count=100 status=none 2> "$work/perf.err"
	names live
	grep -qE $'\tbpf_(prog|trampoline|dispatcher)_' "$work/live" || break
done
id=$(perf buildid-list --kernel)
copy=$HOME/.debug/.build-id/${id:0:2}/${id:2}/kallsyms # where perf record stores it
mkdir -p "${copy%/*}"
[ "$(grep -c $'\t\\[kernel\\]\t' "$work/live")" -gt 100 ]

cat /proc/kallsyms > "$work/copy"
cp "$work/copy" "$copy"
names kept
cmp "$work/kept" "$work/live"

# Our own copy, which the first of these runs made.
own=$HOME/.cache/offwind/kallsyms-$id
[ "$(stat -c %a "$own" "${own%/*}" | tr '\n' ' ')" = "600 700 " ]
[ "$(ls "${own%/*}")" = "${own##*/}" ]
rm "$copy"
sed -i 's/ \([Tt]\) \([a-z]\)/ \1 own_\2/' "$own"
names own
grep -q $'\town_' "$work/own"
sed -i 's/^\(f*\)[0-9a-f]\([0-9a-f]*00000 T _text\)$/\1e\2/' "$own"
names again
cmp "$work/again" "$work/live"
grep -q ' T _text$' "$own" # made again
! grep -q ' T own_' "$own"

# Check that the copy was used: it has names that only it has.
awk '$2 ~ /[Tt]/ && $3 != "_text" { $3 = "kept_" $3 } { print }' "$work/copy" > "$copy"
names changed
grep -q $'\tkept_' "$work/changed"
# Now a copy of a boot that had _text at another address.
sed -i 's/^\(f*\)[0-9a-f]\([0-9a-f]*00000 T _text\)$/\1e\2/' "$copy"
names elsewhere
cmp "$work/elsewhere" "$work/live"
head -c 100000 /dev/urandom > "$copy"
names damaged
cmp "$work/damaged" "$work/live"
