#!/usr/bin/env bash
# Tests offwind doctor: every check has one line, the exit code agrees with the last line, and
# without rights recording does not work.
set -u
offwind=$BUILD/offwind
out=$("$offwind" doctor)
rc=$?
printf '%s\n' "$out"
bad=$(printf '%s\n' "$out" | sed '/^$/,$d' | grep -vcE '^.{22} (ok|partly|no) +[^ ]')
[ "$bad" = 0 ] || { echo "$bad lines are not of the table"; exit 1; }
[ "$(printf '%s\n' "$out" | sed '/^$/,$d' | wc -l)" -ge 12 ] || { echo "checks are missing"; exit 1; }
last=$(printf '%s\n' "$out" | tail -n 1)
case $rc in
0) [[ $last == "Recording the live system works." ]] || exit 1 ;;
3) [[ $last == "Recording the live system works, except for: "* ]] || exit 1 ;;
1) [[ $last == "Recording the live system does not work here: "* ]] || exit 1 ;;
*) echo "exit code $rc"; exit 1 ;;
esac
"$offwind" doctor --help | grep -q '^usage: offwind doctor' || { echo "no help"; exit 1; }
"$offwind" doctor nonsense 2>/dev/null
[ $? -eq 2 ] || { echo "nonsense is no usage error"; exit 1; }
[ "$(id -u)" = 0 ] || exit 0
[ $rc -ne 1 ] || { echo "root cannot record here: $last"; exit 77; }
copy=$(mktemp -d) || exit 1
trap 'rm -rf "$copy"' EXIT
chmod 755 "$copy" && install -m 755 "$offwind" "$copy/offwind" # the tree may be closed to others
setpriv --reuid 65534 --regid 65534 --clear-groups "$copy/offwind" doctor >"$copy/out"
[ $? -eq 1 ] || { cat "$copy/out"; echo "nobody may record"; exit 1; }
grep -qE '^recording +no +.*sudo offwind record .*setcap cap_bpf,cap_perfmon' "$copy/out" || { cat "$copy/out"; exit 1; }
grep -q 'offwind has the right' "$copy/out" && { cat "$copy/out"; echo "nobody has no right"; exit 1; }
[ "$(grep -c 'loading the capture program' "$copy/out")" = 0 ] || { cat "$copy/out"; echo "one reason is told several times"; exit 1; }
