#!/usr/bin/env bash
# Tests that a recording heals: programs that start while side-band records are lost have frames and names
# soon after that.
set -u
. "$(dirname "$0")/../recorder.sh"
. tests/wait.sh
cat >"$dir/flood.c" <<'C'
#include <sys/prctl.h>
#include <sys/mman.h>
#include <unistd.h>
int main(void)
{
	alarm(5);
	for (unsigned long i = 0;; i++) {
		prctl(PR_SET_NAME, i & 1 ? "flood" : "more");
		munmap(mmap(0, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), 4096);
	}
}
C
hot_program "$dir/main.c" "usleep(2000);"
gcc -O1 -o "$dir/flood" "$dir/flood.c" && gcc -O1 -g -o "$dir/honest" "$dir/main.c" || exit 1
"$offwind" record -a -F 199 --no-cache --rotate 2 -o "$dir/windows" 2>"$dir/log" & recorder=$!
has_windows() { [ "$(ls "$dir"/windows/*.pb.gz 2>/dev/null | wc -l)" -ge "$1" ]; }
until_or_dead $recorder has_windows 1 || fail "no window"
floods=() honest=()
for _ in $(seq 8); do nice -n -20 "$dir/flood" 2>/dev/null & floods+=($!); done
for _ in $(seq 20); do "$dir/honest" & honest+=($!); done
wait "${floods[@]}" 2>/dev/null
# Soon all their stacks end where they should.
healed() {
	"$offwind" report -n 0 --by stop "$(ls "$dir"/windows/*.pb.gz | tail -n 1)" >"$dir/rows" 2>/dev/null && grep -q '%.* root$' "$dir/rows" && ! grep -q no_mapping "$dir/rows"
}
WAIT_MAX=100 until_or_dead $recorder healed || fail "$(head -20 "$dir/rows")"
kill -INT $recorder
wait $recorder || fail "exit $?: $(cat "$dir/log")"
kill "${honest[@]}"
grep -oE 'side-band records lost [0-9]+' "$dir/log" || echo "no side-band record was lost"
exit $((failures > 0))
