#!/usr/bin/env bash
# Tests the Debian packages: make deb with the object files that are there, lintian, what the packages hold, and
# the daemon as the package has it.
set -u
. tests/wait.sh
for tool in dpkg-buildpackage dh lintian; do
	command -v $tool >/dev/null || { echo "needs $tool"; exit 77; }
done
dir=$(mktemp -d)
trap 'kill $(jobs -p) 2>/dev/null; rm -rf "$dir"' EXIT
failures=0
fail() {
	echo "FAIL: $*"
	failures=$((failures + 1))
}
version=$(sed -n 's/^VERSION := //p' Makefile)
abi=$(sed -n 's/^ABI := //p' Makefile)
multiarch=$(dpkg-architecture -qDEB_HOST_MULTIARCH)

echo "== versions"
[ "$(dpkg-parsechangelog -S Version)" = "$version" ] || fail "debian/changelog is of another version than the Makefile"
# What the packages are built with is what make deps installs.
make -s --eval 'show: ; @echo $(PACKAGES)' show | tr ' ' '\n' | sort -u >"$dir/installed"
sed -n '/^Build-Depends:/,/^$/p' debian/control | sed -nE 's/^ ([a-z0-9+-]+)(:any)?,?$/\1/p' | grep -v '^npm$' | sort -u >"$dir/needed"
[ "$(wc -l <"$dir/needed")" -gt 15 ] && ! comm -13 "$dir/installed" "$dir/needed" | grep . || fail "make deps does not install what debian/control needs"

echo "== make deb"
make deb BUILD="$BUILD" OBJECTS="$BUILD" DEB_DIR="$dir/deb" >"$dir/log" 2>&1 || fail "make deb: $(tail -n 50 "$dir/log")"
grep -q 'dh_shlibdeps: warning' "$dir/log" && fail "dh_shlibdeps warns: $(grep warning "$dir/log")"
# lintian is what make deb ends with. That it can fail:
mkdir -p "$dir/wrong/DEBIAN" "$dir/wrong/usr/lib/x" && cp "$BUILD/libunwind-offwind.so" "$dir/wrong/usr/lib/x" && printf 'Package: wrong\nVersion: 1\nArchitecture: all\nMaintainer: x\nDescription: x\n' >"$dir/wrong/DEBIAN/control"
dpkg-deb --root-owner-group -b "$dir/wrong" "$dir/wrong.deb" >/dev/null
lintian --fail-on error,warning "$dir/wrong.deb" >/dev/null 2>&1 && fail "lintian accepts everything"

echo "== what they hold"
for p in offwind liboffwind0 liboffwind-dynamic1 liboffwind-dev; do
	deb=$(echo "$dir"/deb/"${p}"_"$version"_*.deb)
	dpkg -c "$deb" | awk '{ print $6 }' | grep -v '/$' | grep -v '^./usr/share/doc/[^/]*/\(copyright\|changelog.gz\)$' | sort | sed "s,$multiarch,ARCH," >"$dir/$p"
	dpkg-deb -x "$deb" "$dir/root"
done
[ "$(paste -sd' ' "$dir/offwind")" = "./etc/offwind/offwind.conf ./lib/systemd/system/offwind.service ./lib/systemd/system/offwind.service.d/perf-event-paranoid.conf ./lib/systemd/system/offwind.socket ./usr/bin/offwind ./usr/bin/perf_to_profile ./usr/lib/offwind/libunwind-offwind.so ./usr/lib/offwind/offwind_sqlite.so ./usr/lib/sysusers.d/offwind.conf ./usr/share/bash-completion/completions/offwind ./usr/share/doc/offwind/page-licences.txt ./usr/share/fish/vendor_completions.d/offwind.fish ./usr/share/lintian/overrides/offwind ./usr/share/man/man1/offwind.1.gz ./usr/share/man/man1/perf_to_profile.1.gz ./usr/share/man/man5/offwind.conf.5.gz ./usr/share/man/man8/offwind-daemon.8.gz ./usr/share/zsh/site-functions/_offwind" ] || fail "offwind has $(cat "$dir/offwind")"
[ "$(paste -sd' ' "$dir/liboffwind0")" = "./usr/lib/ARCH/liboffwind.so.$abi ./usr/lib/ARCH/liboffwind.so.$version" ] || fail "liboffwind0 has $(cat "$dir/liboffwind0")"
[ "$(paste -sd' ' "$dir/liboffwind-dynamic1")" = "./usr/lib/ARCH/liboffwind-dynamic.so.1" ] || fail "liboffwind-dynamic1 has $(cat "$dir/liboffwind-dynamic1")"
for f in usr/include/offwind/unwinder.h usr/include/offwind/dynamic.h usr/lib/ARCH/{liboffwind,liboffwind-dynamic}.{a,so} usr/lib/ARCH/pkgconfig/liboffwind.pc usr/share/man/man3/liboffwind.3.gz; do
	grep -qx "./$f" "$dir/liboffwind-dev" || fail "liboffwind-dev lacks $f"
done
# What is installed, but in no package, would be an error of dh_missing; what is in two, of dpkg.
[ -z "$(sort "$dir"/{offwind,liboffwind0,liboffwind-dynamic1,liboffwind-dev} | uniq -d)" ] || fail "in two packages: $(sort "$dir"/{offwind,lib*} | uniq -d)"
control() { dpkg-deb -f "$dir"/deb/offwind_"$version"_*.deb "$1"; }
[[ " $(control Depends)," == *" libmicrohttpd12,"* && " $(control Depends)," == *" libsqlite3-0 "* ]] || fail "Depends: $(control Depends)"
[ "$(control Recommends)" = "libcurl4, libdebuginfod1" ] || fail "Recommends: $(control Recommends)"
# dlopen takes them by these names.
for so in $(grep -rhoE '"lib[a-z]+\.so\.[0-9]+"' agent/http agent/opener | tr -d '"' | sort -u); do
	package=$(dpkg -S "*/$so" 2>/dev/null | sed 's/:.*//' | head -n 1)
	[[ " $(control Depends), $(control Recommends)," == *" $package,"* ]] || fail "$so of ${package:-no package} is neither in Depends nor in Recommends"
done
# The unit runs these.
for program in $(sed -nE 's/^Exec[A-Za-z]*=([^ ]*).*/\1/p' deploy/offwind.service | sort -u); do
	package=$(dpkg -S "$program" 2>/dev/null | sed 's/:.*//' | head -n 1)
	[ "$program" = /usr/bin/offwind ] || [[ " $(control Depends)," == *" ${package:-none},"* ]] || fail "$program of ${package:-no package} is not in Depends"
done
readelf -d "$dir/root/usr/bin/offwind" | grep -q 'NOW' && readelf -h "$dir/root/usr/bin/offwind" | grep -q 'DYN' || fail "the program is not hardened"
readelf -d "$dir/root/usr/lib/$multiarch/liboffwind.so.$abi" | grep -q "SONAME.*\[liboffwind.so.$abi\]" || fail "the SONAME"

echo "== the maintainer's scripts"
mkdir "$dir/control" && dpkg-deb -e "$dir"/deb/offwind_"$version"_*.deb "$dir/control"
grep -qx /etc/offwind/offwind.conf "$dir/control/conffiles" || fail "offwind.conf is no conffile"
grep -q 'systemd-sysusers.* offwind.conf' "$dir/control/postinst" || fail "the group is not made: $(cat "$dir/control/postinst")"
# An installation starts both units, after the group is made for the socket; an upgrade restarts them.
grep -nE 'systemd-sysusers|deb-systemd-helper enable|deb-systemd-invoke' "$dir/control/postinst" | cut -d: -f2- | sed 's/^[ \t]*//' >"$dir/steps"
cat >"$dir/want" <<'STEPS'
systemd-sysusers ${DPKG_ROOT:+--root="$DPKG_ROOT"} offwind.conf
deb-systemd-helper enable 'offwind.service' >/dev/null || true
deb-systemd-helper enable 'offwind.socket' >/dev/null || true
deb-systemd-invoke $_dh_action 'offwind.service' 'offwind.socket' >/dev/null || true
STEPS
cmp "$dir/steps" "$dir/want" && grep -q '_dh_action=restart' "$dir/control/postinst" && grep -q '_dh_action=start' "$dir/control/postinst" || fail "installing does not start the service: $(cat "$dir/control/postinst")"
grep -q "deb-systemd-invoke stop .*'offwind.service'" "$dir/control/prerm" || fail "removing does not stop the service: $(cat "$dir/control/prerm")"
# What it recorded goes when the package is purged, and only then.
state=/var/lib/$(sed -n 's/^StateDirectory=//p' deploy/offwind.service)
sed "s,/var/lib/,$dir/var/lib/,; s,deb-systemd-helper purge,true," "$dir/control/postrm" >"$dir/postrm"
mkdir -p "$dir$state" && touch "$dir$state/offwind-history.db"
sh "$dir/postrm" remove && [ -e "$dir$state/offwind-history.db" ] && sh "$dir/postrm" purge && [ ! -e "$dir$state" ] || fail "the history after remove and purge: $(cat "$dir/control/postrm")"
grep -q '/usr/bin/offwind daemon' "$dir/root/lib/systemd/system/offwind.service" || fail "the unit runs another program"

echo "== the daemon of the package"
[ "$("$dir/root/usr/bin/offwind" --version)" = "offwind $version" ] || fail "--version"
"$dir/root/usr/bin/offwind" daemon --config "$dir/root/etc/offwind/offwind.conf" --db "$dir/store.db" --check-config || fail "its settings"
if [ "$(id -u)" = 0 ] && { "$dir/root/usr/bin/offwind" doctor >/dev/null 2>&1 || [ $? = 3 ]; }; then
	sed -i "s,^#listen = unix:.*,listen = unix:$dir/socket,; s,^#db = .*,db = $dir/store.db," "$dir/root/etc/offwind/offwind.conf"
	"$dir/root/usr/bin/offwind" daemon --config "$dir/root/etc/offwind/offwind.conf" 2>"$dir/log" & daemon=$!
	ask() { curl -s --unix-socket "$dir/socket" "http://localhost$1"; }
	healthy() { [ "$(ask /healthz)" = ok ]; }
	page() { ask '/api/v1/flamegraph?from=-1h' | grep -q '<html'; }
	until_or_dead $daemon healthy || fail "the daemon: $(cat "$dir/log")"
	ask '/debug/pprof/profile?seconds=1' >"$dir/p.pb.gz" # ends a window
	until_or_dead $daemon page || fail "no page: $(ask '/api/v1/flamegraph?from=-1h' | head -c 300)"
	kill $daemon
	wait $daemon || fail "the daemon: exit $?: $(cat "$dir/log")"
else
	echo "recording does not work here: the daemon of the package did not run"
fi
[ $failures = 0 ] || { echo "$failures failures"; exit 1; }
