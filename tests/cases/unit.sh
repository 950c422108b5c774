#!/usr/bin/env bash
# Tests the systemd unit: what it takes from the service, and that its command line is one.
set -u
unit=deploy/offwind.service
failures=0
fail() {
	echo "FAIL: $*"
	failures=$((failures + 1))
}
said=$(systemd-analyze security --offline=true --no-pager "$unit" 2>&1)
exposure=$(sed -nE 's/.*Overall exposure level for [^:]*: ([0-9.]+) .*/\1/p' <<<"$said")
echo "exposure ${exposure:-unknown}"
awk -v e="${exposure:-10}" 'BEGIN { exit !(e <= 2.5) }' || fail "the exposure is above 2.5: $said"
grep -i 'unknown\|ignoring' <<<"$said" && fail "a setting that systemd does not know"
read -r -a command < <(sed -n 's/^ExecStart=//p' "$unit")
[ "${command[1]}" = record ] || fail "it does not record: ${command[*]}"
# Without rights this is where it ends; a wrong option ends it before.
setpriv --reuid 65534 --regid 65534 --clear-groups true 2>/dev/null && as=(setpriv --reuid 65534 --regid 65534 --clear-groups) || as=()
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
chmod 755 "$dir"
install -m 755 "$BUILD/offwind" "$dir/offwind"
"${as[@]}" "$dir/offwind" "${command[@]:1}" 2>"$dir/log"
[ $? = 1 ] && grep -q 'needs root' "$dir/log" || fail "the command line: $(cat "$dir/log")"
exit $((failures > 0))
