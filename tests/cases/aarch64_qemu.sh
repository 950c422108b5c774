#!/usr/bin/env bash
# Runs the unit tests of the aarch64 build of the unwinder under qemu, including a walk of its own
# stack that is compared with libgcc's.
set -u
tests/arm64.sh libc6 libgcc-s1 libc6-dev zlib1g-dev libzstd-dev liblzma-dev || exit
root=$BUILD/arm64/root
make -s -j2 BUILD="$BUILD" WERROR=1 aarch64 || exit 1
ran=0 failed=0
# Return addresses are signed with a short hash of qemu's own. The default is the cipher QARMA, on which the tests spend
# nine tenths of their time: each function computes it twice, in software.
cpu=max,pauth-impdef=on
for c in tests/unit/test_*.c; do
	t=$BUILD/aarch64/${c%.c}
	[ -x "$t" ] && ! grep -qE '"(agent|symbolizer|proto|bpf)/' "$c" || continue
	ran=$((ran + 1))
	timeout 300 qemu-aarch64-static -cpu $cpu -L "$root" "$t" || { echo "$t: exit $?"; failed=$((failed + 1)); }
done
echo "$ran unit tests of the aarch64 build, $failed failed"
[ $failed -eq 0 ] && [ $ran -ge 8 ]
