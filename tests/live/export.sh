#!/usr/bin/env bash
# Tests that the daemon sends its windows to other systems: receivers that were written apart from the senders
# rebuild the same stacks, and those that are away, hang or lie cost no sample.
set -u
. tests/recorder.sh
. tests/wait.sh
for tool in node curl sqlite3 openssl; do command -v $tool >/dev/null || { echo "needs $tool"; exit 77; }; done
ldconfig -p | grep -q 'libcurl\(-gnutls\)\?\.so\.4' || { echo "needs libcurl"; exit 77; }
hot_program "$dir/main.c"
gcc -O1 -g -o "$dir/prog" "$dir/main.c" || exit 1
db=$dir/o.db history=$dir/o-history.db socket=$dir/socket
"$dir/prog" &
"$BUILD/tests/live/context" 'shop, north' 'shop, south' &

# Begin a receiver of a kind, and print its port.
receive() { # KIND [KEY CERTIFICATE]; sets $port and $control
	rm -f "$dir/$1.port" # of one before
	node tests/receivers/receiver.mjs "$BUILD/npm/tests/node_modules" "$@" >"$dir/$1.port" 2>"$dir/$1.log" &
	until_or_dead $! grep -q PORT "$dir/$1.port" >&2 || fail "the receiver: $(cat "$dir/$1.log")"
	port=$(sed -n 's/^PORT //p' "$dir/$1.port") control=http://127.0.0.1:$(sed -n 's/^CONTROL //p' "$dir/$1.port")
}
control() { curl -sk "$1/control?$2"; } # URL QUERY
# Print a number of the receiver's statistics.
stat_of() { control "$1" stats | python3 -c 'import json, sys; print(len(json.load(sys.stdin)[sys.argv[1]]) if sys.argv[1] == "refused" else json.load(sys.stdin)[sys.argv[1]])' "$2"; } # URL NAME
reaches() { [ "$(stat_of "$1" "$2")" -ge "$3" ]; } # URL NAME NUMBER
# Print a metric of the daemon.
metric() { curl -s --unix-socket "$socket" http://x/metrics | awk -v name="$1 " 'index($0, name) == 1 { print $NF }'; } # NAME{LABELS}
grows() { local now; now=$(metric "$1"); [ -n "$now" ] && [ "${now%.*}" -gt "$2" ]; } # NAME{LABELS} NUMBER
begin() { # the configuration is in $dir/conf
	"$offwind" daemon --config "$dir/conf" --db "$db" --listen "unix:$socket" 2>"$dir/log" & daemon=$!
	is_ready() { [ "$(curl -s -o /dev/null -w '%{http_code}' --unix-socket "$socket" http://x/readyz)" = 200 ]; }
	until_or_dead $daemon is_ready || fail "not ready: $(cat "$dir/log")"
}
end() {
	kill $daemon
	wait $daemon
}
# What a receiver has is what report says of the same time, sample by sample.
same_as_report() { # URL
	local from to
	control "$1" folded=samples >"$dir/received"
	read -r _ from to <"$dir/received"
	"$offwind" query profile --url "unix:$socket" --from "${from}ns" --to "${to}ns" -o "$dir/asked.pb.gz" 2>"$dir/err" || fail "query: $(cat "$dir/err")"
	"$offwind" report --format folded "$dir/asked.pb.gz" 2>/dev/null | LC_ALL=C sort >"$dir/asked"
	tail -n +2 "$dir/received" | LC_ALL=C sort | diff - "$dir/asked" >"$dir/diff" || fail "other stacks: $(head -n 4 "$dir/diff" | cut -c1-300)"
	[ -s "$dir/asked" ] || fail "no stacks"
}
# Wait for the first windows, and forget them: names are not found until debug information is read, and the history then has other ones.
warm_up() { # URL
	until_or_dead $daemon reaches "$1" accepted 2
	control "$1" forget
	until_or_dead $daemon reaches "$1" accepted 5
}
# Let the receiver have each fault of the list on standard input: it fails for this reason, and afterwards windows come again.
faults() { # TARGET URL
	local behave reason failed now accepted
	while read -r behave reason; do
		failed="offwind_export_failures_total{target=\"$1\",reason=\"$reason\"}"
		now=$(metric "$failed") accepted=$(stat_of "$2" accepted)
		control "$2" "behave=$behave"
		until_or_dead $daemon grows "$failed" "$now" || fail "$1, $behave: no failure '$reason': $(tail -n 3 "$dir/log")"
		control "$2" behave=ok
		until_or_dead $daemon reaches "$2" accepted $((accepted + 1)) || fail "$1: nothing comes after $behave"
	done
	[ "$(stat_of "$2" refused)" = 0 ] || fail "$1 refused: $(cat "$dir/$1"*.log)"
}
common='[record]\nrotate = 1\nevent = cpu-clock\nfreq = 99\n'

echo "== OTLP by HTTP"
receive otlp
otlp=http://127.0.0.1:$port
printf "$common[export otlp]\nurl = $otlp\ntimeout = 2\nheader = X-Scope: a\n" >"$dir/conf"
begin
warm_up "$otlp"
[ "$(stat_of "$otlp" refused)" = 0 ] || fail "refused: $(cat "$dir/otlp.log")"
same_as_report "$otlp"
control "$otlp" stats >"$dir/stats"
for word in '"service.name"' '"shop, ' '"process.pid"' '"process.executable.path"' '"host.name"' '"thread.id"' '"x-scope":"a"'; do
	grep -q "$word" "$dir/stats" || fail "no $word: $(cat "$dir/stats")"
done
grep -q '^prog;.*;hot ' "$dir/asked" || fail "the program is not there"
ps -o user=,comm= -p "$(pgrep -P $daemon offwind-sender)" | grep -q root && fail "the sender has root's rights"

echo "== receivers that are away, hang or lie"
# What is refused for good is dropped, and counted.
control "$otlp" behave=never
until_or_dead $daemon grows 'offwind_export_samples_dropped_total{target="otlp",reason="refused"}' 0 || fail "nothing is dropped"
grep -q 'samples are not sent: refused: status 400: ?\[31mnobody wants this' "$dir/log" || fail "why: $(tail -n 3 "$dir/log")"
control "$otlp" behave=rejects
until_or_dead $daemon grows 'offwind_export_samples_dropped_total{target="otlp",reason="rejected"}' 0 || fail "nothing is rejected"
control "$otlp" forget
control "$otlp" behave=ok
before=$(metric 'offwind_samples_lost_total{reason="ring_full"}')
faults otlp "$otlp" <<-END
	busy busy
	forbidden access
	hang timeout
	drip timeout
	page reply
	endless reply
	headers connect
	away connect
	redirect reply
END
same_as_report "$otlp" # nothing is missing, and nothing came twice
# While a receiver hangs, what is recorded goes on.
control "$otlp" behave=hang
windows=$(metric offwind_windows_total)
until_or_dead $daemon grows offwind_windows_total $((windows + 2)) || fail "nothing is recorded while a receiver hangs"
[ "$(metric 'offwind_samples_lost_total{reason="ring_full"}')" = "$before" ] || fail "samples were lost"
grep -q 'export otlp: timeout' "$dir/log" || fail "no warning: $(cat "$dir/log")"
curl -s --unix-socket "$socket" http://x/metrics | promtool check metrics >"$dir/out" 2>&1 && [ ! -s "$dir/out" ] || fail "promtool: $(cat "$dir/out")"

echo "== restarts"
# A sender that is killed is begun again; a daemon that ends goes on where it was, with what it recorded at its end.
control "$otlp" behave=hang
requests=$(stat_of "$otlp" requests)
until_or_dead $daemon reaches "$otlp" requests $((requests + 1))
kill -9 "$(pgrep -P $daemon offwind-sender)"
has_sender() { pgrep -P $daemon offwind-sender >/dev/null; }
until_or_dead $daemon has_sender || fail "no sender any more"
end
last=$(sqlite3 "$history" "SELECT max(end_ns) FROM windows")
control "$otlp" behave=ok
control "$otlp" forget
begin
has_last() { local to; to=$(control "$otlp" stats | grep -o '"to":"[0-9]\+' | cut -d'"' -f4); [ -n "$to" ] && [ "$to" -gt "$last" ]; }
until_or_dead $daemon has_last || fail "windows of before do not come"
same_as_report "$otlp"
end

echo "== OTLP by gRPC"
receive otlp-grpc
printf "$common[export otlp]\nurl = http://127.0.0.1:$port\nprotocol = grpc\ntimeout = 2\ntimes = yes\n" >"$dir/conf"
begin
warm_up "$control"
faults otlp "$control" <<-END
	busy busy
	forbidden access
	hang timeout
	page reply
END
same_as_report "$control"
# Each sample has its time.
control "$control" stats | python3 -c 'import json, sys; s = json.load(sys.stdin); sys.exit(not s["times"] == s["samples"] > 0)' || fail "not each sample has a time: $(control "$control" stats | cut -c1-200)"
control "$control" stats | grep -q '"otlp-profiles-development-version":"1"' || fail "no version: $(control "$control" stats)"
control "$control" behave=never
until_or_dead $daemon grows 'offwind_export_samples_dropped_total{target="otlp",reason="refused"}' 0 || fail "nothing is dropped"
grep -q 'refused: gRPC status 3: nobody wants ümlauts' "$dir/log" || fail "why: $(tail -n 3 "$dir/log")"
end

# Print the stacks of report of the same time, without the name of the thread in front.
without_threads() { sed 's/^[^;]*;//' | awk '{ n = $NF; sub(/ [^ ]*$/, ""); sum[$0] += n } END { for (s in sum) print s, sum[s] }' | LC_ALL=C sort; }

echo "== Pyroscope"
receive pyroscope
printf "$common[export pyroscope]\nurl = http://127.0.0.1:$port\ntimeout = 2\n" >"$dir/conf"
begin
warm_up "$control"
faults pyroscope "$control" <<-END
	busy busy
	hang timeout
	page reply
END
control "$control" folded=samples >"$dir/received"
read -r _ from to <"$dir/received"
"$offwind" query profile --url "unix:$socket" --from "${from}ns" --to "${to}ns" -o "$dir/asked.pb.gz"
"$offwind" report --format folded "$dir/asked.pb.gz" 2>/dev/null | without_threads >"$dir/asked"
tail -n +2 "$dir/received" | LC_ALL=C sort | diff - "$dir/asked" >"$dir/diff" && [ -s "$dir/asked" ] || fail "other stacks: $(head -n 4 "$dir/diff" | cut -c1-300)"
control "$control" stats | grep -q '"service_name":"' || fail "no service"
control "$control" behave=hang
end
# What is older than an hour is not sent.
sqlite3 "$history" "UPDATE windows SET start_ns = start_ns - 4000000000000, end_ns = end_ns - 4000000000000 WHERE id = (SELECT max(id) FROM windows)"
control "$control" behave=ok
begin
until_or_dead $daemon grows 'offwind_export_samples_dropped_total{target="pyroscope",reason="old"}' 0 || fail "an old window is sent"
[ "$(stat_of "$control" refused)" = 0 ] || fail "refused: $(cat "$dir/pyroscope.log")"
end

echo "== Parca"
receive parca
chmod 711 "$dir" && chmod 755 "$dir/prog"
# Of one program: of a busy machine, it would get hundreds of files first.
printf "${common}comm = prog\n[export parca]\nurl = http://127.0.0.1:$port\ntimeout = 5\ndebuginfo = yes\n" >"$dir/conf"
begin
warm_up "$control"
faults parca "$control" <<<'busy busy'
id=$(readelf -n "$dir/prog" | sed -n 's/.*Build ID: //p') sha=$(sha256sum "$dir/prog" | cut -d' ' -f1)
has_file() { control "$control" stats | grep -q "\"$id\":\"$sha\""; }
until_or_dead $daemon has_file || fail "the program is not there: $(grep parca "$dir/log") $(control "$control" stats)"
[ "$(stat_of "$control" refused)" = 0 ] || fail "refused: $(cat "$dir/parca.log")"
same_as_report "$control"
end

echo "== certificates"
chmod 711 "$dir" # the sender is no user of this machine
openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=localhost -addext subjectAltName=DNS:localhost -keyout "$dir/key" -out "$dir/certificate" 2>/dev/null || fail "no certificate"
chmod 644 "$dir/certificate"
receive otlp "$dir/key" "$dir/certificate"
tls=https://localhost:$port
echo secret >"$dir/token" && chmod 600 "$dir/token"
printf "$common[export otlp trusted]\nurl = $tls\nca-file = $dir/certificate\ntoken-file = $dir/token\n[export otlp unknown]\nurl = $tls/\n" >"$dir/conf"
begin
until_or_dead $daemon reaches "$tls" accepted 2
until_or_dead $daemon grows 'offwind_export_failures_total{target="otlp unknown",reason="tls"}' 0 || fail "a certificate of nobody is taken"
[ "$(metric 'offwind_export_windows_total{target="otlp unknown"}')" = 0 ] || fail "windows went to nobody knows whom"
control "$tls" stats | grep -q '"authorization":"Bearer secret"' || fail "no token: $(control "$tls" stats)"
end
receive otlp-grpc "$dir/key" "$dir/certificate"
printf "$common[export otlp]\nurl = https://localhost:$port\nprotocol = grpc\nca-file = $dir/certificate\ntoken-file = $dir/token\n" >"$dir/conf"
begin
until_or_dead $daemon reaches "$control" accepted 2
control "$control" stats | grep -q '"authorization":"Bearer secret"' || fail "no token by gRPC: $(control "$control" stats)"
end

exit $((failures > 0))
