#!/usr/bin/env bash
# Compares the unwind information made from Go's table of functions with the .debug_frame of the
# same files, and checks that a stripped file has no less of it.
set -u
command -v go > /dev/null || { echo "no go"; exit 77; }
work=$BUILD/gopclntab
rm -rf "$work"
mkdir -p "$work"
export GOCACHE=$PWD/$BUILD/go-cache GO111MODULE=off GOFLAGS=
cat > "$work/a.go" <<'G'
package main

import "fmt"

func main() { fmt.Println("rows") }
G
cat > "$work/c.go" <<'G'
package main

// #include <stdlib.h>
// static int twice(int x) { return 2 * abs(x); }
import "C"
import "fmt"

func main() { fmt.Println("rows", C.twice(4)) }
G
{
	go build -o "$work/exe" "$work/a.go" &&
	GOARCH=arm64 go build -o "$work/arm64" "$work/a.go" &&
	go build -buildmode=pie -o "$work/cgo_pie" "$work/c.go" &&
	go build -ldflags='-s -w' -o "$work/stripped" "$work/a.go"
} > "$work/make.log" 2>&1 || { cat "$work/make.log"; exit 1; }

# Functions at which Go's own tracebacks end, too; and two functions that have a caller, although Go does not say so.
nobody='runtime\.(rt0_go|mcall|gogo|systemstack|morestack|asmcgocall|goexit|clone)|gogo'
fp='runtime\.(nanotime1|walltime|sigfwd|cgocallback|callCgo(Sigaction|Mmap|Munmap))|time\.now'
caller='runtime\.(mstart|sigtramp)'
failed=0
for name in exe arm64 cgo_pie; do
	"$BUILD/tests/diff/gopclntab" "$work/$name" > "$work/$name.out" 2> "$work/$name.err" || {
		echo "$name:"; head -n 10 "$work/$name.err"; failed=1; }
	last=$(tail -n 1 "$work/$name.out")
	echo "$name: $last"
	read -r n _ all _ <<< "$last"
	[ "$n" -eq "$all" ] && [ "$n" -gt 1000 ] || { echo "$name: not every function"; failed=1; }
	go tool nm "$work/$name" | awk 'NR == FNR { if ($2 == "T" || $2 == "t") names[$1] = names[$1] " " $3; next }
		NF == 2 { print $2 names[$1] }' - "$work/$name.out" | sed 's/\.abi0//g' > "$work/$name.told"
	for how in nobody fp caller; do
		awk -v how=$how '$1 == how' "$work/$name.told" | grep -vE "^$how .*\<(${!how})( |$)" &&
			{ echo "$name: not expected of these"; failed=1; }
	done
	for function in nobody:mcall nobody:systemstack nobody:goexit nobody:morestack fp:nanotime1; do
		grep -q "^${function%:*} .*runtime.${function#*:}" "$work/$name.told" ||
			{ echo "$name: $function is missing"; failed=1; }
	done
done
go tool nm "$work/exe" | awk '$2 == "T" && $3 ~ /^(runtime|fmt)\./ { print $1 }' > "$work/functions"
# Rules do not come from the parts that stripping removes.
for name in exe stripped; do
	"$BUILD/tests/diff/rule_at" "$work/$name" < "$work/functions" > "$work/$name.rules"
done
cmp "$work/exe.rules" "$work/stripped.rules" && [ "$(wc -l < "$work/exe.rules")" -gt 1000 ] || failed=1
# Names do not either: Go's own nm has them for the file that is not stripped.
strip -o "$work/cgo_stripped" "$work/cgo_pie" || failed=1
for pair in stripped:exe cgo_stripped:cgo_pie; do
	go tool nm "$work/${pair#*:}" | awk '$2 ~ /[Tt]/ && $3 != "runtime.text" && $3 != "runtime.etext" { print $1, $3 }' |
		sed 's/\.abi0$//; s/\[[^]]*\]/[...]/g' | sort > "$work/names.go" # as Go shortens them
	"$BUILD/tests/diff/sym_dump" table "$work/${pair%:*}" | sed 's/^0*//' | cut -d' ' -f1,3 | sort > "$work/names"
	# Several functions may begin at one address.
	join "$work/names" "$work/names.go" | awk -v pair=$pair '
		{ all[$1] = $2; if ($2 == $3) same[$1] = 1 }
		END { for (a in all) { n++; if (!(a in same)) { print pair ": " a " " all[a]; bad++ } }
			print pair ": " n " names, " bad + 0 " differing"; exit bad > 0 || n < 1400 }' || failed=1
done
exit $failed
