#!/usr/bin/env bash
# Tests offwind unwind and report on the command line: several inputs, pipes, outputs that cannot be
# written; one line says what was wrong.
set -u
offwind=$BUILD/offwind
samples=tests/cases/perfdata
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
failures=0
exec 3>&1 # failures are reported here, wherever the output goes

fail() {
	echo "FAIL: $*" >&3
	failures=$((failures + 1))
}

# expect CODE PATTERN COMMAND…: the exit code, and one line on standard error that matches, apart from warnings about
# programs that were recorded elsewhere.
expect() {
	local code=$1 pattern=$2 rc
	shift 2
	"$@" 2>"$dir/all"
	rc=$?
	grep -v '^offwind: warning: ' "$dir/all" >"$dir/err"
	[ $rc = "$code" ] && [ "$(wc -l <"$dir/err")" = 1 ] && grep -qE -- "$pattern" "$dir/err" ||
		fail "exit $rc: $*: $(cat "$dir/err")"
}

# silent CODE COMMAND…: the exit code, and only warnings on standard error.
silent() {
	local code=$1 rc
	shift
	"$@" 2>"$dir/all"
	rc=$?
	[ $rc = "$code" ] && ! grep -qv '^offwind: warning: ' "$dir/all" || fail "exit $rc: $*: $(cat "$dir/all")"
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

# Commands that unwind first say, too, that an input is damaged.
head -c 27000 $samples/pipe.data >"$dir/torn.data"
for words in "unwind -q" report "report -f folded" "report --diff $samples/file.data" flamegraph; do
	expect 3 'torn.data: offset 0x[0-9a-f]*: the file ends inside a record' "$offwind" $words -o "$dir/y" "$dir/torn.data"
	[ -s "$dir/y" ] || fail "$words: nothing of a damaged recording"
	rm -f "$dir/y"
done

echo "== through pipes"
cat $samples/pipe.data | "$offwind" unwind -q --format tsv --no-inline - >"$dir/piped.tsv" || fail "a pipe"
cmp "$dir/piped.tsv" <("$offwind" unwind -q --format tsv --no-inline $samples/pipe.data) || fail "through a pipe it differs"
"$offwind" unwind -q --format tsv --no-inline - <$samples/file.data | cmp - "$dir/one.tsv" || fail "a file on standard input"
{ head -c 3 $samples/pipe.data; sleep 0.3; tail -c +4 $samples/pipe.data; } | "$offwind" unwind -q --format tsv --no-inline - |
	cmp - "$dir/piped.tsv" || fail "a slow pipe"
expect 1 'standard input: offset (0x)?0: ' "$offwind" unwind -o "$dir/x" - < <(head -c 3 $samples/pipe.data)
expect 1 'standard input: offset (0x)?0: .*pipe' "$offwind" unwind -o "$dir/x" - < <(cat $samples/file.data)

echo "== outputs that cannot be written"
for format in pprof folded text tsv jsonl speedscope firefox parquet; do
	expect 1 '^offwind: /dev/full: cannot be written: No space' "$offwind" unwind --format $format -o /dev/full $samples/file.data $samples/pipe.data
	expect 1 '^offwind: standard output: cannot be written: No space' "$offwind" unwind --format $format -o - $samples/file.data >/dev/full
	# The reader is gone before anything is written.
	exec 9> >(exec true)
	wait $! 2>/dev/null
	silent 141 "$offwind" unwind --format $format -o - $samples/file.data >&9
	exec 9>&-
done
# The reader quits as head does: there is no message, and the exit code is that of SIGPIPE in a shell.
for words in --help "report $dir/two.pb.gz" "report --check $dir/two.pb.gz" "report -f folded $dir/two.pb.gz" "flamegraph -o - $dir/two.pb.gz" "explain --sample 1 $samples/file.data"; do
	exec 9> >(exec true)
	wait $! 2>/dev/null
	silent 141 "$offwind" $words >&9
	exec 9>&-
done
expect 1 'no/x: cannot be written: No such file' "$offwind" unwind -o "$dir/no/x" $samples/file.data
expect 1 'cannot be written: Is a directory' "$offwind" unwind -o "$dir" $samples/file.data
for words in --version --help "report $dir/two.pb.gz" "report --check $dir/two.pb.gz" "unwind --help" "report --help" "top --help" "flamegraph --help" "record --help" "explain --help" "query --help" "fleet --help" "cache --help" "doctor --help"; do
	expect 1 '^offwind: standard output: cannot be written: No space' "$offwind" $words >/dev/full
done

echo "== recordings where profiles are expected, and the last one"
"$offwind" report $samples/file.data 2>/dev/null | sed 1d | cmp - <("$offwind" unwind -q -o - $samples/file.data 2>/dev/null | "$offwind" report - | sed 1d) ||
	fail "a report of a recording is not that of its profile"
cat $samples/pipe.data | "$offwind" report - 2>/dev/null | grep -q '^# 28 samples' || fail "a report of a recording in a pipe"
"$offwind" flamegraph -o "$dir/page.html" $samples/file.data 2>/dev/null && grep -q spin "$dir/page.html" || fail "a page of a recording"
mkdir "$dir/here"
last() { (cd "$dir/here" && "$offwind" "$@" 2>&1); }
offwind=$(realpath "$offwind")
last report >/dev/null
[ $? = 2 ] || fail "there is no last recording"
last report | grep -q 'no offwind.pb.gz, offwind.owc or perf.data here' || fail "what is sought is not said"
cp $samples/file.data "$dir/here/perf.data"
last report | grep -q '^# perf.data$' || fail "perf.data is the last recording"
last unwind -q perf.data >/dev/null
last report | grep -q '^# offwind.pb.gz$' || fail "offwind.pb.gz is the last recording"
expect 2 '--window is at most 600 times --delay' "$offwind" top --batch --delay 100ms --window 61
for words in "" 1, 1,,2 1x; do expect 2 '--pid takes a number' "$offwind" top --batch --pid "$words"; done
for words in report flamegraph resymbolize; do
	expect 2 '--to is not after --from' "$offwind" $words --from @20 --to @10 h.db
	expect 2 '--to is not after --from' "$offwind" $words --from @20 --to @20 h.db
done
last report | grep -q '^# command: .*perf record' || fail "no command line"
last report | grep -q '^# event: cpu-clock, ' || fail "no event"
last flamegraph -o x.html >/dev/null && [ -s "$dir/here/x.html" ] || fail "a page of the last recording"
gzip -k "$dir/here/perf.data"
expect 1 'perf.data.gz: offset 0: the file is compressed.*gunzip' "$offwind" unwind -o "$dir/x" "$dir/here/perf.data.gz"
expect 1 'perf.data.gz: not a pprof profile' "$offwind" report "$dir/here/perf.data.gz"

echo "== slices of time, processes, threads and names"
n_of() { "$offwind" unwind -q -f tsv --no-inline "$@" $samples/file.data 2>/dev/null | sed 1d | cut -f1 | sort -u | wc -l; }
times=$("$offwind" unwind -q -f text $samples/file.data 2>/dev/null | sed -n 's/^[^ \t#].*  \([0-9.]*\): .*/\1/p')
first=$(head -n 1 <<<"$times") last=$(tail -n 1 <<<"$times") middle=$(sed -n 15p <<<"$times")
[ "$(n_of --time 0%-100%)" = 28 ] && [ "$(n_of --time ,)" = 28 ] || fail "all of it"
[ $(($(n_of --time 0%-40%) + $(n_of --time 40%,100%))) = 28 ] && [ "$(n_of --time 0%-40%)" -gt 3 ] || fail "parts"
[ "$(n_of --time "$middle,")" = 14 ] && [ "$(n_of --time ",$middle")" = 14 ] || fail "from and until $middle"
[ "$(n_of --time +0,+0.01)" = "$(awk -v f="$first" '$1 < f + 0.01' <<<"$times" | wc -l)" ] || fail "since the first sample"
[ "$(n_of --comm x,spin)" = 28 ] && [ "$(n_of --pid 6080)" = 18 ] && [ "$(n_of --tid 1,6080)" = 10 ] && [ "$(n_of --pid 6080 --tid 6083 --comm spin)" = 8 ] || fail "whose samples"
[ "$("$offwind" report --time 0%-40% $samples/file.data 2>/dev/null | sed -n 's/^# \([0-9]*\) samples.*/\1/p')" = "$(n_of --time 0%-40%)" ] || fail "a report of a slice"
for words in "--comm nosuch" "--pid 1,2" "--tid 1" "--time ,1"; do
	expect 1 'no sample matches the conditions .*28 were left out' "$offwind" unwind $words -o "$dir/none.pb.gz" $samples/file.data
done
[ ! -e "$dir/none.pb.gz" ] || fail "a result without samples"
for time in x 1 5% 2%-x 1,2,3 150%-200% -1,2; do
	expect 2 '^offwind: --time takes BEGIN,END' "$offwind" unwind --time "$time" $samples/file.data
done
expect 1 'a profile.s samples have no times' "$offwind" report --time 1,2 "$dir/two.pb.gz"
expect 1 'not known when standard input begins and ends' "$offwind" unwind --time 0%-1% -o "$dir/x" - <$samples/file.data

echo "== what a result's name says, and where it goes"
for ending in folded jsonl tsv txt speedscope.json firefox.json parquet; do
	format=${ending%.json}
	"$offwind" unwind -q -o "$dir/a.$ending" $samples/file.data 2>/dev/null || fail "-o a.$ending"
	"$offwind" unwind -q -f "${format/txt/text}" -o "$dir/b" $samples/file.data 2>/dev/null && cmp "$dir/b" "$dir/a.$ending" || fail "a.$ending"
done
"$offwind" report -o "$dir/r.folded" "$dir/two.pb.gz" && cmp "$dir/r.folded" <("$offwind" report -f folded "$dir/two.pb.gz") || fail "report -o r.folded"
"$offwind" report -o "$dir/r.txt" "$dir/two.pb.gz" && cmp "$dir/r.txt" <("$offwind" report "$dir/two.pb.gz") || fail "report -o r.txt"
expect 2 'a.svg: there is no such format; .*flamegraph' "$offwind" unwind -o "$dir/a.svg" $samples/file.data
expect 2 'a.html: offwind flamegraph makes a page' "$offwind" unwind -o "$dir/a.html" $samples/file.data
expect 2 'a.svg: there is no such format' "$offwind" record -o "$dir/a.svg" true
(cd "$dir/here" && rm -f offwind.pb.gz && "$offwind" unwind -q perf.data >y.pb.gz 2>/dev/null && "$offwind" report --check y.pb.gz >/dev/null && [ ! -e offwind.pb.gz ]) ||
	fail "standard output that is a file is not written to"
(cd "$dir/here" && "$offwind" unwind -q perf.data >log 2>&1 && [ -e offwind.pb.gz ]) || fail "a log is written to"
for path in "$dir/x.owc" -; do
	expect 2 '^offwind: record: --raw and -o name the same file' "$offwind" record --raw="$path" -o "$path" true >"$dir/out"
done
terminal() { script -qec "stty cols 80; $*" /dev/null </dev/null | tr -d '\r'; }
for words in "unwind -o - $samples/file.data" "report --merge $dir/two.pb.gz" "report -f parquet $dir/two.pb.gz" "record --raw -o - true"; do
	terminal "$offwind" $words | grep -q 'cannot be shown on a terminal; use -o FILE' || fail "$words: bytes to a terminal"
done

echo "== tables on a terminal of 80 columns"
cat >"$dir/long.cc" <<'CC'
#include <string>
#include <vector>
struct a_class_of_a_long_name {
	__attribute__((noinline)) long a_member_of_a_long_name(const std::vector<std::string> &a, const std::string &b) const
	{
		return static_cast<long>(a.size() + b.size()) / static_cast<long>(*static_cast<const volatile long *>(&zero));
	}
	long zero = 0;
};
int main() { return static_cast<int>(a_class_of_a_long_name().a_member_of_a_long_name({}, "x")); }
CC
g++ -g -O1 -o "$dir/long" "$dir/long.cc" || fail "g++"
(cd "$dir" && ulimit -c unlimited && gdb -q -batch -ex run -ex "generate-core-file $dir/long.core" ./long >"$dir/gdb" 2>&1) && [ -s "$dir/long.core" ] || fail "no core: $(cat "$dir/gdb")"
terminal "$offwind" report "$dir/long.core" 2>/dev/null | grep -qE '^ *[0-9.]+% +[0-9.]+% .*a_class_of_a_long_name::a_member_of_a_long_name$' || fail "a name is cut: $(terminal "$offwind" report "$dir/long.core")"
terminal "$offwind" report --full-names "$dir/long.core" 2>/dev/null | grep -q 'a_class_of_a_long_name::a_member_of_.*…' || fail "--full-names"
"$offwind" report "$dir/long.core" 2>/dev/null | grep -q 'a_member_of_a_long_name(std::vector' || fail "names in a pipe are whole"
"$offwind" report --least 99.9 --callees 'a_member|__libc_start' $samples/file.data 2>/dev/null | grep -q '^# .* below 99.9 %\|no function' || fail "a tree does not say what it left out"
"$offwind" report --sort cum "$dir/two.pb.gz" | cmp - <("$offwind" report --sort total "$dir/two.pb.gz") || fail "--sort cum"

echo "== tables as JSON"
for words in "" "--by pid" "--by thread" "--by stop --type samples" "--sort total --by module -n 2" "--diff $dir/two.pb.gz"; do
	"$offwind" report --json -n 0 $words "$dir/two.pb.gz" >"$dir/table.json" 2>"$dir/err" && [ ! -s "$dir/err" ] || fail "report --json $words: $(cat "$dir/err")"
	"$offwind" report -n 0 $words "$dir/two.pb.gz" >"$dir/table"
	python3 - "$dir/table.json" "$dir/table" "$words" <<'PY' || fail "report --json $words: $(cat "$dir/table.json")"
import json, re, sys
j, words = json.load(open(sys.argv[1])), sys.argv[3]
lines = [l for l in open(sys.argv[2]) if not l.startswith('#')][1:]
rows = j['rows']
assert len(rows) == len(lines) > 0 and j['rows_left_out'] == 0 or len(rows) == 2 and j['rows_left_out'] > 0
assert j['files'] == [sys.argv[1].replace('table.json', 'two.pb.gz')] and j['samples'] == 56
assert any(c.startswith('offwind ') for c in j['comments'])
key = 'stop' if 'stop' in words else 'module' if 'module' in words else 'comm' if 'pid' in words else 'thread' if 'thread' in words else 'function'
for row, line in zip(rows, lines):
    assert row[key] in line, (row, line)
    assert abs(row['self_percent'] - 100 * row['self'] / j['value']) < 0.001
    assert abs(row['total_percent'] - 100 * row['total'] / j['value']) < 0.001
    if 'diff' in words:
        assert row['base_self'] == row['self'] and row['base_total_percent'] == row['total_percent']
    elif 'sort' not in words:
        assert float(re.match(r' *([0-9.]+)%', line)[1]) == round(row['self_percent'], 2), (row, line)
    if key == 'comm':
        assert isinstance(row['pid'], int)
    if key == 'thread':
        assert isinstance(row['tid'], int)
if 'sort' not in words:
    assert sum(row['self'] for row in rows) == j['value'] == (56 if 'samples' in words else 28000000)
PY
done
"$offwind" report --json -o "$dir/x.json" "$dir/two.pb.gz" && cmp "$dir/x.json" <("$offwind" report --json "$dir/two.pb.gz") || fail "report --json -o"
for words in "--callers x" --check "-f folded"; do
	expect 2 '^offwind: report: --json prints the table' "$offwind" report --json $words "$dir/two.pb.gz"
done
"$offwind" doctor >"$dir/doctor"
rc=$?
"$offwind" doctor --json >"$dir/doctor.json"
[ $? = $rc ] || fail "doctor --json has another exit code than doctor"
python3 - "$dir/doctor.json" "$dir/doctor" <<'PY' || fail "doctor --json: $(cat "$dir/doctor.json")"
import json, sys
checks = json.load(open(sys.argv[1]))
lines = open(sys.argv[2]).read().split('\n\n')[0].split('\n')
assert len(checks) == len(lines) >= 8
for check, line in zip(checks, lines):
    assert set(check) == {'check', 'state', 'text'} and line.split('  ')[0].startswith(check['check'])
    assert line[23:].split()[0] == check['state'] and check['text']
PY

echo "== a profile's rows say how stacks ended, as those of single samples do"
ends() { sed 1d | cut -f3,5,8,9 | sort -u; }
"$offwind" unwind -q -f tsv "$dir/long.core" 2>/dev/null | ends >"$dir/ends"
grep -q 'root	rule$' "$dir/ends" || fail "no root: $(cat "$dir/ends")"
"$offwind" report -f tsv "$dir/long.core" 2>/dev/null | ends | cmp - "$dir/ends" || fail "a profile's ends differ"

echo "== usage"
for words in "" nothing "unwind" "unwind --format x $samples/file.data" "unwind --max-frames 0 $samples/file.data" "report --callers x --diff b a" "report -f svg a" "explain --sample 1 --stop truncated $samples/file.data" top "top x" "record --keep 3" "record -F 0" "record --no-such" cache "cache show" "cache lookup x" "cache ls x" "cache --format x ls" "cache export x" "cache --budget 1X gc"; do
	"$offwind" $words >"$dir/out" 2>"$dir/err"
	[ $? = 2 ] && [ ! -s "$dir/out" ] && [ -s "$dir/err" ] || fail "offwind $words: $(cat "$dir/out" "$dir/err")"
done
for words in --help "record --help" "daemon --help" "unwind --help" "report --help" "top --help" "flamegraph --help" "explain --help" "query --help" "fleet --help" "cache --help" "doctor --help"; do
	"$offwind" $words >"$dir/out" 2>"$dir/err" && [ ! -s "$dir/err" ] && grep -q ^usage "$dir/out" || fail "offwind $words"
done
# An error in an option is one line of text, whatever bytes the option has.
expect 2 "option '--thread' needs an argument$" "$offwind" report --thr
expect 2 "option '--s' is ambiguous" "$offwind" report --s=x
expect 2 "option '--check' takes no argument" "$offwind" report --check=x
expect 2 "option '-n' needs an argument" "$offwind" report -n
expect 2 "^offwind: --callers '.': [^-]*$" "$offwind" report --callers '(' x
expect 2 "^offwind: --focus '.': [^-]*$" "$offwind" report --focus '(' x
expect 2 "^offwind: there is no option '--a.\[31m.*'$" "$offwind" report $'--a\e[31m\xff<b>'
for command in record daemon unwind explain report top flamegraph query fleet cache doctor; do
	cmp <("$offwind" help $command) <("$offwind" $command --help) || fail "help $command"
done
expect 2 "no command 'nosuch'" "$offwind" help nosuch
expect 2 "^offwind: --stop: there is no stop reason 'nosuch'; there are: .*truncated" "$offwind" explain --stop nosuch $samples/file.data
"$offwind" explain --stop truncated $samples/file.data 2>/dev/null | grep -q '^stop: truncated' || fail "explain --stop truncated"
expect 1 'has no sample cycle' "$offwind" explain --stop cycle $samples/file.data
# An unknown word is answered with the known ones.
expect 1 "no sample type 'nosuch'; there are: samples, cpu$" "$offwind" report --type nosuch "$dir/two.pb.gz"
expect 1 "no sample type 'nosuch'; there are: samples, cpu$" "$offwind" flamegraph --type nosuch -o - "$dir/two.pb.gz"
expect 1 "no sample has the label 'nosuch'; there are: none, .*comm" "$offwind" flamegraph --by nosuch -o - "$dir/two.pb.gz"
expect 2 "^offwind: --by is symbol, module, .* or waker, not 'nosuch'$" "$offwind" report --by nosuch "$dir/two.pb.gz"
expect 2 "^offwind: --sort is self or total, not 'nosuch'$" "$offwind" report --sort nosuch "$dir/two.pb.gz"
expect 1 "two.pb.gz: no sample matches the conditions$" "$offwind" report --comm nosuch "$dir/two.pb.gz"
for time in 5x -1 0 1e3 inf 0x10 "" . 100000d; do
	expect 2 "^offwind: --duration takes seconds, or a time such as .*, not '$time'$" "$offwind" record -d "$time"
done
expect 2 "^offwind: --rotate takes at least one second" "$offwind" record --rotate 500ms
expect 2 "^offwind: --ring takes a size from 4194304 to" "$offwind" record -m 1M
expect 2 "^offwind: --realtime takes a number from 1 to 99" "$offwind" record -r 100
for command in record unwind report top flamegraph explain doctor "cache ls"; do
	"$offwind" $command $'--a\e[31m\r\xff' 2>&1 | LC_ALL=C grep -q $'[\e\r\xff]' && fail "$command: raw bytes"
done

[ $failures = 0 ] || { echo "$failures failures"; exit 1; }
