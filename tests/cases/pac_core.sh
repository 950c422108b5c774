#!/usr/bin/env bash
# Tests that an aarch64 core with signed return addresses unwinds like the one without, if
# NT_ARM_PAC_MASK says which bits the signatures take.
set -u
. tests/corpus.sh
work=$BUILD/pac_core
mkdir -p "$work"
case=$corpus/elfutils/backtrace.aarch64.fp
failed=0

frames() { "$BUILD/asan/offwind" unwind -q --format tsv --no-inline --exe "$case.exec" "$1" | sed 's/^[^:]*:/:/'; }

frames "$case.core" > "$work/plain.tsv"
"$BUILD/offwind" unwind -q --format text --no-inline --exe "$case.exec" "$case.core" | grep -oP '^\t *\K[0-9a-f]+' > "$work/addresses"
python3 tests/cases/pac_core.py "$case.core" "$work/addresses" "$work/told.core" "$work/untold.core" || failed=1
frames "$work/told.core" > "$work/told.tsv"
frames "$work/untold.core" > "$work/untold.tsv"
diff "$work/plain.tsv" "$work/told.tsv" || failed=1
cmp -s "$work/plain.tsv" "$work/untold.tsv" && { echo "the mask makes no difference here"; failed=1; }
[ "$(wc -l < "$work/told.tsv")" -gt 10 ] || { echo "few frames"; failed=1; }
exit $failed
