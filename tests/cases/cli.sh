#!/usr/bin/env bash
# offwind unwind and report as their users call them: several inputs, pipes,
# outputs that cannot be written; one line says what was wrong.
set -u
offwind=$BUILD/offwind
samples=tests/cases/perfdata
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
failures=0
exec 3>&1 # what is wrong is said here, wherever the output goes

fail() {
	echo "FAIL: $*" >&3
	failures=$((failures + 1))
}

# expect CODE PATTERN COMMAND…: the exit code, and one line on standard error that matches, beside
# the warnings of programs that were recorded elsewhere.
expect() {
	local code=$1 pattern=$2 rc
	shift 2
	"$@" 2>"$dir/all"
	rc=$?
	grep -v '^offwind: warning: ' "$dir/all" >"$dir/err"
	[ $rc = "$code" ] && [ "$(wc -l <"$dir/err")" = 1 ] && grep -qE -- "$pattern" "$dir/err" ||
		fail "exit $rc: $*: $(cat "$dir/err")"
}

echo "== several inputs"
"$offwind" unwind -q --format tsv --no-inline -o "$dir/one.tsv" $samples/file.data || fail "tsv"
"$offwind" unwind -q --format tsv --no-inline -o "$dir/two.tsv" $samples/file.data $samples/pipe.data $samples/file.data || fail "tsv of three"
one=$(sed 1d "$dir/one.tsv" | cut -f1 | sort -u | wc -l)
pipe=$("$offwind" unwind -q --format tsv --no-inline $samples/pipe.data | sed 1d | cut -f1 | sort -u | wc -l)
two=$(sed 1d "$dir/two.tsv" | cut -f1 | sort -u | wc -l)
[ "$one" -ge 20 ] && [ "$two" = $((2 * one + pipe)) ] || fail "samples of several inputs share numbers: $one, $pipe, $two"
[ "$(grep -c ^sample "$dir/two.tsv")" = 1 ] || fail "one header"
"$offwind" unwind -q --format folded -o "$dir/one.folded" $samples/file.data || fail "folded"
"$offwind" unwind -q --format folded -o "$dir/two.folded" $samples/file.data $samples/file.data || fail "folded of two"
cmp <(awk '{ $NF *= 2; print }' "$dir/one.folded") "$dir/two.folded" || fail "the same input twice counts each stack twice"
"$offwind" unwind -q -o "$dir/two.pb.gz" $samples/file.data $samples/pipe.data || fail "pprof of two"
"$offwind" report --check "$dir/two.pb.gz" >/dev/null || fail "pprof of two is not sound"
expect 3 'events.data: left out: its events' "$offwind" unwind -q -o "$dir/mixed.pb.gz" $samples/file.data $samples/events.data
cmp <("$offwind" report "$dir/mixed.pb.gz" | sed 1d) <("$offwind" unwind -q -o - $samples/file.data | "$offwind" report - | sed 1d) ||
	fail "what fits is kept"
expect 3 'absent: No such file' "$offwind" unwind -q -o "$dir/x" "$dir/absent" $samples/file.data
expect 1 'absent: No such file' "$offwind" unwind -q -o "$dir/y" "$dir/absent"
[ ! -e "$dir/y" ] || fail "a result without input"

echo "== through pipes"
cat $samples/pipe.data | "$offwind" unwind -q --format tsv --no-inline - >"$dir/piped.tsv" || fail "a pipe"
cmp "$dir/piped.tsv" <("$offwind" unwind -q --format tsv --no-inline $samples/pipe.data) || fail "through a pipe it differs"
"$offwind" unwind -q --format tsv --no-inline - <$samples/file.data | cmp - "$dir/one.tsv" || fail "a file on standard input"
{ head -c 3 $samples/pipe.data; sleep 0.3; tail -c +4 $samples/pipe.data; } | "$offwind" unwind -q --format tsv --no-inline - |
	cmp - "$dir/piped.tsv" || fail "a slow pipe"
expect 1 'standard input: offset (0x)?0: ' "$offwind" unwind -o "$dir/x" - < <(head -c 3 $samples/pipe.data)
expect 1 'standard input: offset (0x)?0: .*pipe' "$offwind" unwind -o "$dir/x" - < <(cat $samples/file.data)

echo "== outputs that cannot be written"
for format in pprof folded text tsv jsonl speedscope firefox; do
	expect 1 '^offwind: /dev/full: cannot be written: No space' "$offwind" unwind --format $format -o /dev/full $samples/file.data $samples/pipe.data
	expect 1 '^offwind: standard output: cannot be written: No space' "$offwind" unwind --format $format -o - $samples/file.data >/dev/full
	# The reader is gone before anything is written.
	exec 9> >(exec true)
	wait $! 2>/dev/null
	expect 1 '^offwind: standard output: cannot be written: Broken pipe' "$offwind" unwind --format $format -o - $samples/file.data >&9
	exec 9>&-
done
expect 1 'no/x: cannot be written: No such file' "$offwind" unwind -o "$dir/no/x" $samples/file.data
expect 1 'cannot be written: Is a directory' "$offwind" unwind -o "$dir" $samples/file.data
for words in --version --help "report $dir/two.pb.gz" "report --check $dir/two.pb.gz" "unwind --help" "report --help" "top --help" "flamegraph --help" "record --help" "explain --help" "cache --help" "doctor --help"; do
	expect 1 '^offwind: standard output: cannot be written: No space' "$offwind" $words >/dev/full
done

echo "== usage"
for words in "" nothing "unwind" "unwind --format x $samples/file.data" "unwind --max-frames 0 $samples/file.data" "report" "report --callers x --diff b a" "report -f svg a" top "top x" flamegraph "record --keep 3" "record -F 0" "record --no-such" cache "cache show" "cache lookup x" "cache ls x" "cache --format x ls" "cache export x" "cache --budget 1X gc"; do
	"$offwind" $words >"$dir/out" 2>"$dir/err"
	[ $? = 2 ] && [ ! -s "$dir/out" ] && [ -s "$dir/err" ] || fail "offwind $words: $(cat "$dir/out" "$dir/err")"
done
for words in --help "record --help" "unwind --help" "report --help" "top --help" "flamegraph --help" "explain --help" "cache --help" "doctor --help"; do
	"$offwind" $words >"$dir/out" 2>"$dir/err" && [ ! -s "$dir/err" ] && grep -q ^usage "$dir/out" || fail "offwind $words"
done
# What is wrong with an option is one line of text, whatever bytes it has.
expect 2 "option '--top' needs an argument$" "$offwind" report --to
expect 2 "option '--s' may be one of several" "$offwind" report --s=x
expect 2 "option '--check' takes no argument" "$offwind" report --check=x
expect 2 "option '-n' needs an argument" "$offwind" report -n
expect 2 "^offwind: --callers '.': [^-]*$" "$offwind" report --callers '(' x
expect 2 "^offwind: --focus '.': [^-]*$" "$offwind" report --focus '(' x
expect 2 "^offwind: there is no option '--a.\[31m.*'$" "$offwind" report $'--a\e[31m\xff<b>'
for command in record unwind report top flamegraph explain doctor "cache ls"; do
	"$offwind" $command $'--a\e[31m\r\xff' 2>&1 | LC_ALL=C grep -q $'[\e\r\xff]' && fail "$command: raw bytes"
done

[ $failures = 0 ] || { echo "$failures failures"; exit 1; }
