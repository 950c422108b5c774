#!/usr/bin/env bash
# Makes the recordings of this folder anew, and what perf itself says of them.
#   usage: tests/cases/perfdata/make.sh      (needs perf, and the rights to record)
set -eu
cd "$(dirname "$0")"
here=$PWD dir=/tmp/spin
expect=$here/../../diff/perfdata_expect.py
rm -rf $dir
mkdir -p $dir
gcc -O1 -g -static -pthread -o $dir/spin spin.c
cd $dir

# The stacks contain the environment, so it must be empty.
record() {
	env -i PATH=/usr/bin:/bin perf record "$@"
}

record -q -o file.data -F 2000 --call-graph dwarf,1024 -e cpu-clock ./spin
record -q -o - -F 2000 --call-graph dwarf,1024 -e cpu-clock ./spin >pipe.data
record -q -z -o zstd.data -F 2000 --call-graph dwarf,4096 -e cpu-clock ./spin
record -q -z -o - -F 2000 --call-graph dwarf,4096 -e cpu-clock ./spin >zstd-pipe.data
record -q -o events.data -F 2000 --call-graph dwarf,256 -e cpu-clock,page-faults \
	--buildid-mmap -k monotonic ./spin
record -q -o group.data -F 2000 --call-graph dwarf,512 -e '{task-clock,page-faults}:S' \
	-d -W --phys-data --transaction --all-cgroups --user-regs=ip,sp,ax -R -s -T ./spin
record -q -o chains.data -F 2000 -g -e cpu-clock --intr-regs=ax,bx --data-page-size ./spin
record -q -o lost.data -m 1 -F 4000 --call-graph dwarf,2048 -e cpu-clock ./spin
for data in *.data; do
	# A stream has no table of build-ids, and perf 6.1 may crash while it looks for one.
	: >ids
	[[ $data == *pipe.data ]] || perf buildid-list -i "$data" >ids
	perf script -D -F event,period -i "$data" 2>/dev/null | python3 "$expect" ids >"${data%.data}.events"
	rm ids
done
chmod 644 ./*.data
mv ./*.data ./*.events "$here"
