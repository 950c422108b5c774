#!/usr/bin/env bash
# Unpacks Debian's arm64 packages into $BUILD/arm64/root, each once. apt gets a private state, so
# neither this system's packages nor its architectures change.
#   usage: tests/arm64.sh PACKAGE…      exits 77 if they cannot be fetched
set -u
mkdir -p "$BUILD/arm64"
cd "$BUILD/arm64" || exit 1
exec 9> lock
flock 9
mkdir -p state/lists/partial cache/archives/partial debs root done
missing=()
for p in "$@"; do
	[ -e "done/$p" ] || missing+=("$p")
done
[ ${#missing[@]} -eq 0 ] && exit 0
cat > apt.conf <<C
Dir::State "$PWD/state";
Dir::State::status "/dev/null";
Dir::Cache "$PWD/cache";
APT::Architecture "arm64";
APT::Architectures { "arm64"; };
APT::Sandbox::User "root";
Acquire::Languages "none";
Acquire::Retries "5";
C
export APT_CONFIG=$PWD/apt.conf
cd debs || exit 1
{ ls ../state/lists/*Packages* > ../log || apt-get update -qq; } > ../log 2>&1
apt-get download -qq "${missing[@]}" >> ../log 2>&1 ||
	{ apt-get update -qq && apt-get download -qq "${missing[@]}"; } >> ../log 2>&1 ||
	{ tail -n 1 ../log; echo "no arm64 packages to be had"; exit 77; }
# Files appear as a whole: another test may be reading them.
for p in "${missing[@]}"; do
	rm -rf ../fresh
	dpkg -x "${p}"_*.deb ../fresh && cp -alf ../fresh/. ../root && rm -rf ../fresh "${p}"_*.deb && : > "../done/$p" || exit 1
done
