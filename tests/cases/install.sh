#!/usr/bin/env bash
# Tests make install into a directory of its own, and the installed programs: the manual page, and
# perf_to_profile under go tool pprof.
set -u
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
export HOME=$dir # where perf record and pprof keep files
failures=0

fail() {
	echo "FAIL: $*"
	failures=$((failures + 1))
}

make -s install BUILD="$BUILD" DESTDIR="$dir/root" PREFIX=/usr >"$dir/log" 2>&1 || fail "make install: $(cat "$dir/log")"
bin=$dir/root/usr/bin
# library.sh tests the library.
[ "$(cd "$dir/root" && find . \( -type f -o -type l \) ! -path './usr/include/*' ! -path '*/man3/*' ! -name 'liboffwind*' | sort | paste -sd' ')" = \
	"./etc/offwind/offwind.conf ./usr/bin/offwind ./usr/bin/perf_to_profile ./usr/lib/offwind/libunwind-offwind.so ./usr/lib/offwind/offwind_sqlite.so ./usr/lib/systemd/system/offwind.service ./usr/lib/systemd/system/offwind.service.d/perf-event-paranoid.conf ./usr/lib/systemd/system/offwind.socket ./usr/lib/sysusers.d/offwind.conf ./usr/share/bash-completion/completions/offwind ./usr/share/doc/offwind/page-licences.txt ./usr/share/fish/vendor_completions.d/offwind.fish ./usr/share/man/man1/offwind.1 ./usr/share/man/man1/perf_to_profile.1 ./usr/share/man/man5/offwind.conf.5 ./usr/share/man/man8/offwind-daemon.8 ./usr/share/zsh/site-functions/_offwind" ] || fail "installed: $(find "$dir/root")"
[ "$("$bin/offwind" --version)" = "offwind $(sed -n 's/^VERSION := //p' Makefile)" ] || fail "--version"

echo "== the manual pages"
page=$dir/root/usr/share/man/man1/offwind.1
daemon=$dir/root/usr/share/man/man8/offwind-daemon.8
for p in "$page" "$daemon"; do
	man --warnings -E UTF-8 -l "$p" >"$dir/page" 2>"$dir/log" || fail "man: $(cat "$dir/log")"
	[ ! -s "$dir/log" ] || fail "man warns: $(cat "$dir/log")"
done
# They have the options of each command as --help has them.
python3 deploy/man1.py --check "$bin/offwind" "$page" "$daemon" >"$dir/log" 2>&1 || fail "run make man: $(cat "$dir/log")"
python3 deploy/man1.py --check "$bin/offwind" "$page" >"$dir/log" 2>&1 && fail "man1.py accepts pages without the daemon"
# The check is checked: an option that is not in the page, one that the program does not have, a command without a list.
sed '/^\.It Fl -comm /,/^Record/d' "$page" >"$dir/less"
sed 's/^\.It Fl -uprobe /.It Fl -nosuch /' "$page" >"$dir/more"
sed '/options of top$/d' "$page" >"$dir/none"
for wrong in less more none; do
	python3 deploy/man1.py --check "$bin/offwind" "$dir/$wrong" "$daemon" >"$dir/log" 2>&1 && fail "man1.py accepts a wrong page: $wrong"
done

echo "== completion"
cat >"$dir/complete.sh" <<'SH'
. "$1"
shift
COMP_WORDS=("$@") COMP_CWORD=$(($# - 1))
_offwind
printf '%s\n' "${COMPREPLY[@]}"
SH
complete() { PATH=$bin:$PATH bash "$dir/complete.sh" "$dir/root/usr/share/bash-completion/completions/offwind" "$@" | paste -sd' '; }
[ "$(complete offwind rec)" = record ] || fail "offwind rec: $(complete offwind rec)"
[ "$(complete offwind record --off)" = --off-cpu ] || fail "record --off: $(complete offwind record --off)"
[ "$(complete offwind help fla)" = flamegraph ] || fail "help fla"
[ "$(complete offwind daemon --check)" = --check-config ] || fail "daemon --check: $(complete offwind daemon --check)"
[ "$(complete offwind query he)" = heatmap ] || fail "query he: $(complete offwind query he)"
[ "$(complete offwind fleet i)" = init ] || fail "fleet i: $(complete offwind fleet i)"
[ "$(complete offwind archive p)" = put ] || fail "archive p: $(complete offwind archive p)"

# zsh's own functions work only in its line editor: these replace them.
cat >"$dir/complete.zsh" <<'SH'
_describe() { print -l -- "${commands[@]%%:*}" }
compadd() { shift; print -l -- $@ }
_files() { print files }
completion=$1
shift
words=("$@") CURRENT=$# PREFIX=${@[-1]}
source $completion
SH
complete() { PATH=$bin:$PATH zsh -f "$dir/complete.zsh" "$dir/root/usr/share/zsh/site-functions/_offwind" "$@" | paste -sd' '; }
[[ " $(complete offwind rec) " == *" record "* ]] || fail "zsh: offwind rec: $(complete offwind rec)"
[[ " $(complete offwind record --off) " == *" --off-cpu "* ]] || fail "zsh: record --off: $(complete offwind record --off)"
[[ " $(complete offwind daemon --check) " == *" --check-config "* ]] || fail "zsh: daemon --check: $(complete offwind daemon --check)"
[[ " $(complete offwind query he) " == *" heatmap "* ]] || fail "zsh: query he: $(complete offwind query he)"
[[ " $(complete offwind fleet i) " == *" init "* ]] || fail "zsh: fleet i: $(complete offwind fleet i)"
[[ " $(complete offwind archive p) " == *" put "* ]] || fail "zsh: archive p: $(complete offwind archive p)"
[ "$(complete offwind record a)" = files ] || fail "zsh: record a: $(complete offwind record a)"
complete() { PATH=$bin:$PATH fish -c "source $dir/root/usr/share/fish/vendor_completions.d/offwind.fish; complete -C '$1'" | cut -f1 | paste -sd' '; }
[ "$(complete 'offwind rec')" = record ] || fail "fish: offwind rec: $(complete 'offwind rec')"
[ "$(complete 'offwind record --off')" = --off-cpu ] || fail "fish: record --off: $(complete 'offwind record --off')"
[ "$(complete 'offwind daemon --check')" = --check-config ] || fail "fish: daemon --check: $(complete 'offwind daemon --check')"
[ "$(complete 'offwind query he')" = heatmap ] || fail "fish: query he: $(complete 'offwind query he')"
[ "$(complete 'offwind fleet i')" = init ] || fail "fish: fleet i: $(complete 'offwind fleet i')"
[ "$(complete 'offwind archive p')" = put ] || fail "fish: archive p: $(complete 'offwind archive p')"
[ "$(complete 'offwind help fla')" = flamegraph ] || fail "fish: help fla: $(complete 'offwind help fla')"

echo "== perf_to_profile"
# A recording whose program is on this machine; without perf, one that has only addresses.
gcc -O1 -g -static -pthread -o "$dir/spin" tests/cases/perfdata/spin.c || fail gcc
data=$dir/perf.data name=nest
if ! perf record -q -o "$data" -F 2000 --call-graph dwarf,4096 -e cpu-clock "$dir/spin" >"$dir/log" 2>&1; then
	echo "perf record does not work here; a stored recording instead"
	data=tests/cases/perfdata/file.data name='[spin]'
fi
"$bin/perf_to_profile" -i $data -o "$dir/a" 2>"$dir/log" || fail "perf_to_profile: $(cat "$dir/log")"
"$bin/offwind" report --check "$dir/a" >/dev/null || fail "its profile is not sound"
echo older >"$dir/b"
"$bin/perf_to_profile" -i $data -o "$dir/b" 2>"$dir/log"
[ $? = 1 ] && [ "$(cat "$dir/b")" = older ] && grep -q -- '-f' "$dir/log" || fail "a file that is there is replaced without -f"
"$bin/perf_to_profile" -f -i $data -o "$dir/b" 2>"$dir/log" || fail "-f: $(cat "$dir/log")"
cmp "$dir/a" "$dir/b" || fail "-f gives another profile"
echo garbage >"$dir/bad"
"$bin/perf_to_profile" -f -i "$dir/bad" -o "$dir/b" 2>"$dir/log"
[ $? = 1 ] && grep -q 'bad: offset 0' "$dir/log" && cmp "$dir/a" "$dir/b" || fail "a bad input costs the older profile"
"$bin/perf_to_profile" -i "$dir/bad" -o "$dir/d" 2>/dev/null
[ $? = 1 ] && [ ! -e "$dir/d" ] || fail "a bad input makes a profile"
for words in "" "-i $data" "-o $dir/c" "-i $data -o $dir/c rest" "-x"; do
	"$bin/perf_to_profile" $words >"$dir/log" 2>&1
	[ $? = 2 ] && [ ! -e "$dir/c" ] || fail "perf_to_profile $words"
done

echo "== go tool pprof finds it"
if command -v go >/dev/null; then
	export PPROF_TMPDIR=$dir
	PATH=$bin:$PATH go tool pprof -top -nodecount=1000 -nodefraction=0 $data >"$dir/top" 2>"$dir/log" || fail "go tool pprof: $(cat "$dir/log")"
	go tool pprof -top -nodecount=1000 -nodefraction=0 "$dir/a" >"$dir/want" 2>/dev/null
	grep -qF "% $name" <(tr -s ' ' <"$dir/top") || fail "no function of the recorded program: $(cat "$dir/top")"
	cmp <(grep %$ "$dir/top") <(grep %$ "$dir/want") && cmp <(grep -E '^ .*%' "$dir/top") <(grep -E '^ .*%' "$dir/want") ||
		fail "through go tool pprof it is another profile"
else
	fail "go is not installed"
fi

echo "== uninstall"
echo mine >"$dir/root/usr/lib/another"
# An installation does not replace settings, and does not take away those that were changed.
echo '# mine' >>"$dir/root/etc/offwind/offwind.conf"
make -s install BUILD="$BUILD" DESTDIR="$dir/root" PREFIX=/usr >"$dir/log" 2>&1 || fail "make install again: $(cat "$dir/log")"
make -s uninstall BUILD="$BUILD" DESTDIR="$dir/root" PREFIX=/usr >"$dir/log" 2>&1 || fail "make uninstall: $(cat "$dir/log")"
grep -q '^# mine' "$dir/root/etc/offwind/offwind.conf" || fail "settings that were changed are gone"
rm -r "$dir/root/etc/offwind"
make -s install BUILD="$BUILD" DESTDIR="$dir/root" PREFIX=/usr >"$dir/log" 2>&1 || fail "make install again: $(cat "$dir/log")"
make -s uninstall BUILD="$BUILD" DESTDIR="$dir/root" PREFIX=/usr >"$dir/log" 2>&1 || fail "make uninstall: $(cat "$dir/log")"
[ "$(cd "$dir/root" && find . -type f -o -type l)" = ./usr/lib/another ] || fail "left: $(find "$dir/root" -type f -o -type l)"

[ $failures = 0 ] || { echo "$failures failures"; exit 1; }
