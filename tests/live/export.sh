#!/usr/bin/env bash
# Tests that the daemon sends its windows to other systems: receivers that were written apart from the senders
# rebuild the same stacks, and those that are away, hang or lie cost no sample. What is waited for are windows, time-outs and
# attempts after a pause; so two daemons run at the same time, and all targets of one have their faults at the same time.
set -u
. tests/recorder.sh
. tests/wait.sh
for tool in node curl sqlite3 openssl; do command -v $tool >/dev/null || { echo "needs $tool"; exit 77; }; done
ldconfig -p | grep -q 'libcurl\(-gnutls\)\?\.so\.4' || { echo "needs libcurl"; exit 77; }
hot_program "$dir/main.c"
gcc -O1 -g -o "$dir/prog" "$dir/main.c" || exit 1
chmod 711 "$dir" && chmod 755 "$dir/prog" # the sender is no user of this machine
# The test itself gets the CPUs first.
nice -n 5 "$dir/prog" &
nice -n 5 "$BUILD/tests/live/context" 'shop, north' 'shop, south' &

declare -A port url # of a receiver, by its name: where windows are sent to, and what the test asks

# Begin a receiver of a kind.
receive() { # NAME KIND [KEY CERTIFICATE]
	local name=$1
	shift
	node tests/receivers/receiver.mjs "$BUILD/npm/tests/node_modules" "$@" >"$dir/$name.port" 2>"$dir/$name.log" &
	port[$name]=$!
}
has_ports() { [ "$(grep -c '^[A-Z]* [0-9]*$' "$dir/$1.port" 2>/dev/null)" = 2 ]; } # NAME
# Wait until receivers that were begun listen.
listen() { # NAME…
	local name
	for name; do
		until_or_dead ${port[$name]} has_ports "$name" || fail "the receiver $name: $(cat "$dir/$name.log")"
		port[$name]=$(sed -n 's/^PORT //p' "$dir/$name.port") url[$name]=http://127.0.0.1:$(sed -n 's/^CONTROL //p' "$dir/$name.port")
	done
}
control() { curl -sk "${url[$1]}/control?$2"; } # NAME QUERY
# Print a number of a receiver's statistics, and wait for it.
stat_of() { control "$1" "stat=$2"; } # NAME STATISTIC
reaches() { [ "$(control "$1" "until=$2&least=$3")" = yes ]; } # NAME STATISTIC NUMBER
none_refused() { [ "$(stat_of "$1" refused)" = 0 ] || fail "$1 refused: $(cat "$dir/$1.log")"; } # NAME
# Print a metric of the daemon.
metric() { curl -s --unix-socket "$socket" http://x/metrics | awk -v name="$1 " 'index($0, name) == 1 { print $NF }'; } # NAME{LABELS}
grows() { local now; now=$(metric "$1"); [ -n "$now" ] && [ "${now%.*}" -gt "$2" ]; } # NAME{LABELS} NUMBER
drops() { grows "offwind_export_samples_dropped_total{target=\"$1\",reason=\"$2\"}" 0; } # TARGET REASON
begin() { # the configuration is in $dir/conf
	"$offwind" daemon --config "$dir/conf" --db "$dir/o.db" --listen "unix:$socket" 2>"$dir/log" & daemon=$!
	is_ready() { [ "$(curl -s -o /dev/null -w '%{http_code}' --unix-socket "$socket" http://x/readyz)" = 200 ]; }
	until_or_dead $daemon is_ready || fail "not ready: $(cat "$dir/log")"
}
end() {
	kill $daemon
	wait $daemon
}
# Return whether a receiver has what report says of the same time, which a filter may change.
is_as_reported() { # NAME [FILTER]
	local from to
	control "$1" folded=samples >"$dir/$1.folded"
	read -r _ from to <"$dir/$1.folded"
	tail -n +2 "$dir/$1.folded" | LC_ALL=C sort >"$dir/$1.received"
	"$offwind" query profile --url "unix:$socket" --from "${from}ns" --to "${to}ns" -o "$dir/$1.pb.gz" 2>"$dir/$1.err" || return
	"$offwind" report --format folded "$dir/$1.pb.gz" 2>/dev/null | ${2:-cat} | LC_ALL=C sort >"$dir/$1.asked"
	[ -s "$dir/$1.asked" ] && diff "$dir/$1.received" "$dir/$1.asked" >"$dir/$1.diff"
}
# OTLP has the kind of a frame by runtime, which generated code of unknown origin has, too.
without_kinds() {
	sed -E 's/_\[(cpython|jvm|perl|php|ruby|v8)\]//g' |
		awk '{ n = $NF; sub(/ [0-9]+$/, ""); sum[$0] += n } END { for (stack in sum) print stack, sum[stack] }'
}
# What a receiver has is what report says, sample by sample. A sample that came late is in the window after its time: until
# this one was sent, report has one more.
same_as_report() { # NAME [FILTER]
	until_or_dead $daemon is_as_reported "$@" || fail "$1: other stacks: $(cat "$dir/$1.err"; head -n 4 "$dir/$1.diff" | cut -c1-300)"
}
# Wait for the first windows, and forget them: names are not found until debug information is read, and the history then has other ones.
warm_up() { # NAME
	until_or_dead $daemon reaches "$1" accepted 2
	control "$1" forget
	until_or_dead $daemon reaches "$1" accepted 5
}
# Let the receiver have each fault of the list on standard input: it fails for this reason, and afterwards windows come again.
faults() { # TARGET NAME
	local behave reason failed now accepted
	while read -r behave reason; do
		failed="offwind_export_failures_total{target=\"$1\",reason=\"$reason\"}"
		now=$(metric "$failed") accepted=$(stat_of "$2" accepted)
		control "$2" "behave=$behave"
		until_or_dead $daemon grows "$failed" "$now" || fail "$1, $behave: no failure '$reason': $(tail -n 3 "$dir/log")"
		control "$2" behave=ok
		until_or_dead $daemon reaches "$2" accepted $((accepted + 1)) || fail "$1: nothing comes after $behave"
	done
	none_refused "$2"
}
# Run functions at the same time; none may fail.
together() { # FUNCTION…
	local f pids=()
	for f; do
		(failures=0; "$f"; exit $((failures > 0))) >"$dir/$f.out" 2>&1 &
		pids+=($!)
	done
	for f; do
		wait ${pids[0]} || failures=$((failures + 1))
		pids=("${pids[@]:1}")
		echo "== $f"
		cat "$dir/$f.out"
	done
}
common='[record]\nrotate = 1\nevent = cpu-clock\nfreq = 99\n'

# ---- the first daemon: OTLP twice, OTLP by gRPC, Pyroscope ----

otlp() {
	local before windows
	has_word() { control otlp stats >"$dir/stats"; grep -q "$1" "$dir/stats"; }
	warm_up otlp
	none_refused otlp
	same_as_report otlp without_kinds
	# Whatever runs beside them, these programs have samples at some time.
	for word in '"service.name"' '"shop, ' '"process.pid"' '"process.executable.path"' '"host.name"' '"thread.id"' '"x-scope":"a"'; do
		until_or_dead $daemon has_word "$word" || fail "no $word: $(cat "$dir/stats")"
	done
	has_program() { is_as_reported otlp without_kinds && grep -q '^prog;.*;hot ' "$dir/otlp.asked"; }
	until_or_dead $daemon has_program || fail "the program is not there"
	ps -o user=,comm= -p "$(pgrep -P $daemon offwind-sender)" | grep -q root && fail "the sender has root's rights"
	# What is refused for good is dropped, and counted.
	control otlp behave=never
	until_or_dead $daemon drops otlp refused || fail "nothing is dropped"
	# What is counted is said a moment later.
	until_or_dead $daemon grep -q 'samples are not sent: refused: status 400: ?\[31mnobody wants this' "$dir/log" || fail "why: $(tail -n 3 "$dir/log")"
	control otlp behave=rejects
	until_or_dead $daemon drops otlp rejected || fail "nothing is rejected"
	control otlp forget
	control otlp behave=ok
	before=$(metric 'offwind_samples_lost_total{reason="ring_full"}')
	faults otlp otlp <<-END
		busy busy
		hang timeout
		headers connect
		redirect reply
	END
	same_as_report otlp without_kinds # nothing is missing, and nothing came twice
	# While a receiver hangs, what is recorded goes on.
	control otlp behave=hang
	windows=$(metric offwind_windows_total)
	until_or_dead $daemon grows offwind_windows_total $((windows + 2)) || fail "nothing is recorded while a receiver hangs"
	[ "$(metric 'offwind_samples_lost_total{reason="ring_full"}')" = "$before" ] || fail "samples were lost"
	grep -q 'export otlp.*: timeout: ' "$dir/log" || fail "no warning: $(cat "$dir/log")"
	curl -s --unix-socket "$socket" http://x/metrics | promtool check metrics >"$dir/out" 2>&1 && [ ! -s "$dir/out" ] || fail "promtool: $(cat "$dir/out")"
}

otlp_second() {
	local hash
	warm_up second
	# Receivers that know programs by this hash, of the file's ends and its length, know this one.
	hash=$( (head -c 4096 "$dir/prog"; tail -c 4096 "$dir/prog"; printf "$(printf %016x "$(stat -c %s "$dir/prog")" | sed 's/../\\x&/g')") | sha256sum | cut -c1-32)
	has_hash() { control second stats | grep -q "\"$dir/prog\":\"$hash\""; }
	until_or_dead $daemon has_hash || fail "the hash of the program is not $hash: $(control second stats | grep -o '"hashes":{[^}]*}')"
	control otlp stats | grep -q '"hashes":{}' || fail "hashes of programs that were not asked for"
	faults "otlp second" second <<-END
		forbidden access
		drip timeout
		page reply
		endless reply
		away connect
	END
	same_as_report second without_kinds
}

otlp_by_grpc() {
	warm_up grpc
	faults "otlp grpc" grpc <<-END
		busy busy
		forbidden access
		hang timeout
		page reply
	END
	same_as_report grpc without_kinds
	# Each sample has its time.
	control grpc stats | python3 -c 'import json, sys; s = json.load(sys.stdin); sys.exit(not s["times"] == s["samples"] > 0)' || fail "not each sample has a time: $(control grpc stats | cut -c1-200)"
	control grpc stats | grep -q '"otlp-profiles-development-version":"1"' || fail "no version: $(control grpc stats)"
	control grpc behave=never
	until_or_dead $daemon drops "otlp grpc" refused || fail "nothing is dropped"
	until_or_dead $daemon grep -q 'refused: gRPC status 3: nobody wants ümlauts' "$dir/log" || fail "why: $(tail -n 3 "$dir/log")"
}

# Stacks without the name of the thread in front.
without_threads() { sed 's/^[^;]*;//' | awk '{ n = $NF; sub(/ [^ ]*$/, ""); sum[$0] += n } END { for (s in sum) print s, sum[s] }'; }

pyroscope() {
	warm_up pyroscope
	faults pyroscope pyroscope <<-END
		busy busy
		forbidden access
		hang timeout
		page reply
		endless reply
		away connect
	END
	same_as_report pyroscope without_threads
	control pyroscope stats | grep -q '"service_name":"' || fail "no service"
}

# ---- the second daemon: Parca, certificates, windows that are too old ----

others() {
	local program=$dir/prog history
	dir=$dir/others
	socket=$dir/socket history=$dir/o-history.db
	trap 'kill $(jobs -p) 2>/dev/null' EXIT
	mkdir -m 711 "$dir"
	certificate certificate
	chmod 644 "$dir/certificate"
	echo secret >"$dir/token" && chmod 600 "$dir/token"
	receive parca parca
	receive trusted otlp "$dir/certificate.key" "$dir/certificate"
	receive trusted_grpc otlp-grpc "$dir/certificate.key" "$dir/certificate"
	receive old pyroscope
	listen parca trusted trusted_grpc old
	url[trusted]=https://localhost:${port[trusted]}
	control old behave=hang
	# Of one program: of a busy machine, Parca would get hundreds of files first.
	printf "${common}comm = prog\n" >"$dir/conf"
	cat >>"$dir/conf" <<-END
		[export parca]
		url = http://127.0.0.1:${port[parca]}
		debuginfo = yes
		timeout = 10
		[export pyroscope]
		url = http://127.0.0.1:${port[old]}
		timeout = 2
		[export otlp trusted]
		url = ${url[trusted]}
		ca-file = $dir/certificate
		token-file = $dir/token
		[export otlp unknown]
		url = ${url[trusted]}/
		[export otlp grpc]
		url = https://localhost:${port[trusted_grpc]}
		protocol = grpc
		ca-file = $dir/certificate
		token-file = $dir/token
	END
	begin
	warm_up parca
	# Before a fault: a file that cannot be sent is tried again after an hour.
	id=$(readelf -n "$program" | sed -n 's/.*Build ID: //p') sha=$(sha256sum "$program" | cut -d' ' -f1)
	has_file() { control parca stats | grep -q "\"$id\":\"$sha\""; }
	until_or_dead $daemon has_file || fail "the program is not there: $(grep parca "$dir/log") $(control parca stats)"
	faults parca parca <<-END
		busy busy
		forbidden access
		hang timeout
		page reply
	END
	same_as_report parca
	control parca behave=never
	until_or_dead $daemon drops parca refused || fail "nothing is dropped"
	control parca behave=ok

	# Certificates.
	until_or_dead $daemon reaches trusted accepted 2
	until_or_dead $daemon grows 'offwind_export_failures_total{target="otlp unknown",reason="tls"}' 0 || fail "a certificate of nobody is taken"
	[ "$(metric 'offwind_export_windows_total{target="otlp unknown"}')" = 0 ] || fail "windows went to nobody knows whom"
	control trusted stats | grep -q '"authorization":"Bearer secret"' || fail "no token: $(control trusted stats)"
	until_or_dead $daemon reaches trusted_grpc accepted 2
	control trusted_grpc stats | grep -q '"authorization":"Bearer secret"' || fail "no token by gRPC: $(control trusted_grpc stats)"
	end

	# Pyroscope does not get what is older than an hour. The last window can be so short that it has no samples.
	sqlite3 -cmd '.timeout 10000' "$history" "UPDATE windows SET start_ns = start_ns - 4000000000000, end_ns = end_ns - 4000000000000 WHERE id = (SELECT max(id) FROM windows WHERE n_samples > 0)" || fail "the history cannot be changed"
	control old behave=ok
	begin
	until_or_dead $daemon drops pyroscope old || fail "an old window is sent"
	[ "$(stat_of old accepted)" -gt 0 ] || fail "the windows before it are not sent"
	none_refused old
	end
}

(failures=0; others; exit $((failures > 0))) >"$dir/others.out" 2>&1 & second_daemon=$!
socket=$dir/socket
receive otlp otlp
receive second otlp
receive grpc otlp-grpc
receive pyroscope pyroscope
listen otlp second grpc pyroscope
printf "$common" >"$dir/conf"
cat >>"$dir/conf" <<-END
	[export otlp]
	url = http://127.0.0.1:${port[otlp]}
	timeout = 2
	header = X-Scope: a
	[export otlp second]
	url = http://127.0.0.1:${port[second]}
	htlhash = yes
	timeout = 2
	[export otlp grpc]
	url = http://127.0.0.1:${port[grpc]}
	protocol = grpc
	timeout = 2
	times = yes
	[export pyroscope]
	url = http://127.0.0.1:${port[pyroscope]}
	timeout = 2
END
begin
together otlp otlp_second otlp_by_grpc pyroscope

echo "== restarts"
# A sender that is killed is begun again; a daemon that ends goes on where it was, with what it recorded at its end.
control otlp behave=hang
requests=$(stat_of otlp requests)
until_or_dead $daemon reaches otlp requests $((requests + 1))
kill -9 "$(pgrep -P $daemon offwind-sender)"
has_sender() { pgrep -P $daemon offwind-sender >/dev/null; }
until_or_dead $daemon has_sender || fail "no sender any more"
end
last=$(sqlite3 "$dir/o-history.db" "SELECT max(end_ns) FROM windows")
control otlp behave=ok
control otlp forget
begin
has_last() { local to; to=$(control otlp stats | grep -o '"to":"[0-9]\+' | cut -d'"' -f4); [ -n "$to" ] && [ "$to" -gt "$last" ]; }
until_or_dead $daemon has_last || fail "windows of before do not come"
same_as_report otlp without_kinds
end

echo "== the second daemon"
wait $second_daemon || failures=$((failures + 1))
cat "$dir/others.out"

exit $((failures > 0))
