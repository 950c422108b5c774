#!/usr/bin/env bash
# Tests the include check: bad includes for each directory and for each way of writing them, in a tree
# that has nothing else, must each be named, and no good one.
set -u
tree=$(mktemp -d) || exit 1
trap 'rm -rf "$tree"' EXIT
tests/check_includes.sh "$tree" || { echo "an empty tree fails"; exit 1; }
files=() wanted=() lines=()

# Lay a file with a line that passes or fails. All are searched at once, at the end.
expect() { # pass|fail FILE LINE
	local name=${2##*/} folder=${2%/*}
	local file=$folder/${name%%.*}${#files[@]}.${name#*.}
	mkdir -p "$tree/$folder"
	printf '/* probe */\n%b\n' "$3" >"$tree/$file"
	files+=("$file") wanted+=("$1") lines+=("$3")
}

expect fail schema/probe.h '#include <stdint.h>'
expect fail schema/probe.h '#include "unwinder/unwinder.h"'
expect pass schema/probe.h '#include <linux/types.h>'
expect fail bpf/probe.bpf.c '#include <stdio.h>'
expect fail bpf/probe.bpf.c '#include "agent/event.h"'
expect pass bpf/probe.bpf.c '#include "schema/capture.h"\n#include <bpf/bpf_helpers.h>'
for header in agent/event.h symbolizer/symbolizer.h proto/profile.pb-c.h ../agent/event.h unwinder/../agent/event.h; do
	expect fail unwinder/probe.c "#include \"$header\""
done
for header in sqlite3.h bpf/libbpf.h protobuf-c/protobuf-c.h elfutils/libdw.h; do
	expect fail unwinder/probe.c "#include <$header>"
done
expect pass unwinder/probe.c '#include "unwinder/unwinder.h"\n#include <elf.h>'
# A table may not include a walk.
expect fail unwinder/cfi/probe.c '#include "unwinder/walk/walk.h"'
expect fail unwinder/table/probe.c '#include "unwinder/rule/object.h"'
expect fail unwinder/rule/probe.c '#include "unwinder/walk/step.h"'
expect fail unwinder/walk/probe.c '#include "unwinder/remote/proc_info.h"'
expect pass unwinder/walk/probe.c '#include "unwinder/rule/object.h"\n#include "base/bytes.h"'
expect fail base/probe.c '#include "unwinder/rule.h"'
for header in agent/event.h unwinder/internal.h proto/profile.pb-c.h; do
	expect fail symbolizer/probe.c "#include \"$header\""
done
for header in sqlite3.h bpf/libbpf.h bpf/bpf.h; do
	expect fail symbolizer/probe.c "#include <$header>"
done
expect fail symbolizer/elf/probe.c '#include "symbolizer/debug/debug.h"'
expect pass symbolizer/dwarf/probe.c '#include "symbolizer/elf/image.h"'
expect pass symbolizer/probe.c '#include "unwinder/unwinder.h"\n#include <lzma.h>'
# Inside the agent: the store knows no opener, a process no profile.
expect fail agent/store/probe.c '#include "agent/opener/opener.h"'
expect fail agent/store/probe.c '#include "agent/source/source.h"'
expect fail agent/process/probe.c '#include "agent/pipeline/profile.h"'
expect fail agent/live/system/probe.c '#include "agent/live/bpf/bpf.h"'
expect fail agent/source/probe.c '#include "agent/live/system/inventory.h"'
expect pass agent/live/probe.c '#include "agent/source/procfs.h"'
# Machines are data.
expect fail agent/pipeline/probe.c 'int machine = EM_X86_64;'
expect pass unwinder/arch/probe.c 'int machine = EM_X86_64;'
expect pass agent/pipeline/probe.c '#include "agent/process/module.h"'
expect fail proto/probe.c '#include "agent/event.h"'
expect fail proto/probe.c '#include "unwinder/unwinder.h"'
expect fail proto/probe.c '#include <sqlite3.h>'
expect pass proto/probe.c '#include "base/text.h"'
expect fail proto/probe.c '#include "base/elf.h"'
expect pass proto/probe.c '#include "proto/profile.pb-c.h"\n#include <protobuf-c/protobuf-c.h>'
for header in unwinder/internal.h symbolizer/elf/symbol_table.h symbolizer/elf/image.h bpf/capture.bpf.c; do
	expect fail agent/cmd/probe.c "#include \"$header\""
done
expect fail compat/probe.c '#include "unwinder/walk/walk.h"'
expect fail compat/probe.c '#include "agent/event.h"'
expect pass compat/probe.c '#include "agent/source/source.h"'
expect fail agent/cli/probe.c '#include "agent/cmd/cmd.h"'
expect fail agent/perfdata/probe.c '#include "agent/pipeline/names.h"'
expect fail agent/export/probe.c '#include "agent/opener/opener.h"'
expect pass agent/export/probe.c '#include "agent/pipeline/names.h"'
expect fail agent/probe.c '#include "base/elf.h"'
expect pass agent/export/probe.c '#include "base/text.h"'
expect fail agent/probe.c '#include <vmlinux.h>'
expect pass agent/deep/probe.c '#include "symbolizer/symbolizer.h"\n#include <sqlite3.h>'
# The same include, written in another way.
expect fail unwinder/probe.h '\t#\tinclude\t"agent/event.h"'
expect fail unwinder/probe.h '#include"agent/event.h"'
expect fail unwinder/probe.h '#include "agent/event.h" /* <elf.h> */'
expect fail unwinder/probe.h '#include <sqlite3.h> // "unwinder/unwinder.h"'
expect fail unwinder/probe.h '#include <agent/event.h>'
expect fail agent/probe.h '#include <symbolizer/elf/symbol_table.h>'

tests/check_includes.sh "$tree" >"$tree/log" 2>&1
[ $? = 1 ] || { echo "the check does not fail"; exit 1; }
failures=0
for i in "${!files[@]}"; do
	said=pass
	grep -q "^${files[i]}:2: " "$tree/log" && said=fail
	[ $said = "${wanted[i]}" ] && continue
	echo "${files[i]}: ${lines[i]}: does not ${wanted[i]}"
	failures=$((failures + 1))
done
echo "${#files[@]} includes tried"
[ $failures -eq 0 ]
