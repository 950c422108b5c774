#!/usr/bin/env bash
# Tests the call chains of perf record -g, which copies no stack, but whose kernel part walks the
# frame pointers: offwind takes these chains over, with as many frames as perf script shows and the
# same functions of the program.
set -eu
. tests/perf.sh
trap 'echo "line $LINENO fails: $BASH_COMMAND"' ERR
export LC_ALL=C
work=$BUILD/diff-chain
mkdir -p "$work"
cat > "$work/chain.c" <<'C'
static volatile long sum;
#define APART __attribute__((noinline, noclone))
APART void leaf(int n)
{
	for (int i = 0; i < n; i++)
		sum += i * i;
}
APART void middle(int n) { leaf(n); sum++; }
APART void outer(int n) { middle(n); sum++; }
int main(void)
{
	for (int i = 0; i < 40; i++)
		outer(3000000);
}
C
gcc -O1 -fno-omit-frame-pointer -fno-optimize-sibling-calls -o "$work/chain" "$work/chain.c"

# the functions of the program, and how many frames each sample has
ours() { "$BUILD/offwind" unwind -q --no-cache --format tsv --no-inline "$1" | awk -F'\t' 'NR > 1 { print $1, $5 }'; }
theirs() { perf script -i "$1" -F ip,sym 2> /dev/null | awk '!NF { n += last; last = 0; next } { last = 1; print n + 1, $2 }'; }

failed=0
for options in -g ""; do
	perf_record --buildid-mmap $options -F 499 -o "$work/chain.data" -- "$work/chain" 2> "$work/err"
	ours "$work/chain.data" > "$work/ours"
	theirs "$work/chain.data" > "$work/theirs"
	[ "$options" ] || # perf shows one line per sample
		perf script -i "$work/chain.data" -F ip,sym 2> /dev/null | awk 'NF { print ++n, $2 }' > "$work/theirs"
	if ! diff <(cut -d' ' -f1 "$work/ours") <(cut -d' ' -f1 "$work/theirs") > "$work/diff"; then
		echo "perf record $options: other frames (ours <, perf >):"
		head -n 5 "$work/diff"
		failed=1
	fi
	if ! diff <(grep -E ' (leaf|middle|outer|main)$' "$work/ours") \
		<(grep -E ' (leaf|middle|outer|main)$' "$work/theirs") > "$work/diff"; then
		echo "perf record $options: other functions (ours <, perf >):"
		head -n 5 "$work/diff"
		failed=1
	fi
	[ "$(grep -c ' leaf$' "$work/ours")" -gt 20 ] || { echo "perf record $options: no leaf"; failed=1; }
done
exit $failed
