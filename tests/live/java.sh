#!/usr/bin/env bash
# Tests that frames of Java methods have their names and lines, interpreted, compiled and inlined, with java's default
# options. The truth is what the program says of itself: tests/live/runtimes/Truth.java. TEST_ROOT: tests/root.sh.
set -u
. tests/wait.sh
[ "$(id -u)" = 0 ] || { echo "needs root"; exit 77; }
[ "$(uname -m)" = x86_64 ] || { echo "needs x86_64"; exit 77; }
command -v javac >/dev/null || { echo "needs javac"; exit 77; }
"$BUILD/offwind" doctor >/dev/null 2>&1 || [ $? = 3 ] || { echo "live recording does not work here; see offwind doctor"; exit 77; }
dir=$(mktemp -d)
. tests/root.sh
trap 'kill $(jobs -p) 2>/dev/null; wait 2>/dev/null; rm -rf "$dir" "$root$dir"' EXIT
offwind=$(realpath "$BUILD/offwind")

fail() {
	echo "FAIL: $1"
	tail -n 5 "$dir/log"
	exit 1
}

# In its own class file a method has the lines of its own source.
source=tests/live/runtimes/Truth.java
javac --release 17 -d "$root$dir" "$source" >"$dir/log" 2>&1 || fail "javac"

# Compare the stacks of threads that wait with what the program printed of them. The virtual machine leaves out its own
# frames of lambdas, so both sides do.
cat >"$dir/waiting.awk" <<'A'
BEGIN { FS = "\t" }
function add(of, key, frame) { if (frame !~ /\$\$Lambda/) of[key] = of[key] frame "\n" }
NR == FNR {
	if (NF == 4) {
		add(truth, $1, $2 " " ($3 == "null" ? "-" : $3) " " ($4 < 0 ? "-" : $4))
	}
	next
}
FNR == 1 { for (i = 1; i <= NF; i++) column[$i] = i; next }
$column["module"] == "[jvm]" {
	sub(/.*\//, "", $column["file"])
	add(ours, $1, $column["function"] " " $column["file"] " " $column["line"])
}
END {
	for (key in ours) seen[ours[key]] = 1
	for (thread in truth) {
		# The thread that asked has gone on, and some others wait for a time and then look for work.
		if (thread !~ /^(circle|lambda|Finalizer|Reference Handler)$/)
			continue
		n++
		if (!(truth[thread] in seen)) { print "not found: " thread; print truth[thread]; bad = 1 }
	}
	print n " waiting threads are as they say of themselves"
	if (bad) { print "--- found:"; for (key in ours) print key "\n" ours[key] }
	exit bad || n < 4
}
A

# In each sample, a frame of the program must be on a line that calls the frame inside of it.
cat >"$dir/computing.awk" <<'A'
BEGIN { FS = "\t" }
NR == FNR { text[FNR] = $0; next }
FNR == 1 { for (i = 1; i <= NF; i++) column[$i] = i; next }
function done() {
	if (!java) return
	samples++
	if (nameless || stop != "root") { incomplete++; why[nameless ? nameless : stop]++ }
}
$1 != sample { done(); sample = $1; java = 0; nameless = ""; inner = "" }
{
	module = $column["module"]; function_ = $column["function"]; stop = $column["stop"]
	if (module == "[jit]" && function_ ~ /^StubRoutines/) { java = 1; inner = ""; next }
	if (module == "[jit]" && (function_ == "Interpreter" || function_ == "-" || function_ ~ /^\[jit\]/)) nameless = "nameless"
	if (module != "[jvm]" || function_ !~ /^Truth/ || function_ ~ /\$\$Lambda/) { inner = ""; next }
	line = $column["line"]; frames++
	simple = function_
	if (sub(/\.<init>$/, "", simple)) { sub(/.*[$]/, "", simple); simple = "new " simple }
	sub(/.*\./, "", simple); sub(/lambda\$.*/, "", simple)
	# In code at the end of a compiled method, where no call follows, the line is not known.
	if (line == "-") unknown++
	else if (inner != "" && index(text[line], inner "(") == 0) {
		if (bad++ < 5) print "sample " $1 ": " function_ " line " line " does not call " inner ": " text[line]
	} else if (inner != "") calls++
	inner = simple
}
END {
	done()
	printf "%d samples of Java code, %d not whole with all names;", samples, incomplete
	for (w in why) printf " %s %d", w, why[w]
	printf "; %d frames of the program, %d without a line, %d calls on their lines, %d wrong\n", frames, unknown, calls, bad
	# Names are not read while samples are late on a busy machine: then another recording tells.
	if (bad == 0 && samples > 500 && calls > 1000 && unknown <= frames / 100 && incomplete > samples / 20) exit 2
	exit !(samples > 500 && incomplete <= samples / 20 && calls > 1000 && unknown <= frames / 100 && bad == 0)
}
A

computing() { # WHAT CAPTURE OPTION…: record a program that computes, and compare its stacks with its source
	"$offwind" record -q -F 499 "${@:3}" -- "${inside[@]}" "$java" -cp "$dir" Truth 300000 2>"$dir/log" || fail "record, $1"
	"$offwind" unwind -q --format tsv -o "$dir/a.tsv" "$2" 2>"$dir/log" || fail "unwind, $1"
	awk -f "$dir/computing.awk" "$source" "$dir/a.tsv"
}

try() { # JAVA
	local java=$1 pid
	"${inside[@]}" "$java" -version 2>&1 | head -n 1
	rm -f "$dir/truth" # what the one before said
	"${inside[@]}" "$java" -cp "$dir" Truth wait 20000 >"$dir/truth" 2>"$dir/log" &
	pid=$!
	until_or_dead $pid grep -q '^done' "$dir/truth" || fail "the program that waits"
	"$offwind" unwind -q --format tsv -o "$dir/pid.tsv" --pid $pid 2>"$dir/log" || fail "--pid"
	kill $pid
	awk -f "$dir/waiting.awk" "$dir/truth" "$dir/pid.tsv" || fail "waiting threads"

	again computing "computing" "$dir/a.owc" --raw="$dir/a.owc" -f folded -o "$dir/live" || fail "computing"
	"$offwind" unwind -q --format folded -o "$dir/later" "$dir/a.owc" 2>"$dir/log" || fail "folded"
	diff <(sort "$dir/live") <(sort "$dir/later") >"$dir/log" || fail "live and later differ"
	# Elsewhere, where there is no Java at all, they are the same.
	# shellcheck disable=SC2016
	unshare -m bash -c 'mount -t tmpfs none "$0/usr/lib/jvm" && exec "$@"' "$root" \
		env OFFWIND_DB= "$offwind" unwind -q --format folded -o "$dir/away" "$dir/a.owc" 2>"$dir/log" || fail "elsewhere"
	diff <(sort "$dir/live") <(sort "$dir/away") >"$dir/log" || fail "elsewhere they differ"

	# Captured alone, nothing is walked while it is recorded, but all is read that a walk will need.
	again computing "computing, captured alone" "$dir/c.owc" --raw -o "$dir/c.owc" || fail "computing, captured alone"
}

for java in $(for j in "$root"/usr/lib/jvm/*/bin/java; do realpath "$j"; done | sort -u); do
	try "${java#"$root"}"
done
