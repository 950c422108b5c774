#!/usr/bin/env bash
# Tests the daemon's settings: each wrong line is reported at its number, and deploy/offwind.conf and its
# manual page have every setting that the daemon takes, and no other.
set -u
offwind=$BUILD/offwind
dir=$(mktemp -d)
trap 'kill ${server:-} 2>/dev/null; rm -rf "$dir"' EXIT
failures=0
fail() {
	echo "FAIL: $*"
	failures=$((failures + 1))
}
check() { "$offwind" daemon --config "$1" --db "$dir/store.db" --check-config 2>"$dir/log"; }

echo "== wrong lines"
long=$(printf '%0300d' 0)
printf '\xef\xbb\xbf# a comment behind a byte order mark\n' >"$dir/wrong"
cat >>"$dir/wrong" <<CONF
[server]
listn = 127.0.0.1:7227
only words
listen = $long
[record
[record]
freq = 0
quiet = perhaps
duration = 5
comm = a,
       b
limit = nosuch=1
[history]
age = 30 days
bytes = 1K
max = 5
[nosection]
db = x
[labels]
drop = nosuch
keep = no
rename = pod:k8s.pod
       pod:uid:x
[record]
last words
CONF
printf 'the end' >>"$dir/wrong"
check "$dir/wrong" && fail "wrong settings are accepted"
sed -n "s,^offwind: $dir/wrong:\([0-9]*\): .*,\1,p" "$dir/log" | paste -sd' ' >"$dir/lines"
[ "$(cat "$dir/lines")" = "3 4 5 6 8 9 10 13 15 16 17 19 21 22 24 26 27" ] || fail "the lines of faults: $(cat "$dir/lines" "$dir/log")"
[ "$(wc -l <"$dir/log")" = 17 ] || fail "more than one message for a line: $(cat "$dir/log")"

echo "== wrong values that only show together"
echo secret >"$dir/open" && chmod 644 "$dir/open"
cat >"$dir/wrong" <<CONF
[server]
listen = somewhere
listen = 0.0.0.0:7227
token-file = $dir/open
tls-certificate = $dir/absent
tls-key = $dir/absent
CONF
check "$dir/wrong" && fail "wrong values are accepted"
[ "$(sed -n "s,^offwind: $dir/wrong:\([0-9]*\): .*,\1,p" "$dir/log" | sort -n | paste -sd' ')" = "2 3 4 5 6" ] || fail "the lines of faults: $(cat "$dir/log")"
printf '[history]\ntimes = 1d\nthreads = 12h\n' >"$dir/wrong"
check "$dir/wrong" && fail "threads that are forgotten before times"
grep -q 'times must not be longer than threads' "$dir/log" || fail "why not: $(cat "$dir/log")"
cat >"$dir/wrong" <<CONF
[export otlp]
header = no header
url = collector:4318
timeout = 1h
development-version = one
nosuch = 1
[export nosuch]
url = http://collector
[export otlp "b"]
url = http://collector
[export otlp]
protocol = thrift
CONF
check "$dir/wrong" && fail "wrong exports are accepted"
[ "$(sed -n "s,^offwind: $dir/wrong:\([0-9]*\): .*,\1,p" "$dir/log" | sort -n | paste -sd' ')" = "2 3 4 5 6 8 10 12" ] || fail "the lines of faults of exports: $(cat "$dir/log")"
printf '[export otlp b]\ntimeout = 5s\n[export otlp]\nurl = http://collector\ntoken-file = %s\n' "$dir/open" >"$dir/wrong"
check "$dir/wrong" && fail "an export without url"
grep -q "wrong:2: \[export otlp b\] has no url" "$dir/log" && grep -q 'wrong:5: .*others can read it' "$dir/log" || fail "why not: $(cat "$dir/log")"
"$offwind" daemon --config "$dir/absent" --check-config 2>"$dir/log"
[ $? = 2 ] && grep -q 'absent: No such file' "$dir/log" || fail "a configuration that does not exist: $(cat "$dir/log")"

echo >"$dir/empty" && chmod 600 "$dir/empty"
printf '[server]\ntoken-file = %s\n' "$dir/empty" >"$dir/wrong"
check "$dir/wrong" && fail "an empty token"
grep -q "empty: is empty" "$dir/log" || fail "an empty token: $(cat "$dir/log")"

echo "== a password in a URL is in no message, and no proxy gets it for this machine"
for url in http://me:hidden@127.0.0.1:2 http://me:hidden@127.0.0.1:2/not-a-name ftp://me:hidden@127.0.0.1:2; do
	for what in "fleet init" "query top --fleet" "query top --url"; do
		http_proxy=http://127.0.0.1:1 "$offwind" $what "$url" 2>"$dir/log" && fail "$what $url"
		grep -q 127.0.0.1 "$dir/log" && ! grep -qE 'hidden|port 1 ' "$dir/log" || fail "$what $url: $(cat "$dir/log")"
	done
done
# A server that says 0 to everything.
cat >"$dir/server.py" <<'P'
import http.server, sys
class Zero(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        self.rfile.read(int(self.headers['Content-Length']))
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b'0\n')
    def log_message(self, *words):
        pass
server = http.server.HTTPServer(('127.0.0.1', 0), Zero)
print(server.server_port, flush=True)
server.serve_forever()
P
coproc python3 "$dir/server.py"
server=$COPROC_PID
read -r -t 60 port <&"${COPROC[0]}" || fail "no server"
for what in "fleet init" "query top --fleet" "symbolize --fleet"; do
	"$offwind" $what "http://me:hidden@127.0.0.1:$port" >"$dir/log" 2>&1
	grep -q "127.0.0.1:$port: " "$dir/log" && ! grep -q hidden "$dir/log" || fail "$what of a server: $(cat "$dir/log")"
done
kill $server
printf '[export clickhouse]\nurl = htp://me:hidden@one:8123,http://me:hidden@two:8123\n' >"$dir/wrong"
check "$dir/wrong"
grep -q "'htp://one:8123,http://two:8123' is no URL" "$dir/log" || fail "a wrong URL with a password: $(cat "$dir/log")"

echo "== --fleet takes the URLs of shards"
"$offwind" daemon --config /dev/null --db "$dir/store.db" --fleet http://one:8123,http://two:8123/base --check-config 2>"$dir/log" || fail "two shards: $(cat "$dir/log")"
for urls in "" htp://one:8123 one; do
	"$offwind" daemon --config /dev/null --db "$dir/store.db" --fleet "$urls" --check-config 2>"$dir/log"
	[ $? = 2 ] && grep -q "'$urls' is no URL" "$dir/log" || fail "--fleet '$urls': $(cat "$dir/log")"
done

echo "== the file that is installed"
check deploy/offwind.conf || fail "as it is: $(cat "$dir/log")"
touch "$dir/secret" && chmod 600 "$dir/secret" && echo x >"$dir/secret"
section=''
while read -r line; do
	[[ $line =~ ^#?(\[[a-z ]+\])$ ]] && section=${BASH_REMATCH[1]}
	[[ $line =~ ^#([a-z-]+)\ =\ (.*) ]] || continue
	echo "$section ${BASH_REMATCH[1]}" >>"$dir/names"
	setting=${line#\#}
	case ${BASH_REMATCH[1]} in
	token-file) setting="token-file = $dir/secret" ;;
	tls-*) setting="tls-key = $dir/secret"$'\n'"tls-certificate = $dir/secret" ;;
	uid) setting='uid = 0' ;;
	wakers | wait-rate) setting=$'off-cpu = 1ms\n'$setting ;;
	esac
	[[ $section != "[export "* || $setting == url* ]] || setting+=$'\nurl = http://collector'
	printf '%s\n%s\n' "$section" "$setting" >"$dir/one"
	check "$dir/one" || fail "$section $line: $(cat "$dir/log")"
done <deploy/offwind.conf
sort -u "$dir/names" >"$dir/have"
# What the program takes: the words that it compares names with.
python3 - >"$dir/want" <<'P'
import re
text = open('agent/cmd/daemon/daemon_config.c', encoding='utf8').read()
takes = text[text.index('static int take_setting('):]
for section, names in [('server', r'server && !strcmp\(name, "([\w-]+)"'), ('store', r'"store"\) && !strcmp\(name, "([\w-]+)"'), ('labels', r'"labels"\) && !strcmp\(name, "([\w-]+)"')]:
    for name in re.findall(names, takes):
        print('[%s] %s' % (section, name))
for name in re.findall(r'\{ "([\w-]+)", offsetof\(struct history_limits', text):
    print('[history] ' + name)
exports = open('agent/cmd/exports.c', encoding='utf8').read()
exports = exports[exports.index('int exports_take('):exports.index('int exports_add(')]
for name in re.findall(r'!strcmp\(name, "([\w-]+)"', exports):
    print('[export %s] %s' % ({'debuginfo': 'parca', 'interval': 'clickhouse', 'names': 'clickhouse'}.get(name, 'otlp'), name))
print('[export pyroscope] url\n[export parca] url\n[export clickhouse] url')
listed = re.search(r'names\[\] = \{(.*?)\}', text, re.S)[1]
for name in re.findall(r'"([\w-]+)"', listed):
    print('[record] ' + name)
P
[ "$(wc -l <"$dir/want")" -gt 20 ] || fail "the settings in daemon_config.c: $(cat "$dir/want")"
diff <(sort "$dir/want") "$dir/have" || fail "deploy/offwind.conf does not have the settings of the daemon"

echo "== the manual page"
man --warnings -E UTF-8 -l deploy/offwind.conf.5 >/dev/null 2>"$dir/log" && [ ! -s "$dir/log" ] || fail "offwind.conf(5): $(cat "$dir/log")"
sed -n 's/^\.Ss \(\[.*\]\)$/\1/p; s/^\.It Cm //p' deploy/offwind.conf.5 | awk '/^\[/ { s = $0; next } { gsub(" ,", ""); for (i = 1; i <= NF; i++) print s, $i }' | sort >"$dir/page"
diff "$dir/have" "$dir/page" || fail "offwind.conf(5) does not have the settings of the daemon"
exit $((failures > 0))
