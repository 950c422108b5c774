#!/usr/bin/env bash
# Compares source lines and inlined calls of many kinds of binaries with eu-addr2line or
# llvm-symbolizer, address by address (classes of difference: sym_lines.md), from a lookup and again
# from the packed form.
set -u
work=$(realpath "$BUILD")/lines
program=$(realpath "$BUILD")/tests/diff/sym_lines
script=$(realpath tests/diff/sym_lines.py)
tree=$PWD
rm -rf "$work"
mkdir -p "$work"
cat > "$work/a.cc" <<'CC'
#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <vector>
struct shape { virtual ~shape() = default; virtual double area(int n) const = 0; };
template <int N> struct box : shape {
	std::vector<int> v;
	box() { for (int i = 0; i < N; i++) v.push_back(i * N); std::sort(v.begin(), v.end(), [](int a, int b) { return a % 7 < b % 5; }); }
	double area(int n) const override { double t = n; for (int x : v) t += x / (n + 1.0); return t; }
};
namespace { int count(const std::map<std::string, int> &m) { int n = 0; for (auto &p : m) n += p.second; return n; } }
int main(int argc, char **argv)
{
	std::map<std::string, int> m;
	std::vector<std::unique_ptr<shape>> s;
	s.emplace_back(new box<3>); s.emplace_back(new box<7>);
	for (int i = 0; i < argc; i++) m[argv[i]]++;
	try { if (argc > 5) throw std::string("x"); } catch (std::string &e) { return e.size(); }
	double t = 0;
	for (auto &x : s) t += x->area(argc);
	return count(m) + (int)t;
}
CC
cat > "$work/a.rs" <<'RS'
use std::collections::BTreeMap;
#[derive(Clone)]
enum Kind { A(u32), B(String) }
impl Kind { #[inline(always)] fn weight(&self) -> usize { match self { Kind::A(n) => *n as usize, Kind::B(s) => s.len() } } }
fn main() {
    let mut m: BTreeMap<String, Kind> = BTreeMap::new();
    for (i, a) in std::env::args().enumerate() { m.insert(a.clone(), if i % 2 == 0 { Kind::A(i as u32) } else { Kind::B(a) }); }
    let mut v: Vec<usize> = m.values().map(|k| k.weight()).collect();
    v.sort_by(|a, b| b.cmp(a));
    println!("{:?}", v);
}
RS
printf '\t.text\n\t.globl f\n\t.type f, @function\nf:\n\tnop\n\tnop\n\tret\n\t.size f, .-f\n' > "$work/a.s"
c="$tree/unwinder/cfi/cfi.c $tree/unwinder/table/row.c $tree/unwinder/walk/expr.c $tree/unwinder/walk/step.c"
flags="-std=c17 -D_GNU_SOURCE -I$tree"

# NAME COMMAND…: run in a directory of its own, two at a time
make_one() {
	local name=$1
	shift
	mkdir -p "$work/$name"
	(cd "$work/$name" && "$@" > log 2>&1) || { echo "$name: not made: $(tail -n 3 "$work/$name/log")"; touch "$work/failed"; }
}
{
	make_one g5 g++ -O2 -g -gdwarf-5 -o a ../a.cc
	make_one gsplit5 g++ -O2 -g -gdwarf-5 -gsplit-dwarf -o a ../a.cc
	make_one gtypes5 g++ -O2 -g -gdwarf-5 -gsplit-dwarf -fdebug-types-section -o a ../a.cc
	make_one gsplit4 g++ -O2 -g -gdwarf-4 -gsplit-dwarf -o a ../a.cc
	make_one gc4 gcc $flags -O2 -g -gdwarf-4 -shared -fPIC -o a $c
	make_one gc4o1 gcc $flags -O1 -g -gdwarf-4 -shared -fPIC -o a $c
	make_one glto gcc $flags -O2 -g -flto=1 -shared -fPIC -o a $c
	make_one gline gcc $flags -O3 -g1 -shared -fPIC -o a $c
	make_one narrow gcc $flags -O2 -g -m32 -shared -fPIC -o a $tree/symbolizer/text/sanitize.c $tree/symbolizer/elf/prefer.c
	make_one arm64 aarch64-linux-gnu-gcc $flags -O2 -g -shared -fPIC -o a $c
	make_one old gcc $flags -O2 -g -gdwarf-3 -gstrict-dwarf -shared -fPIC -o a $c
	make_one relative sh -c "cp $tree/symbolizer/text/sanitize.c $tree/symbolizer/elf/prefer.c . && gcc $flags -O2 -g -ffile-prefix-map=$work/relative=./place -shared -fPIC -o a sanitize.c prefer.c"
	make_one packed gcc $flags -O2 -g -gz -shared -fPIC -o a $c
} &
{
	make_one c5 clang++ -O2 -g -gdwarf-5 -o a ../a.cc
	make_one csplit5 clang++ -O2 -g -gdwarf-5 -gsplit-dwarf -o a ../a.cc
	make_one csplit4 clang++ -O2 -g -gdwarf-4 -gsplit-dwarf -o a ../a.cc
	make_one c4 clang $flags -O2 -g -gdwarf-4 -no-pie -shared -fPIC -o a $c
	make_one c2 clang $flags -O2 -g -gdwarf-2 -shared -fPIC -o a $c
	make_one sections clang $flags -O2 -g -ffunction-sections -Wl,--gc-sections -fuse-ld=lld -shared -fPIC -o a $c
	make_one static g++ -O1 -g -static -o a ../a.cc
	make_one fixed g++ -O1 -g -no-pie -o a ../a.cc
	make_one asm gcc -g -shared -nostdlib -o a ../a.s
	make_one rust /usr/bin/rustc -g -O -o a ../a.rs
} &
wait
[ ! -e "$work/failed" ] || exit 1

# Forms of the same code: packages, dwz's common file and a single file, zdebug, a debug file of its own.
copy() { mkdir -p "$work/$2" && cp "$work/$1/a" "$work/$2/a"; }
for pair in csplit5:cdwp5 gsplit4:gdwp4 csplit4:cdwp4; do
	copy "${pair%:*}" "${pair#*:}"
	(cd "$work/${pair%:*}" && llvm-dwp -e a -o "$work/${pair#*:}/a.dwp") || exit 1
done
for name in gc4 gc4o1; do copy $name dwz-$name; done
(cd "$work" && dwz -m common -M "$work/common" dwz-gc4/a dwz-gc4o1/a) || exit 1
[ -s "$work/common" ] && readelf -SW "$work/dwz-gc4/a" | grep -q gnu_debugaltlink || { echo "dwz took nothing out"; exit 1; }
copy gc4 dwz && dwz "$work/dwz/a" || exit 1
mkdir -p "$work/zdebug" "$work/apart"
objcopy --compress-debug-sections=zlib-gnu "$work/g5/a" "$work/zdebug/a"
objcopy --only-keep-debug "$work/g5/a" "$work/apart/a"

compare() { # FILE [LIKE]
	python3 "$script" "$program" 110 "$@" || touch "$work/failed"
}
names=(relative g5 gsplit5 gtypes5 gsplit4 gc4 gc4o1 glto gline narrow arm64 old packed c5 csplit5 csplit4 c4 c2 sections static fixed asm rust)
{
	for name in "${names[@]}"; do compare "$work/$name/a"; done > "$work/one"
} &
{
	# The other tools read the original files if they cannot read these.
	compare "$work/cdwp5/a" "$work/csplit5/a"
	compare "$work/cdwp4/a" "$work/csplit4/a"
	compare "$work/gdwp4/a" "$work/gsplit4/a"
	compare "$work/dwz-gc4/a" "$work/gc4/a"
	compare "$work/dwz-gc4o1/a" "$work/gc4o1/a"
	compare "$work/dwz/a"
	compare "$work/zdebug/a" "$work/g5/a"
	compare "$work/apart/a" "$work/g5/a"
	compare "$(realpath "$BUILD")/offwind"
} > "$work/two" &
wait
cat "$work/one" "$work/two"
# Two addresses could be equal by chance, and also if the binaries were missing.
awk '/ addresses / { files++; n += $3; if ($7 > deepest) deepest = $7 }
	END { print files " files, " n " addresses, chains of up to " deepest; exit files < 29 || n < 2000 || deepest < 6 }' \
	"$work/one" "$work/two" || exit 1
[ ! -e "$work/failed" ]
