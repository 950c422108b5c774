# Waits for conditions, for tests that source this file. A test waits for a condition, not for a
# time, and gives up when the process that should bring the condition about has ended.

# Return whether process PID runs: it exists and is no zombie.
runs() { # PID
	local stat
	read -r stat 2>/dev/null <"/proc/$1/stat" || return 1
	[[ ${stat##*) } != [ZX]* ]]
}

# Return 0 once COMMAND succeeds.  Return 1 and say why if process PID has ended before that, or after WAIT_MAX seconds (300).
until_or_dead() { # PID COMMAND…
	local pid=$1 end=$((SECONDS + ${WAIT_MAX:-300}))
	shift
	until "$@"; do
		if ! runs "$pid"; then
			"$@" && return 0 # it succeeded, and the process ended, between the two checks
			echo "process $pid ended before: $*"
			return 1
		fi
		[ $SECONDS -lt $end ] || { echo "process $pid goes on, but not within ${WAIT_MAX:-300} s: $*"; return 1; }
		sleep 0.02
	done
}

# Run COMMAND until it does not return 2, by which it says that a busy machine can be the reason; five times at most. Return what
# it returned last.
again() { # COMMAND…
	local rc
	for _ in 1 2 3 4 5; do
		rc=0
		"$@" || rc=$?
		[ $rc = 2 ] || break
	done
	return $rc
}

# Conditions.
in_pause() { [[ $(cut -d' ' -f1 "/proc/$1/syscall" 2>/dev/null) == 34 ]]; }     # PID: it waits in pause()
in_futex() { [[ $(cut -d' ' -f1 "/proc/$1/syscall" 2>/dev/null) == 202 ]]; }    # PID: it waits for another thread
used_cpu() { # PID SECONDS: its threads used so many of CPU time
	local stat
	read -r stat 2>/dev/null <"/proc/$1/stat" || return 1
	read -r -a stat <<<"${stat##*) }"
	[ $((stat[11] + stat[12])) -ge $(($2 * ${clk_tck:=$(getconf CLK_TCK)})) ]
}
has_threads() { [ "$(ls "/proc/$1/task" 2>/dev/null | wc -l)" -ge "$2" ]; }      # PID N: it has N threads or more
has_name() { [ "$(cat "/proc/$1/comm" 2>/dev/null)" = "$2" ]; }                   # PID NAME: it runs the program NAME
larger() { [ "$(stat -c %s "$1" 2>/dev/null || echo 0)" -gt "$2" ]; }             # FILE SIZE
