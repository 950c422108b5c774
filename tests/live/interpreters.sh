#!/usr/bin/env bash
# Tests that stacks of PHP, Ruby and Perl have the interpreted functions where they ran. Each program knows its own stack
# and writes it; the whole system is recorded while it computes, without options for it.
# TEST_ROOT: tests/root.sh.
set -u
. tests/wait.sh
[ "$(id -u)" = 0 ] || { echo "needs root"; exit 77; }
"$BUILD/offwind" doctor > /dev/null 2>&1 || [ $? = 3 ] || { echo "live recording does not work here; see offwind doctor"; exit 77; }
dir=$(mktemp -d)
. tests/root.sh
trap 'kill $(jobs -p) 2> /dev/null; wait 2> /dev/null; rm -rf "$dir" "$root$dir"' EXIT
offwind=$(realpath "$BUILD/offwind")
programs=tests/live/interpreters
cp "$programs"/work.* "$root$dir" || exit 1

fail() {
	echo "$1"
	tail -n 15 "$dir/log"
	exit 1
}

# Take a core, which has the frames of its program as well, or the interpreter's file has. Return 0 if the outermost function is
# the program itself, 2 if it is FIBER, as a fiber of Ruby's has a stack of its own, or if the program was between two calls.
core() { # PID MODULE MAIN FIBER
	gcore -o "$dir/core" $1 > "$dir/log" 2>&1 || fail "gcore"
	"$offwind" unwind -q --tid $1 -f tsv -o "$dir/tsv" "$dir/core.$1" 2> "$dir/log" || fail "a core"
	rm "$dir/core.$1"
	awk -F '\t' -v module="$2" -v main="$3" -v fiber="$4" '$3 == module { n++; unknown += $5 == "[unknown]"; last = $5 }
		END { print n + 0, module, "frames of a core, the outermost", last; exit unknown ? 1 : n <= 1 || last == fiber ? 2 : last != main }' "$dir/tsv"
}

# Record the whole system while a program runs; compare its stacks with what it wrote.
check() {
	local module=$1 interpreter=$2 program=$3 main=$4
	shift 4
	is_inside "$interpreter" || { echo "$interpreter is not there"; [ -n "$root" ] && return || exit 1; }
	"${inside[@]}" "$interpreter" "$dir/$program" 300 > "$dir/truth" &
	local pid=$!
	until_or_dead $pid test -s "$dir/truth" || fail "$program does not begin"
	"$offwind" record -q -a -F 199 --raw="$dir/$program.owc" -f folded -o "$dir/$program.folded" 2> "$dir/log" &
	local recorder=$!
	until_or_dead $recorder test -s "$dir/$program.owc" || fail "record"
	until_or_dead $pid used_cpu $pid $(($(awk '{ sub(/.*\) /, ""); print $12 + $13 }' /proc/$pid/stat) / $(getconf CLK_TCK) + 6)) || fail "$program ended"
	kill -INT $recorder
	wait $recorder || fail "record"
	runs $pid || fail "$program ended"
	local result=2
	for ((i = 0; i < 10 && result == 2; i++)); do
		core $pid "$module" "$main" 'block (2 levels) in <main>'
		result=$?
	done
	[ $result = 0 ] || fail "a core's frames: $(cut -f 3,5 "$dir/tsv")"
	local files
	files=$(awk '$2 ~ /x/ && $6 ~ /\/(lib)?(php|ruby|perl)[^\/]*$/ { print $6 }' /proc/$pid/maps | sort -u)
	kill $pid
	wait $pid 2> /dev/null
	"$offwind" unwind -q --pid $pid -f tsv -o "$dir/tsv" "$dir/$program.owc" 2> "$dir/log" || fail "unwind"
	python3 "$programs/compare.py" "$module" "$dir/truth" "$dir/tsv" "$@" || fail "$module"
	# A capture gives the same frames later, without the process.
	"$offwind" unwind -q -f folded -o "$dir/later" "$dir/$program.owc" 2> "$dir/log" || fail "unwind, folded"
	# And elsewhere, where there is no such interpreter.
	# shellcheck disable=SC2016
	unshare -m bash -c 'for file in $1; do mount --bind /dev/null "$file" || exit 1; done; shift; exec "$@"' - "$files" \
		env OFFWIND_DB= "$offwind" unwind -q -f folded -o "$dir/away" "$dir/$program.owc" 2> "$dir/log" || fail "unwind, elsewhere"
	diff <(grep "^$interpreter;" "$dir/$program.folded" | sort) <(grep "^$interpreter;" "$dir/away" | sort) > "$dir/log" || fail "$program: live and elsewhere differ"
	diff <(grep "^$interpreter;" "$dir/$program.folded" | sort) <(grep "^$interpreter;" "$dir/later" | sort) > "$dir/log" || fail "$program: live and later differ"
}

# Without TEST_ROOT all must be there.
check '[php]' php work.php '{main}' Shop::compare zend_call_function usort
check '[ruby]' ruby work.rb '<main>' 'block in Shop#sorted' rb_ary_sort_bang 'Array#sort'
check '[perl]' perl work.pl '(main)' Shop::by 'Perl_pp_sort|Perl_sortsv_flags' Shop::sorted
