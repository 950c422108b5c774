#!/usr/bin/env bash
# Tests that frames of JavaScript functions have their names, files and lines, with node's default options. The truth is
# what the program says of itself: tests/live/runtimes/truth.js. TEST_ROOT: tests/root.sh.
set -u
. tests/wait.sh
[ "$(id -u)" = 0 ] || { echo "needs root"; exit 77; }
[ "$(uname -m)" = x86_64 ] || { echo "needs x86_64"; exit 77; }
"$BUILD/offwind" doctor >/dev/null 2>&1 || [ $? = 3 ] || { echo "live recording does not work here; see offwind doctor"; exit 77; }
dir=$(mktemp -d)
. tests/root.sh
trap 'kill $(jobs -p) 2>/dev/null; wait 2>/dev/null; rm -rf "$dir" "$root$dir"' EXIT
is_inside node || { echo "needs node"; exit 77; }
offwind=$(realpath "$BUILD/offwind")
source=$dir/truth.js
cp tests/live/runtimes/truth.js "$root$source" || exit 1

fail() {
	echo "FAIL: $1"
	tail -n 5 "$dir/log"
	exit 1
}

# Where it waits, in optimized code with calls that were inlined, the names, files and lines are those of Error().stack. Only
# the innermost function has the line where it begins: V8 is in a call of its own there. V8's own
# functions (map) have no file there; they are native frames here, or have no file.
"${inside[@]}" node --version
"${inside[@]}" node "$source" wait >"$dir/truth" 2>"$dir/log" &
pid=$!
until_or_dead $pid grep -q '^done' "$dir/truth" && until_or_dead $pid in_futex $pid || fail "the program that waits"
"$offwind" unwind -q ${root:+--symfs "$root"} --format tsv -o "$dir/pid.tsv" --pid $pid 2>"$dir/log" || fail "--pid"
kill $pid
grep -v -e '^done' -e $'\tnull\t' "$dir/truth" >"$dir/want"
awk -F '\t' '$3 == "[v8]" && $10 != "-" { print $5 "\t" $10 "\t" $11 }' "$dir/pid.tsv" >"$dir/got"
sed -i "1s/[0-9]*$/$(grep -n '^function pause' "$root$source" | cut -d: -f1)/" "$dir/want"
diff "$dir/want" "$dir/got" >"$dir/log" || { cat "$dir/log"; fail "the program's own stack"; }
echo "$(wc -l <"$dir/got") frames of the program that waits are as it says of itself"

# In random samples each function is on the line where it begins, or where it calls the next one. Each was called from the one
# outside of it: the program's functions call each other in this order. No call between two others is missing.
cat >"$dir/computing.awk" <<'A'
BEGIN {
	FS = "\t"
	n = split("(anonymous) descend|each größe closure|inner arrow make|get_price total|Shop namedExpression leaf", levels, " ")
	for (i = 1; i <= n; i++) {
		m = split(levels[i], names, "|")
		for (k = 1; k <= m; k++) { sub(/_/, " ", names[k]); level[names[k]] = i }
	}
	n = split("descend descend( each .map( größe größe( closure closure(n) inner closure(n)( arrow arrow( make Shop.make( get_price .price " \
		"total this.total( Shop new_Shop( namedExpression named( leaf tasks[", texts, " ")
	for (i = 1; i < n; i += 2) { gsub(/_/, " ", texts[i]); gsub(/_/, " ", texts[i + 1]); call[texts[i]] = texts[i + 1] }
}
NR == FNR { text[FNR] = $0; next }
function done() {
	if (!js) return
	samples++
	if (nameless || stop != "root") incomplete++
}
function begins(name, line,	short) {
	short = name
	sub(/^get /, "", short)
	return name == "(anonymous)" ? line == 1 : index(text[line], name == "inner" || name == "each" ? "function " name : short) || (name == "Shop" && index(text[line], "constructor"))
}
FNR == 1 { sample = ""; next }
$1 != sample { done(); sample = $1; js = nameless = kernel = other = 0; inner = 1000; last = "" }
{ stop = $8 }
$3 == "[jit]" || $5 == "Builtins_InterpreterEntryTrampoline" { nameless = 1; last = "?" }
$3 == "[v8]" { js = 1 }
$3 == "[kernel]" { kernel++; next }
$3 != "[v8]" { other = 1 }
$3 == "[v8]" && $10 ~ /truth\.js$/ {
	# Of a function whose file was not read in time only the name is known.
	if ($11 == "-") { nameless = 1; inner = level[$5]; last = "?"; next }
	frames++
	name = $5
	if (!(name in level)) { print "no such function: " name; bad++; next }
	if (level[name] > inner) { print "sample " $1 ": " name " outside of " last; bad++ }
	# What calls a function that just begins, or ends, is not found by the frame pointer. Where it ends, the code can have the
	# position of functions that were inlined.
	follows = level[name] >= inner - 1
	if (last != "" && last != "?" && !follows) {
		if (first == $2 - 1) { skipped++ } else if (first >= 0 && !other) { skipped++; inlined++ } else { print "sample " $1 ": " name " outside of " last; bad++ }
	}
	if (last == "") {
		first = $2 == kernel ? $2 : -1
		for (from = $11; from > $11 - 8 && !begins(name, from); from--);
		if (name != "(anonymous)" && from == $11 - 8) { print "sample " $1 ": " name " on line " $11; bad++ }
	}
	checked = last != "" && last != "?" && follows
	if (checked && index(text[$11], call[last])) lines++
	else if (checked && !begins(name, $11)) { print "sample " $1 ": " name " on line " $11 " outside of " last; bad++ }
	inner = level[name]; last = name
}
END {
	done()
	printf "%d samples of JavaScript, %d not whole with all names; %d frames of the program, %d on the line of a call, %d wrong; %d callers skipped\n", samples, incomplete, frames, lines, bad, skipped
	if (bad == 0 && samples > 200 && (incomplete > samples / 20 || skipped > samples / 50 || inlined > samples / 200)) exit 2
	exit !(samples > 200 && frames > 400 && lines > 400 && bad == 0)
}
A
# Record the program that computes, and look at its capture. Names are read while it runs, and not while samples are late or memory
# is slow to answer: on a busy machine, again.
computing() { # WHAT CAPTURE OPTION…
	"$offwind" record -F 499 "${@:3}" -- "${inside[@]}" node "$source" 5000000 2>"$dir/log" || fail "record, $1"
	! grep 'functions are not named' "$dir/log" || fail "it says that they have no names"
	"$offwind" unwind -q ${root:+--symfs "$root"} --format tsv -o "$dir/a.tsv" "$2" 2>"$dir/log" || fail "unwind, $1"
	awk -f "$dir/computing.awk" "$root$source" "$dir/a.tsv"
}
again computing "computing" "$dir/a.owc" --raw="$dir/a.owc" -f folded -o "$dir/live" || fail "computing"
"$offwind" unwind -q ${root:+--symfs "$root"} --format folded -o "$dir/later" "$dir/a.owc" 2>"$dir/log" || fail "folded"
diff <(sort "$dir/live") <(sort "$dir/later") >"$dir/log" || fail "live and later differ"
# Another machine: without node's file, and without the store. The capture has the code by which return addresses out of
# generated code are checked, and that shows the frames of V8's own functions.
away() { # CAPTURE
	unshare -m sh -c 'mount --bind /dev/null "$2" && exec "$0" unwind -q --no-cache --format folded "$1"' \
		"$offwind" "$1" "$(realpath "$(command -v node)")" 2>"$dir/log"
}
[ -n "$root" ] || diff <(sort "$dir/live") <(away "$dir/a.owc" | sort) >"$dir/diff" || { head -c 2000 "$dir/diff"; fail "another machine differs"; }

# Where optimized code is interrupted, at any instruction, the line is the one of V8's own profiler, also in a function that was
# inlined: a sample has both functions.
operations() { # N
	for ((k = 0; k < $1; k++)); do printf 's = Math.imul(s, 5) + 1 | 0; '; done
	echo
}
cat >"$root$dir/lines.js" <<JS
function inner(s) {
	$(operations 10)
	$(operations 20)
	return s
}
function outer(n) {
	let s = 1
	for (let i = 0; i < n; i++) {
		$(operations 10)
		s = inner(s)
		$(operations 20)
	}
	return s
}
// 1.5 s of CPU time, however fast the machine is.
while (process.cpuUsage().user < 1.5e6)
	for (let i = 0; i < 10; i++)
		outer(5000)
JS
"${inside[@]}" node --cpu-prof --cpu-prof-interval 2000 --cpu-prof-dir="$dir" "$dir/lines.js" || fail "V8's profiler"
cat >"$dir/optimized.py" <<'P'
import collections, json, sys

theirs, ours, callers, last = collections.Counter(), collections.Counter(), collections.Counter(), None
for node in json.load(open(sys.argv[2]))["nodes"]:
    for tick in node.get("positionTicks", []):
        theirs[node["callFrame"]["functionName"], tick["line"]] += tick["ticks"]
for line in open(sys.argv[1]):
    f = line.rstrip("\n").split("\t")
    if f[1] == "0":
        last = None
        if f[2] == "[v8]" and f[10] != "-":
            last = f[4], int(f[10])
            ours[last] += 1
    elif f[1] == "1" and last and last[0] == "inner" and last[1] > 1:
        callers[f[4], f[10]] += 1

def shares(counts):
    some = {k: n for k, n in counts.items() if k[0] in ("inner", "outer")}
    n = sum(some.values())
    return {k: 100 * v / n for k, v in some.items()}, n

(a, n), (b, m) = shares(ours), shares(theirs)
far = {k: (round(a.get(k, 0)), round(b.get(k, 0))) for k in {*a, *b} if abs(a.get(k, 0) - b.get(k, 0)) > 12}
inlined = callers["outer", "10"] / max(1, sum(callers.values()))
print(f"{n} samples in optimized code, on {len(a)} lines; V8's profiler has {m}; {100 * inlined:.0f} % of those in the inner function "
      f"are on the line of its call; shares that differ: {far or 'none'}")
# Names are not read while samples are late on a busy machine: then another recording tells.
sys.exit(1 if m < 200 or len(far) else 2 if n < 200 or inlined < 0.95 else 0)
P
optimized() {
	"$offwind" record -q -F 499 --raw -o "$dir/o.owc" -- "${inside[@]}" node "$dir/lines.js" 2>"$dir/log" || fail "record optimized code"
	"$offwind" unwind -q ${root:+--symfs "$root"} --format tsv -o "$dir/o.tsv" "$dir/o.owc" 2>"$dir/log" || fail "unwind optimized code"
	python3 "$dir/optimized.py" "$dir/o.tsv" "$root$dir"/*.cpuprofile
}
again optimized || fail "optimized code"

# Where interpreted code is interrupted, the name of V8's code for the operation tells the line. Nothing here generates code.
cat >"$root$dir/loop.js" <<'JS'
function loop(n, o) {
	for (let i = 0; i < n; i++) {
		o.s = i
		o.s % 7
		o.s ^ i
		if (n === 1)
			new Error().stack
	}
}
loop(1, {})
// 1.5 s of CPU time, however fast the machine is.
while (process.cpuUsage().user < 1.5e6)
	for (let i = 0; i < 1000; i++)
		loop(500, {})
JS
cat >"$dir/loop.awk" <<'A'
BEGIN { FS = "\t"; line["ModSmi"] = 4; line["BitwiseXor"] = 5; line["SetNamedProperty"] = 3; line["TestLessThan"] = line["JumpLoop"] = line["Inc"] = 2; line["TestEqualStrict"] = 6 }
$2 == 0 { name = $5; sub(/^Builtins_/, "", name); sub(/Handler$/, "", name) }
$2 <= 1 && $3 == "[v8]" && $5 == "loop" {
	n++
	if ($11 == "-") late++
	else if ($11 == 1) first++
	else if ($11 < 1 || $11 > 9) { print "line " $11; wrong++ }
	else if (name in line) { if (line[name] == $11) right++; else { print name " on line " $11; wrong++ } }
}
END {
	print n + 0, "samples in a loop,", first + 0, "with the first line only,", late + 0, "without one,", right + 0, "with the line of the operation,", wrong + 0, "wrong"
	# Names and lines are not read while samples are late on a busy machine: then another recording tells.
	exit wrong ? 1 : n > 200 && first < n / 2 && !late && right > n / 6 ? 0 : 2
}
A
a_loop() {
	"$offwind" record -q -F 499 --raw="$dir/l.owc" -f folded -o "$dir/live" -- "${inside[@]}" node --jitless "$dir/loop.js" 2>"$dir/log" || fail "record a loop"
	"$offwind" unwind -q ${root:+--symfs "$root"} --format folded -o "$dir/later" "$dir/l.owc" 2>"$dir/log" || fail "folded, a loop"
	diff <(sort "$dir/live") <(sort "$dir/later") >"$dir/log" || fail "live and later differ, a loop"
	[ -n "$root" ] || diff <(sort "$dir/live") <(away "$dir/l.owc" | sort) >"$dir/diff" || { head -c 2000 "$dir/diff"; fail "another machine differs, a loop"; }
	"$offwind" unwind -q ${root:+--symfs "$root"} --format tsv -o "$dir/l.tsv" "$dir/l.owc" 2>"$dir/log" || fail "unwind a loop"
	awk -f "$dir/loop.awk" "$dir/l.tsv"
}
again a_loop || fail "a loop"

# Captured alone, nothing is walked while it is recorded, but all is read that a walk will need.
again computing "computing, captured alone" "$dir/c.owc" --raw -o "$dir/c.owc" || fail "computing, captured alone"
[ -n "$root" ] || diff <("$offwind" unwind -q --format folded "$dir/c.owc" 2>>"$dir/log" | sort) <(away "$dir/c.owc" | sort) >"$dir/diff" ||
	{ head -c 2000 "$dir/diff"; fail "another machine differs, captured alone"; }
