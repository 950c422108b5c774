#!/usr/bin/env bash
# Boots other kernels under qemu and records on them: `make check-kernels`. It is not part of `make
# check`, because it downloads kernels and takes minutes for each of them.
#   usage: tests/kernels.sh [PATTERN]      only kernels whose names contain PATTERN (make: KERNEL=)
#   KERNELS_DIR: where kernels are stored (default: kernels in the build directory)
#   KERNELS_TESTS: the tests to run there (default: those in tests/kernels/guest.sh)
# The kernels are Debian's, from the mirrors in apt's configuration: the long-term kernels and the
# newest, and of 5.10 also the oldest that is available. One line is printed for each; its log has
# the output of offwind doctor on that kernel, and what failed.
set -u
cd "$(dirname "$0")/.." || exit 1
BUILD=${BUILD:-build}
dir=${KERNELS_DIR:-$BUILD/kernels}
pattern=${1:-}
[ "$(id -u)" = 0 ] || { echo "needs root, to make the file system of the machines"; exit 77; }
need=
for pair in qemu-system-x86_64:qemu-system-x86 busybox:busybox-static cpio:cpio mke2fs:e2fsprogs go:golang-go gcc:gcc xz:xz-utils; do
	command -v "${pair%%:*}" >/dev/null || need+=" ${pair#*:}"
done
[ -z "$need" ] || { echo "installing:$need"; DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $need >/dev/null || exit 1; }
busybox=$(command -v busybox)
! ldd "$busybox" >/dev/null 2>&1 || { echo "busybox is not static: install busybox-static"; exit 1; }
mkdir -p "$dir/apt/lists/partial" "$dir/apt/cache/archives/partial" || exit 1
dir=$(realpath "$dir")

# ---- the kernels ---------------------------------------------------------------------

# Print "URI SUITE" of the mirrors' other releases, derived from those that apt has for this release.
sources() {
	local uri release
	apt-get indextargets --format '$(REPO_URI) $(CODENAME)' 'Created-By: Packages' | sort -u |
		while read -r uri release; do
			case $release in
			*-security) for s in bullseye bookworm; do echo "$uri $s-security"; done ;;
			*-updates | *-backports) ;;
			*) for s in buster bullseye bullseye-backports bookworm bookworm-backports trixie trixie-backports; do echo "$uri $s"; done ;;
			esac
		done
}

# apt as on this machine, but with lists, packages and sources of its own.
own_apt() {
	APT_CONFIG=$dir/apt/conf "$@"
}

keyring=/usr/share/keyrings/debian-archive-keyring.gpg
cat >"$dir/apt/conf" <<C
Dir::State "$dir/apt";
Dir::State::status "$dir/apt/status";
Dir::Cache "$dir/apt/cache";
Dir::Etc::sourcelist "$dir/apt/sources.list";
Dir::Etc::sourceparts "-";
APT::Architecture "amd64";
APT::Sandbox::User "root";
Acquire::Languages "none";
Acquire::Check-Valid-Until "false";
C
: >"$dir/apt/status"
sources | sort -u >"$dir/apt/asked"
sed "s|^|deb [arch=amd64 signed-by=$keyring] |; s|\$| main|" "$dir/apt/asked" >"$dir/apt/sources.list"
[ -s "$dir/apt/sources.list" ] || { echo "apt is set up with no mirror of Debian's"; exit 1; }
own_apt apt-get update -qq 2>"$dir/apt/log"
# Releases that the mirror does not have any more are left out; any other error shows below.
grep -o "'[^']* [^' ]* Release'" "$dir/apt/log" | tr -d "'" | awk '{ print $2 }' | sort -u | sed 's/^/not there: /'

# Print the names of one version's packages, newest first: "5.10 linux-image-5.10.0-30-cloud-amd64".
own_apt apt-cache search --names-only '^linux-image-[0-9].*-cloud-amd64$' | awk '{ print $1 }' | sort -Vr |
	sed -nE 's/^(linux-image-([0-9]+\.[0-9]+).*)$/\2 \1/p' >"$dir/apt/names"

download() { # NAME
	if ! ls "$dir/debs/$1"_*.deb >/dev/null 2>&1; then
		(cd "$dir/debs" && own_apt apt-get download -qq "$1" >>"$dir/apt/log" 2>&1) || return
	fi
	ls "$dir/debs/$1"_*.deb | tail -n 1
}

fetch() { # VERSION newest|oldest: into $dir/debs, under the first name that still exists
	local name order=cat
	[ "$2" = oldest ] && order=tac
	for name in $(grep "^$1 " "$dir/apt/names" | cut -d' ' -f2 | $order); do
		# Newer kernels are divided into several packages.
		if own_apt apt-cache show "$name" | grep -q '^Depends:.*linux-binary-'; then
			download "${name/image/binary}" >/dev/null && download "${name/image/modules}" >/dev/null || continue
		fi
		download "$name" && return
	done
	return 1
}

mkdir -p "$dir/debs"
debs=()
for version in $(cut -d' ' -f1 "$dir/apt/names" | sort -Vu); do
	case $version in # the long-term kernels and the newest
	4.19 | 5.* | 6.1 | 6.12 | 6.18) ;;
	*) [ "$version" = "$(cut -d' ' -f1 "$dir/apt/names" | sort -Vu | tail -n 1)" ] || continue ;;
	esac
	which=newest
	[ "$version" = 5.10 ] && which="oldest newest"
	for w in $which; do
		deb=$(fetch $version $w) || { echo "no kernel $version can be fetched"; continue; }
		[[ " ${debs[*]} " == *" $deb "* ]] || debs+=("$deb")
	done
done
[ ${#debs[@]} -gt 0 ] || { cat "$dir/apt/log"; echo "no kernel"; exit 1; }

# ---- what runs there ------------------------------------------------------------------

# The packages of this machine that the tests need, on a file system of their own.
root=$dir/root
rm -rf "$root"
mkdir -p "$root"/usr/{bin,sbin,lib,lib32,lib64} "$root"/{etc,proc,sys,dev,run,tmp,root,var/tmp,offwind/build}
for d in bin sbin lib lib32 lib64; do ln -s usr/$d "$root/$d"; done
chmod 1777 "$root/tmp" "$root/var/tmp"
packages="bash dash libc-bin hostname coreutils grep sed mawk findutils util-linux mount procps python3 sqlite3 git gzip diffutils"
libraries=$(ldd "$BUILD/offwind" | grep -o '/[^ ]*' | while read -r l; do dpkg -S "$(realpath "$l")" 2>/dev/null | cut -d: -f1; done | sort -u)
installed() { dpkg-query -W -f='${db:Status-Status} ${binary:Package}\n' "$@" 2>/dev/null | sed -n 's/^installed //p'; }
dpkg -L $(installed $(apt-cache depends --recurse --installed --no-recommends --no-suggests --no-conflicts --no-breaks --no-replaces --no-enhances \
	$packages | grep '^[a-z0-9]' | sed 's/:any$//' | sort -u) $libraries) |
	grep -vE '^/usr/share/(doc|man|locale|info|lintian|bash-completion|perl)|/x86_64-linux-gnu/perl|_race|_dynlink|/go-[0-9.]*/(api|test)/|^/(boot|proc|sys|dev|run|tmp)' |
	sed -E 's#^/(bin|sbin|lib|lib32|lib64)(/|$)#/usr/\1\2#' | sort -u >"$dir/files"
# From Go, only the tool that prints profiles.
go=$(realpath "$(go env GOROOT)")
find "$go"/bin/go "$go"/pkg/tool/*/pprof "$(command -v go)" 2>/dev/null >>"$dir/files"
tar -c --no-recursion -T "$dir/files" 2>/dev/null | tar -x -C "$root" || exit 1
ln -sf mawk "$root/usr/bin/awk"
ln -sf dash "$root/usr/bin/sh"
cp /etc/passwd /etc/group "$root/etc/"
git ls-files -zco --exclude-standard tests agent/source schema deploy | tar -c --null -T - | tar -x -C "$root/offwind" || exit 1
cp "$BUILD/offwind" "$root/offwind/build/"
prebuilt=$root/offwind/prebuilt
mkdir -p "$prebuilt"/{stacks,short}
BUILD_ONLY=$prebuilt/stacks bash tests/live/stacks.sh && BUILD_ONLY=$prebuilt/short bash tests/live/short.sh &&
	cp "$BUILD"/tests/live/{alloc,target,source} "$prebuilt" || { echo "the tests' programs cannot be built"; exit 1; }
echo "${KERNELS_TESTS:-}" >"$root/offwind/kernels-tests"
rm -f "$dir/root.img"
mke2fs -q -t ext4 -d "$root" "$dir/root.img" $(($(du -sm "$root" | cut -f1) * 5 / 4 + 400))M >"$dir/log" 2>&1 || { cat "$dir/log"; exit 1; }

# ---- booting ---------------------------------------------------------------------------

# Emulated, because that works the same everywhere; with kvm it takes a tenth of the time.
accel=${KERNELS_ACCEL:-tcg}
failures=0
for deb in "${debs[@]}"; do
	name=$(basename "$deb" | sed -E 's/^linux-image-//; s/_amd64.deb$//; s/_.*~.*//; s/-unsigned//')
	[[ -z $pattern || $name == *$pattern* ]] || continue
	work=$dir/$(basename "$deb" .deb)
	rm -rf "$work"
	mkdir -p "$work/initrd"/{bin,mod,proc,sys,dev,root}
	for part in "$deb" "$dir"/debs/linux-{binary,modules}-"$(basename "$deb" | sed -E 's/^linux-image-//; s/_.*//')"_*.deb; do
		[ ! -e "$part" ] || dpkg-deb -x "$part" "$work/files" || { echo "FAIL $name: cannot be unpacked"; failures=$((failures + 1)); continue 2; }
	done
	kernel=$(find "$work/files" -name 'vmlinuz*' -type f | head -n 1)
	# The modules that the disk needs; they may be built in.
	for m in virtio virtio_ring virtio_pci_legacy_dev virtio_pci_modern_dev virtio_pci virtio_blk crc16 crc32c_generic libcrc32c mbcache jbd2 ext4 overlay; do
		find "$work/files" -name "$m.ko*" -exec cp {} "$work/initrd/mod/" \;
	done
	find "$work/initrd/mod" -name '*.xz' -exec unxz {} +
	cp "$busybox" "$work/initrd/bin/busybox"
	cp tests/kernels/init "$work/initrd/init"
	(cd "$work/initrd" && find . | cpio -o -H newc --quiet | gzip -1 >"$work/initrd.gz")
	begin=$SECONDS
	rm -f "$work/console"
	timeout "${KERNELS_TIMEOUT:-2400}" qemu-system-x86_64 -accel $accel -cpu "${KERNELS_CPU:-max}" -m 2048 -smp 2 -display none -no-reboot -nodefaults -serial "file:$work/console" \
		-kernel "$kernel" -initrd "$work/initrd.gz" -drive "file=$dir/root.img,format=raw,if=virtio,snapshot=on,cache=unsafe" \
		-append "console=ttyS0 quiet panic=-1" </dev/null 2>"$work/qemu"
	rc=$?
	tr -d '\r' <"$work/console" >"$work/log"
	rm -rf "$work/files" "$work/initrd" "$work/initrd.gz"
	if result=$(grep -o '^== done: .*' "$work/log"); then
		form=$(grep -m 1 -oE '^capture program .*' "$work/log" | grep -oE 'as (full|fallback) programs' | head -n 1)
		echo "$name: ${result#== done: } ($((SECONDS - begin)) s), ${form:-programs unknown}"
		[[ $result == *" 0 failed"* ]] || { failures=$((failures + 1)); sed -n '/^FAIL /,/^== end/p' "$work/log" | sed 's/^/     /'; }
	else
		echo "$name: FAIL: it did not end (qemu: exit $rc): $(cat "$work/qemu")"
		tail -n 20 "$work/log" | sed 's/^/     /'
		failures=$((failures + 1))
	fi
done
echo "logs: $dir/*/log"
[ $failures = 0 ]
