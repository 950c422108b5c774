# Another system's root directory, for tests that source this file after they have made $dir: TEST_ROOT=DIRECTORY (debootstrap
# makes one) has other versions of the programs that are tested. "${inside[@]}" before a command runs it there; $dir is the
# test's own directory on both sides, "$root$dir" that of the other root as it is seen here. Without TEST_ROOT both are one.

root=${TEST_ROOT:+$(realpath "$TEST_ROOT")}
inside=(${root:+chroot "$root"})
mkdir -p "$root$dir"

# Return whether a program is there.
is_inside() { # PROGRAM
	# shellcheck disable=SC2016
	"${inside[@]}" sh -c 'command -v "$0"' "$1" >/dev/null
}
