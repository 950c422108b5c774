#!/usr/bin/env bash
# Enforces the include table (which directory may include which) and where machines are named. A line
# that breaks it is a fault in the design, not in this test.
#   usage: tests/check_includes.sh [TREE]
set -u
cd "${1:-$(dirname "$0")/..}" || exit 1
failures=0

# $1 directory, $2 extended regex of allowed "…" includes, $3 extended regex of forbidden <…> includes
check() {
	local folder=$1 allowed=$2 forbidden=$3 file line text all include='#[[:space:]]*include[[:space:]]*'
	all=$(grep -rnE "^[[:space:]]*$include" --include='*.[ch]' "$folder" 2>/dev/null)
	while IFS=: read -r file line text; do
		[ -n "$file" ] || continue
		[[ $text =~ (\"[^\"]*\"|\<[^\>]*\>) ]]
		echo "$file:$line: $folder/ may not include ${BASH_REMATCH[1]}"
		failures=$((failures + 1))
	done < <(
		grep -E "$include\"" <<<"$all" | grep -vE "$include\"($allowed)\""
		grep -E "$include<($forbidden|(schema|unwinder|symbolizer|proto|agent|tests)/[^>]*)>" <<<"$all"
	)
}

own='(sqlite3|protobuf-c/.*|bpf/.*|microhttpd|curl/.*|nettle/.*)\.h'
check schema     'schema/[a-z_]+\.h' 'stdint\.h|stdio\.h|stdlib\.h|elf\.h|'"$own"
check bpf        '(schema|bpf)/[a-z_]+\.h|vmlinux\.h' 'stdint\.h|stdio\.h|stdlib\.h|string\.h|errno\.h|sqlite3\.h|elf\.h'
check base       '(schema|base)/[a-z0-9_]+\.h|unwinder/unwinder\.h' "$own|(elfutils/libdw.*|dwarf)\\.h"
check unwinder   '(schema|base)/[a-z0-9_]+\.h|unwinder/([a-z]+/)?[a-z0-9_]+\.h' "$own|(elfutils/libdw.*|dwarf)\\.h"
# A directory of the unwinder uses those before it: a walk uses rules, and rules come from tables and CFI.
before='(schema|base)/[a-z0-9_]+\.h|unwinder/(unwinder|cursor|walker|rule)\.h'
for room in arch cfi table rule dynamic walk remote; do
	before="$before|unwinder/$room/[a-z0-9_]+\.h"
	check unwinder/$room "$before" "$own|(elfutils/libdw.*|dwarf)\\.h"
done
check generator  'generator/[a-z]+\.h' "$own|elf\\.h"
check symbolizer '(schema|base)/[a-z0-9_]+\.h|symbolizer/([a-z]+/)?[a-z0-9_]+\.h|unwinder/unwinder\.h' "$own"
before='(schema|base)/[a-z0-9_]+\.h|(unwinder/unwinder|symbolizer/symbolizer)\.h'
for room in text elf dwarf debug; do
	before="$before|symbolizer/$room/[a-z0-9_]+\.h"
	check symbolizer/$room "$before" "$own"
done
# What is written in one place for all: what text is, how arrays grow, the hash index, reading bytes, binary
# search, the notes of ELF files. Nothing else of base/ is for the agent.
check proto      '(schema|proto)/[a-z0-9_]+(\.pb-c)?\.h|base/(text|growth|hash|search)\.h' '(sqlite3|bpf/.*)\.h'
check compat     'compat/[a-z_]+\.h|base/elf_note\.h|(unwinder/unwinder|symbolizer/symbolizer|agent/source/(source|machine))\.h' "$own"
check agent      '(schema|agent)/[a-z0-9_/]+\.h|base/(text|bytes|growth|hash|search|elf_note)\.h|unwinder/unwinder\.h|symbolizer/symbolizer\.h|proto/[a-z0-9_]+(\.pb-c)?\.h|bpf/[a-z_]+\.skel\.h' 'vmlinux\.h'

# Inside the agent: each directory, and the other directories that it may include.
while read -r room others; do
	check "agent/$room" "(schema/|proto/|bpf/|agent/|agent/(${others:+${others// /|}|}$room)/([a-z]+/)?)[a-z0-9_.-]+\.h|(unwinder/unwinder|symbolizer/symbolizer|base/(text|bytes|search|elf_note))\.h" 'vmlinux\.h'
done <<-ROOMS
	role
	source role
	live opener role source
	perfdata source
	owc source
	store role
	opener role source store
	process opener role source store
	runtime opener process role source
	pipeline opener process role runtime source store
	export pipeline process role runtime source
	history export role store
	http cli export history role store
	send export fleet history http role
	fleet cli export history http role store
	cli export history live opener owc pipeline role source store
ROOMS

# In agent/live, what is asked of the system knows nothing of the BPF programs, and neither of the recording itself.
live='(schema|agent)/[a-z0-9_]+\.h|agent/(opener|source)/[a-z0-9_]+\.h|symbolizer/symbolizer\.h|bpf/[a-z_]+\.skel\.h'
check agent/live/system "$live|agent/live/system/[a-z0-9_]+\.h" 'vmlinux\.h'
check agent/live/bpf "$live|agent/live/(system|bpf)/[a-z0-9_]+\.h" 'vmlinux\.h'

# Machines are data: beside unwinder/arch, only these files name them.
machines='agent/source/machine.c base/elf_machine.h compat/libunwind.c symbolizer/elf/plt.c unwinder/cursor.h'
while IFS=: read -r file line _; do
	[[ $file == unwinder/arch/* || " $machines " == *" $file "* ]] && continue
	echo "$file:$line: names a machine (EM_…); see agent/source/machine.h, base/elf_machine.h and unwinder/arch/arch.h"
	failures=$((failures + 1))
done < <(grep -rnwE 'EM_[A-Z0-9_]+' --include='*.[ch]' base schema unwinder symbolizer proto agent compat generator 2>/dev/null)

if [ $failures -ne 0 ]; then
	echo "$failures lines break the table in docs/architecture.md"
	exit 1
fi
