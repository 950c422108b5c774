# Begins tests that record the live system, which source this file. Sets offwind (the program), dir
# (a directory of the test's own) and failures; skips the test if recording does not work. At the
# end, jobs are killed and dir is removed.
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 1
BUILD=${BUILD:-build}
offwind=$PWD/$BUILD/offwind
[ "$(id -u)" = 0 ] || { echo "needs root"; exit 77; }
"$offwind" doctor >/dev/null 2>&1 || [ $? = 3 ] || { echo "live recording does not work here; see offwind doctor"; exit 77; }
dir=$(mktemp -d)
trap 'kill $(jobs -p) 2>/dev/null; rm -rf "$dir"' EXIT
failures=0

fail() {
	echo "FAIL: $*"
	failures=$((failures + 1))
}

# Print a TCP port of 127.0.0.1 that nobody listens on, and that no connection gets by itself meanwhile.
free_port() { python3 -c '
import random, socket
while True:
    port = random.randrange(10240, 32000)
    with socket.socket() as s:
        try:
            s.bind(("127.0.0.1", port))
        except OSError:
            continue
    print(port)
    break'; }

# Make a certificate of localhost, $dir/NAME, and its key, $dir/NAME.key.
certificate() { # NAME
	openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=localhost -addext subjectAltName=DNS:localhost -keyout "$dir/$1.key" -out "$dir/$1" 2>/dev/null || fail "no certificate"
}

# Write a C program that computes in a function named hot, which is inlined nowhere. After each
# 100,000 turns it runs STATEMENT, which may be empty.
hot_program() { # file.c [STATEMENT]
	cat >"$1" <<C
#include <unistd.h>
__attribute__((noinline)) static unsigned long hot(unsigned long n)
{
	volatile unsigned long sum = 0;

	for (unsigned long i = 0; i < n; i++)
		sum += i;
	return sum;
}
int main(void)
{
	unsigned long sum = 0;

	alarm(900); /* as long as a test may take */
	for (;;) {
		sum += hot(100000);
		${2:-}
	}
}
C
}
