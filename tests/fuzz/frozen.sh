#!/usr/bin/env bash
# Fuzzes the readers of core files and snapshots, also behind libunwind's functions, starting from real files.
set -eu
trap 'echo "line $LINENO fails: $BASH_COMMAND"' ERR
. tests/corpus.sh
work=$BUILD/fuzz/frozen.seeds
rm -rf "$work"
mkdir -p "$work"/{core,snapshot}

# The beginnings of real cores, and small cores whose memory has a whole ELF file.
head -c 8192 "$corpus/elfutils/testfiledwarfinlines.core" > "$work/core/inlines"
head -c 8192 "$corpus/elfutils/backtrace.x86_64.core" > "$work/core/x86_64"
head -c 8192 "$corpus/elfutils/backtrace.aarch64.fp.core" > "$work/core/aarch64"
python3 tests/fuzz/frozen_seeds.py "$work/core/small"
for case in straddle_arm64 apk_rx_arm64 eh_frame_hdr_begin_x86_64; do
	folder=$corpus/libunwindstack/$case
	{
		cat "$folder/regs.txt"; printf '\xff'
		cat "$folder/maps.txt"; printf '\xff'
		head -c 300 "$folder/stack.data"; printf '\xff'
		printf '\x00\xf0\x4e\x00\x5e\x00\x00\x00\x7fELF'
	} > "$work/snapshot/$case"
done

tests/fuzz/run core 30000 8192 "$work/core"
tests/fuzz/run snapshot 8000 4000 "$work/snapshot"
tests/fuzz/run compat 5000 8192 "$work/core"
