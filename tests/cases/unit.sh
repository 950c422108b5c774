#!/usr/bin/env bash
# Tests the systemd units: what they take from the service, and that their command lines are some.
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
[ "${command[*]}" = "/usr/bin/offwind daemon" ] || fail "it is not the daemon: ${command[*]}"
# Without rights this is where it ends; a wrong option ends it before.
setpriv --reuid 65534 --regid 65534 --clear-groups true 2>/dev/null && as=(setpriv --reuid 65534 --regid 65534 --clear-groups) || as=()
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
chmod 755 "$dir"
install -m 755 "$BUILD/offwind" "$dir/offwind"
# systemd reads them without a complaint, with a program that exists.
mkdir "$dir/units" && cp deploy/offwind.service deploy/offwind.socket "$dir/units" && sed -i "s,/usr/bin/offwind,$dir/offwind," "$dir/units/offwind.service"
mkdir "$dir/units/offwind.service.d" && cp deploy/perf-event-paranoid.conf "$dir/units/offwind.service.d"
[ "$(grep -v '^#' deploy/perf-event-paranoid.conf | paste -sd' ')" = "[Service] CapabilityBoundingSet=CAP_SYS_ADMIN" ] || fail "the drop-in gives more"
systemd-analyze verify --man=no "$dir/units/offwind.service" "$dir/units/offwind.socket" >"$dir/log" 2>&1 && [ ! -s "$dir/log" ] || fail "systemd-analyze verify: $(cat "$dir/log")"
# What is served, is served on this machine only, and for members of a group that is made.
socket=$(sed -n '/^\[Socket\]/,$p' deploy/offwind.socket)
[ "$(sed -n 's/^ListenStream=//p' <<<"$socket" | paste -sd' ')" = "127.0.0.1:7227 /run/offwind/offwind.sock" ] || fail "the addresses: $socket"
grep -qx 'IPAddressDeny=any' <<<"$socket" && grep -qx 'IPAddressAllow=localhost' <<<"$socket" && grep -qx 'SocketMode=0660' <<<"$socket" || fail "who may connect: $socket"
systemd-sysusers --dry-run "$PWD/deploy/offwind.sysusers" >"$dir/log" 2>&1 || fail "systemd-sysusers: $(cat "$dir/log")"
grep -qx "g $(sed -n 's/^SocketGroup=//p' <<<"$socket") - -" deploy/offwind.sysusers || fail "the socket's group is not made"
env -u OFFWIND_DB "${as[@]}" "$dir/offwind" "${command[@]:1}" 2>"$dir/log"
[ $? = 1 ] && grep -q 'needs root' "$dir/log" || fail "the command line: $(cat "$dir/log")"
exit $((failures > 0))
