#!/usr/bin/env bash
# Tests the daemon at an address that other machines can reach: HTTPS with a certificate of our own, and a token. Who has
# neither learns nothing, and clients that speak no TLS, or nothing, keep nobody else out.
set -u
. tests/recorder.sh
. tests/wait.sh
for tool in curl openssl python3; do command -v $tool >/dev/null || { echo "needs $tool"; exit 77; }; done
ldconfig -p | grep -q 'libcurl\(-gnutls\)\?\.so\.4' || { echo "needs libcurl"; exit 77; }
hot_program "$dir/main.c"
gcc -O1 -g -o "$dir/prog" "$dir/main.c" || exit 1
"$dir/prog" &

certificate own
certificate other
(umask 077 && echo a-secret >"$dir/token" && echo a-guess >"$dir/guess")
cat >"$dir/conf" <<C
[server]
listen = 0.0.0.0:0
token-file = $dir/token
tls-certificate = $dir/own
tls-key = $dir/own.key
C
"$offwind" daemon --config "$dir/conf" --db "$dir/o.db" 2>"$dir/log" & daemon=$!
serves() { port=$(sed -n 's|.*serving at https://0\.0\.0\.0:\([1-9][0-9]*\)/.*|\1|p' "$dir/log") && [ "$port" ]; }
until_or_dead $daemon serves || { fail "$(cat "$dir/log")"; exit 1; }
url=https://localhost:$port

ask() { curl -sS --max-time 60 --cacert "$dir/own" "$@" 2>&1; } # what curl takes
secret=(-H "Authorization: Bearer a-secret")
is_ready() { [ "$(ask "${secret[@]}" -o /dev/null -w '%{http_code}' "$url/readyz")" = 200 ]; }
until_or_dead $daemon is_ready || fail "not ready: $(ask "${secret[@]}" "$url/readyz") $(cat "$dir/log")"

echo "== with the certificate and the token"
query() { "$offwind" query top --url "$url" --from -5m -n 0 "$@" >"$dir/out" 2>"$dir/err"; }
has_hot() { query --ca-file "$dir/own" --token-file "$dir/token" && grep -q ' prog .*hot' "$dir/out"; }
until_or_dead $daemon has_hot || fail "query: $(cat "$dir/out" "$dir/err")"
ask "${secret[@]}" "$url/" | grep -q '<!doctype html>' || fail "no page"
has_profile() { [ "$(ask "${secret[@]}" -o "$dir/p.pb.gz" -w '%{http_code}' "$url/debug/pprof/profile?seconds=1")" = 200 ]; }
until_or_dead $daemon has_profile && "$offwind" report "$dir/p.pb.gz" >/dev/null || fail "no profile"

echo "== without"
refused() { # what is said, options of query
	local said=$1
	shift
	query "$@" && fail "asked with $*: $(cat "$dir/out")"
	[ ! -s "$dir/out" ] && [ "$(wc -l <"$dir/err")" = 1 ] && grep -q "^offwind: $url: .*$said" "$dir/err" || fail "with $*: $(cat "$dir/out" "$dir/err")"
}
refused 'see --ca-file' --token-file "$dir/token"
refused 'certificate' --ca-file "$dir/other" --token-file "$dir/token"
refused 'is --ca-file a file of certificates' --ca-file "$dir/absent" --token-file "$dir/token"
refused 'certificate' --ca-file "$dir/main.c" --token-file "$dir/token"
refused 'a token is required (status 401); see --token-file' --ca-file "$dir/own"
refused 'status 401' --ca-file "$dir/own" --token-file "$dir/guess"
# The page itself tells nothing; it asks for the token.
for path in /metrics /readyz /api/v1/top /debug/pprof/profile /openapi.yaml; do
	[ "$(ask -o "$dir/reply" -w '%{http_code}' "$url$path")" = 401 ] && ! grep -q prog "$dir/reply" || fail "$path without the token: $(head -c 300 "$dir/reply")"
done
curl -sS --max-time 60 "http://localhost:$port/metrics" >"$dir/reply" 2>/dev/null && fail "without TLS: $(head -c 300 "$dir/reply")"
[ ! -s "$dir/reply" ] || fail "without TLS: $(head -c 300 "$dir/reply")"

echo "== clients that say nothing, or anything"
cat >"$dir/clients.py" <<'PY'
import os, random, socket, sys, time
draw = random.Random(1)
open_ones = []
for i in range(200):
    s = socket.create_connection(('127.0.0.1', int(sys.argv[1])))
    s.setblocking(False)
    try:
        if i % 2:
            s.send(draw.randbytes(draw.randrange(1, 2000)) if i % 4 == 1 else b'\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03')
    except OSError:
        pass
    open_ones.append(s)
print('open', flush=True)
sys.stdin.read()
PY
mkfifo "$dir/hold"
python3 "$dir/clients.py" "$port" <"$dir/hold" >"$dir/clients" & clients=$!
exec 3>"$dir/hold"
opened() { grep -q open "$dir/clients"; }
until_or_dead $clients opened || fail "no clients"
query --ca-file "$dir/own" --token-file "$dir/token" && grep -q ' prog .*hot' "$dir/out" || fail "beside such clients: $(cat "$dir/out" "$dir/err")"
exec 3>&-
wait $clients
is_ready || fail "after such clients: $(cat "$dir/log")"

echo "== another token, with a setting that alone would be changed at once"
(umask 077 && echo another-secret >"$dir/token")
printf '[record]\nfreq = 23\n' >>"$dir/conf"
kill -HUP $daemon
# With port 0, which was asked for, each start has another one.
has_another() {
	url=https://localhost:$(sed -n 's|.*serving at https://0\.0\.0\.0:\([1-9][0-9]*\)/.*|\1|p' "$dir/log" | tail -n 1)
	[ "$(ask -o /dev/null -w '%{http_code}' -H 'Authorization: Bearer another-secret' "$url/metrics")" = 200 ]
}
until_or_dead $daemon has_another || fail "the new token is not taken: $(cat "$dir/log")"
[ "$(ask -o /dev/null -w '%{http_code}' "${secret[@]}" "$url/metrics")" = 401 ] || fail "the old token is still good"
kill $daemon
wait $daemon || fail "the daemon: $? $(cat "$dir/log")"
grep -q 'a-secret\|killed' "$dir/log" && fail "$(cat "$dir/log")"
[ $failures = 0 ] || { echo "$failures failures"; exit 1; }
