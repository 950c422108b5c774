# Runs perf, for tests that source this file.

# Record with perf. perf 6.1 crashes at times, because of processes that end while it starts or of programs that record: then
# it is tried again. The exit code is that of the last try; what all of them print comes out.
perf_record() { # OPTION…
	local rc
	for _ in 1 2 3 4 5; do
		perf record -q "$@" && rc=0 || rc=$?
		[ $rc -ge 128 ] || break
	done
	return $rc
}
