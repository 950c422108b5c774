# Runs ClickHouse servers on loopback, for tests that source this file after tests/recorder.sh or with $dir set.
# Ports and processes: ch_http[N], ch_pid[N], N from 1; all are shards of the cluster "fleet".

declare -A ch_http ch_tcp ch_pid

# Write the settings of servers 1 to N.
clickhouse_prepare() { # N
	local i shards=
	for ((i = 1; i <= $1; i++)); do
		ch_http[$i]=$(free_port) ch_tcp[$i]=$(free_port)
		shards+="<shard><replica><host>127.0.0.1</host><port>${ch_tcp[$i]}</port></replica></shard>"
	done
	for ((i = 1; i <= $1; i++)); do
		mkdir -p "$dir/clickhouse-$i/data" "$dir/clickhouse-$i/tmp"
		cat >"$dir/clickhouse-$i/config.xml" <<-XML
			<yandex><logger><level>warning</level><log>$dir/clickhouse-$i/log</log><errorlog>$dir/clickhouse-$i/errors</errorlog></logger>
			<http_port>${ch_http[$i]}</http_port><tcp_port>${ch_tcp[$i]}</tcp_port><listen_host>127.0.0.1</listen_host>
			<path>$dir/clickhouse-$i/data/</path><tmp_path>$dir/clickhouse-$i/tmp/</tmp_path>
			<users_config>$dir/clickhouse-$i/users.xml</users_config><default_profile>default</default_profile>
			<default_database>default</default_database><mark_cache_size>67108864</mark_cache_size>
			<compression><case><min_part_size>0</min_part_size><min_part_size_ratio>0</min_part_size_ratio><method>zstd</method></case>
			<case><min_part_size>10000000</min_part_size><min_part_size_ratio>0</min_part_size_ratio><method>zstd</method><level>6</level></case></compression>
			<remote_servers><fleet>$shards</fleet></remote_servers></yandex>
		XML
		cat >"$dir/clickhouse-$i/users.xml" <<-XML
			<yandex><profiles><default><max_memory_usage>4000000000</max_memory_usage></default></profiles>
			<users><default><password></password><networks><ip>127.0.0.1</ip></networks><profile>default</profile><quota>default</quota></default></users>
			<quotas><default></default></quotas></yandex>
		XML
	done
}

clickhouse_answers() { curl -s --max-time 5 "127.0.0.1:${ch_http[$1]}/ping" >/dev/null; } # N

clickhouse_start() { # N
	(cd "$dir/clickhouse-$1" && exec clickhouse-server --config-file="$PWD/config.xml" --pid-file="$PWD/pid" >out 2>&1) &
	ch_pid[$1]=$!
	until_or_dead ${ch_pid[$1]} clickhouse_answers "$1" || { cat "$dir/clickhouse-$1/out"; return 1; }
}

clickhouse_kill() { # N
	kill -KILL ${ch_pid[$1]} 2>/dev/null
	wait ${ch_pid[$1]} 2>/dev/null
	ch_pid[$1]=
}

# Print the reply to a query, in tabs. It may take $ch_seconds (60 if that is not set).
clickhouse_ask() { # N DATABASE SQL
	curl -s --max-time ${ch_seconds:-60} "127.0.0.1:${ch_http[$1]}/?database=$2&distributed_product_mode=local" --data-binary "$3"
}
