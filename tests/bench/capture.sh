#!/usr/bin/env bash
# offwind record beside perf record --call-graph dwarf with two dump sizes, on the same load at
# four frequencies: what a sample costs, weighs, and whether it is whole.  Nothing fails for being
# slow: figures of a busy machine are poor ones.
#
#   samples  that arrived, and how many were lost of how many
#   KiB      a sample in what is written or handed over
#   us       CPU of the reader for each sample: of offwind record with unwinding, symbols and the
#            profile; of perf record alone, and with perf script (at the frequencies up to 997)
#   whole    of the samples with a user stack, those walked to their root (perf's by offwind
#            unwind, which sees what was recorded; perf script itself walks no further)
#   handler  us in the kernel for each time the event fired (ours only: kernel.bpf_stats_enabled)
#   MiB      peak of the recorder
set -eu
export LC_ALL=C
[ "$(id -u)" = 0 ] || { echo "needs root"; exit 77; }
work=$(mktemp -d "${TMPDIR:-/tmp}/offwind-bench.XXXXXX")
stats=$(cat /proc/sys/kernel/bpf_stats_enabled)
trap 'echo $stats >/proc/sys/kernel/bpf_stats_enabled; rm -rf "$work"' EXIT
echo 1 >/proc/sys/kernel/bpf_stats_enabled
. tests/workload.sh
export WORKLOAD_DIR=$work
unset XDG_CACHE_HOME
workload "${LOAD:-clang}"
python3 - "$work" "$(realpath "$BUILD/offwind")" "${FREQUENCIES:-19 99 997 4999}" "${argv[@]}" <<'PY'
import json, os, re, resource, subprocess, sys, threading
work, offwind, frequencies, load = sys.argv[1], sys.argv[2], sys.argv[3].split(), sys.argv[4:]
# Both CPUs: two at once, started by a shell that waits for them.
both = ['sh', '-c', '"$@" & "$@" & wait', 'sh', *load]

def run(argv):
    """Seconds of CPU of the process itself and its peak KiB; its children's do not count."""
    r, w = os.pipe()
    pid = os.fork()
    if not pid:
        os.dup2(w, 2)
        os.dup2(os.open('/dev/null', os.O_WRONLY), 1)
        os.execvp(argv[0], argv)
    os.close(w)
    text = b''
    while chunk := os.read(r, 65536):
        text += chunk
    _, status, use = os.wait4(pid, 0)
    return status, use, text.decode(errors='replace')

def cpu_of(argv, command):
    # The command's CPU time is the recorder's child's: wait4 would count it in, so it is started apart.
    child = subprocess.Popen(['sh', '-c', 'kill -STOP $$; exec "$@"', 'sh', *command], stdout=subprocess.DEVNULL,
                             stderr=subprocess.DEVNULL, start_new_session=True)
    os.waitpid(child.pid, os.WUNTRACED)
    result = {}
    recorder = threading.Thread(target=lambda: result.update(zip(('status', 'use', 'text'), run(argv(child.pid)))))
    recorder.start()
    # Both begin after a moment and end with their target.
    import time
    time.sleep(1.0)
    os.kill(child.pid, 18)
    child.wait()
    recorder.join()
    return result['status'], result['use'].ru_utime + result['use'].ru_stime, result['use'].ru_maxrss, result['text']

def whole(counts):
    walked = sum(counts.values()) - counts.get('no_user_state', 0)
    return f'{100 * counts.get("root", 0) / walked:.1f} %' if walked else '-'

print(f'{"Hz":>5} {"recorder":18} {"samples":>8} {"lost":>7} {"KiB":>7} {"us":>7} {"+script":>8} {"whole":>8} {"handler":>8} {"MiB":>5}')
for hz in frequencies:
    status, cpu, peak, text = cpu_of(lambda pid: [offwind, 'record', '-F', hz, '-o', f'{work}/a.pb.gz', '--stats', f'{work}/stats',
                                                  '--no-cache', '-p', str(pid)], both)
    if status:
        sys.exit(text)
    stats = json.load(open(f'{work}/stats'))
    t, program = stats['total'], stats['program']
    n, lost = t['captured']['samples'], t['lost']['ring_full']
    print(f'{hz:>5} {"offwind":18} {n:>8} {lost:>7} {t["captured"]["bytes"] / n / 1024:>7.1f} {cpu / n * 1e6:>7.1f} {"":>8} '
          f'{whole(t["unwound"]):>8} {program["ns"] / max(1, program["runs"]) / 1000:>8.1f} {peak / 1024:>5.0f}', flush=True)
    for size in ('8192', '65528'):
        data = f'{work}/perf.data'
        for attempt in range(3):
            status, cpu, peak, text = cpu_of(lambda pid: ['perf', 'record', '-q', '--buildid-mmap', '-e', 'cpu-clock', '-F', hz, '--call-graph',
                                                          f'dwarf,{size}', '-o', data, '-p', str(pid)], both)
            if not status:
                break
        else:
            print(f'{hz:>5} perf record {size}: {text[-200:]!r}')
            continue
        script = ''
        status, _, text = run([offwind, 'unwind', '--no-cache', '--no-lines', '-o', f'{work}/b.pb.gz', data])
        counts = {k: int(v) for k, v in re.findall(r'(\w+) (\d+)', re.search(r'unwound \d+ \((.*?)\)', text)[1])}
        m = re.search(r'captured (\d+) = unwound (\d+)', text)
        ring = re.search(r'ring_full (\d+)', text)
        n, lost = int(m[2]), int(ring[1]) if ring else 0
        if int(hz) <= 997:
            status, use, _ = run(['perf', 'script', '--no-inline', '-i', data])
            script = f'{(cpu + use.ru_utime + use.ru_stime) / n * 1e6:.1f}'
        print(f'{hz:>5} {"perf " + size:18} {n:>8} {lost:>7} {os.path.getsize(data) / n / 1024:>7.1f} {cpu / n * 1e6:>7.1f} {script:>8} '
              f'{whole(counts):>8} {"":>8} {peak / 1024:>5.0f}', flush=True)
        os.unlink(data)
PY
