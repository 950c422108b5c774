#!/usr/bin/env bash
# Tests that frames of JavaScript functions have their names, files and lines, with node's default options. The truth is
# what the program says of itself: tests/live/runtimes/truth.js.
set -u
. tests/wait.sh
[ "$(id -u)" = 0 ] || { echo "needs root"; exit 77; }
[ "$(uname -m)" = x86_64 ] || { echo "needs x86_64"; exit 77; }
command -v node >/dev/null || { echo "needs node"; exit 77; }
"$BUILD/offwind" doctor >/dev/null 2>&1 || [ $? = 3 ] || { echo "live recording does not work here; see offwind doctor"; exit 77; }
dir=$(mktemp -d)
trap 'kill $(jobs -p) 2>/dev/null; wait 2>/dev/null; rm -rf "$dir"' EXIT
offwind=$(realpath "$BUILD/offwind")
source=$(realpath tests/live/runtimes/truth.js)

fail() {
	echo "FAIL: $1"
	tail -n 5 "$dir/log"
	exit 1
}

# Where it waits, the names and files are those of Error().stack. V8's own functions (map) have no file there; they are
# native frames here.
node --version
node "$source" wait >"$dir/truth" 2>"$dir/log" &
pid=$!
until_or_dead $pid grep -q '^done' "$dir/truth" && until_or_dead $pid in_futex $pid || fail "the program that waits"
"$offwind" unwind -q --format tsv -o "$dir/pid.tsv" --pid $pid 2>"$dir/log" || fail "--pid"
kill $pid
grep -v -e '^done' -e $'\tnull$' "$dir/truth" >"$dir/want"
awk -F '\t' '$3 == "[v8]" { print $5 "\t" $10 }' "$dir/pid.tsv" >"$dir/got"
diff "$dir/want" "$dir/got" >"$dir/log" || { cat "$dir/log"; fail "the program's own stack"; }
echo "$(wc -l <"$dir/got") frames of the program that waits are as it says of itself"

# In random samples each function is on the line where it begins, and was called, perhaps by others that were inlined, from
# the one outside of it: the program's functions call each other in this order.
cat >"$dir/computing.awk" <<'A'
BEGIN {
	FS = "\t"
	n = split("(anonymous) descend|each größe closure|inner arrow make|get_price total|Shop namedExpression leaf", levels, " ")
	for (i = 1; i <= n; i++) {
		m = split(levels[i], names, "|")
		for (k = 1; k <= m; k++) { sub(/_/, " ", names[k]); level[names[k]] = i }
	}
}
NR == FNR { text[FNR] = $0; next }
function done() {
	if (!js) return
	samples++
	if (nameless || stop != "root") incomplete++
}
FNR == 1 { next }
$1 != sample { done(); sample = $1; js = nameless = 0; inner = 1000 }
{ stop = $8 }
$3 == "[jit]" || $5 == "Builtins_InterpreterEntryTrampoline" { nameless = 1 }
$3 == "[v8]" { js = 1 }
$3 == "[v8]" && $10 ~ /truth\.js$/ {
	frames++
	name = $5; short = name; sub(/^get /, "", short)
	if (!(name in level)) { print "no such function: " name; bad++; next }
	if (level[name] > inner) { print "sample " $1 ": " name " outside of " last; bad++ }
	if (name == "(anonymous)" ? $11 != 1 : index(text[$11], name == "inner" || name == "each" ? "function " name : short) == 0 && !(name == "Shop" && index(text[$11], "constructor"))) {
		print name " does not begin on line " $11; bad++ }
	inner = level[name]; last = name
}
END {
	done()
	printf "%d samples of JavaScript, %d not whole with all names; %d frames of the program, %d wrong\n", samples, incomplete, frames, bad
	exit !(samples > 200 && incomplete <= samples / 20 && frames > 400 && bad == 0)
}
A
"$offwind" record -q -F 499 --raw="$dir/a.owc" -f folded -o "$dir/live" -- node "$source" 4000000 2>"$dir/log" || fail "record"
"$offwind" unwind -q --format tsv -o "$dir/a.tsv" "$dir/a.owc" 2>"$dir/log" || fail "unwind"
awk -f "$dir/computing.awk" "$source" "$dir/a.tsv" || fail "computing"
"$offwind" unwind -q --format folded -o "$dir/later" "$dir/a.owc" 2>"$dir/log" || fail "folded"
diff <(sort "$dir/live") <(sort "$dir/later") >"$dir/log" || fail "live and later differ"

# Captured alone, nothing is walked while it is recorded, but all is read that a walk will need.
"$offwind" record -q -F 499 --raw -o "$dir/c.owc" -- node "$source" 4000000 2>"$dir/log" || fail "record --raw"
"$offwind" unwind -q --format tsv -o "$dir/c.tsv" "$dir/c.owc" 2>"$dir/log" || fail "unwind --raw"
awk -f "$dir/computing.awk" "$source" "$dir/c.tsv" || fail "computing, captured alone"
