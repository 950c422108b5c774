#!/usr/bin/env bash
# Tests the image and the Kubernetes manifests: the daemon's has the rights of deploy/offwind.service and no more, that of the fleet's
# store names the shards that it makes, and the image has what the program needs.  Neither docker nor Kubernetes is needed.
set -u
python3 -c 'import yaml' 2>/dev/null || { echo "needs python3-yaml"; exit 77; }
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
make -s install BUILD="$BUILD" DESTDIR="$dir/stage" PREFIX=/usr >"$dir/log" 2>&1 || { cat "$dir/log"; exit 1; }
make -s --eval 'show: ; @echo $(LOADED_PACKAGES)' show >"$dir/loaded"
# The packages of the libraries that the program is linked with.
ldd "$BUILD/offwind" | grep -o '/[^ ]*' | while read -r l; do dpkg -S "$(realpath "$l")" "$l" 2>/dev/null | head -n 1 | cut -d: -f1; done | sort -u >"$dir/linked"
python3 - "$dir" "$BUILD/offwind" <<'P'
import copy, glob, os, re, subprocess, sys
import xml.etree.ElementTree
import yaml

stage, program = sys.argv[1] + '/stage', sys.argv[2]
read = lambda path: open(path, encoding='utf8').read()
loaded, linked = read(sys.argv[1] + '/loaded').split(), read(sys.argv[1] + '/linked').split()


def settings(unit, name):
    return [v for v in re.findall(r'^%s=(.*)' % name, unit, re.M)]


def bytes_of(text):
    n, unit = re.fullmatch(r'(\d+)(\w*)', text).groups()
    return int(n) << {'': 0, 'M': 20, 'Mi': 20, 'G': 30, 'Gi': 30}[unit]


def check_manifest(documents, unit, dockerfile, pages):
    by_kind = {d['kind']: d for d in documents}
    if sorted(by_kind) != ['ConfigMap', 'DaemonSet', 'Namespace'] or len(documents) != 3:
        yield 'the kinds are %s' % sorted(by_kind)
        return
    daemon, config = by_kind['DaemonSet'], by_kind['ConfigMap']
    if any(d['metadata'].get('namespace', 'offwind') != by_kind['Namespace']['metadata']['name'] for d in documents):
        yield 'namespaces differ'
    template, pod = daemon['spec']['template'], daemon['spec']['template']['spec']
    labels = daemon['spec']['selector']['matchLabels']
    if not labels or not labels.items() <= template['metadata']['labels'].items():
        yield 'the selector does not select the pods'
    if len(pod['containers']) != 1 or pod.get('initContainers'):
        yield 'there are other containers'
    container = pod['containers'][0]
    rights = container['securityContext']

    # The rights of the unit.
    unit_capabilities = {c.replace('CAP_', '', 1) for line in settings(unit, 'CapabilityBoundingSet') for c in line.split()}
    if set(rights['capabilities']['add']) != unit_capabilities or len(rights['capabilities']['add']) != len(unit_capabilities):
        yield 'other capabilities than in the unit: %s' % sorted(unit_capabilities ^ set(rights['capabilities']['add']))
    if rights['capabilities']['drop'] != ['ALL']:
        yield 'capabilities of the runtime stay'
    names = {10: 'ten', 11: 'eleven', 12: 'twelve'}
    if 'it leaves %s capabilities' % names.get(len(unit_capabilities)) not in re.sub(r'\s+', ' ', pages['docs/security.md']):
        yield 'docs/security.md has another number of capabilities'
    if 'SYS_ADMIN' in rights['capabilities']['add'] or rights.get('privileged') is not False:
        yield 'the container is privileged'
    if rights.get('allowPrivilegeEscalation') is not (settings(unit, 'NoNewPrivileges') != ['yes']):
        yield 'new privileges'
    if rights.get('readOnlyRootFilesystem') is not (settings(unit, 'ProtectSystem') == ['strict']):
        yield 'the root file system'
    if (rights.get('seccompProfile') or {}).get('type') != 'RuntimeDefault':
        yield 'no filter of system calls'
    if pod.get('hostPID') is not True:
        yield 'not in the pid namespace of the host'
    if pod.get('hostNetwork') or pod.get('hostIPC') or any(p.get('hostPort') for p in container.get('ports', [])):
        yield 'namespaces of the host that are not needed'
    if pod.get('automountServiceAccountToken') is not False:
        yield 'a token of the API server'

    # Its limits.
    limits = container['resources']['limits']
    if [bytes_of(limits['memory'])] != [bytes_of(v) for v in settings(unit, 'MemoryMax')]:
        yield 'the limit of memory is not that of the unit'
    if 'cpu' not in limits or not {'cpu', 'memory'} <= container['resources']['requests'].keys():
        yield 'limits and requests'
    if ['%ds' % pod['terminationGracePeriodSeconds']] != settings(unit, 'TimeoutStopSec'):
        yield 'the time to end'

    # Its files: of the host it sees its own directory, and cgroups without writing.
    mounts = {m['name']: m for m in container['volumeMounts']}
    volumes = {v['name']: v for v in pod['volumes']}
    if mounts.keys() != volumes.keys():
        yield 'volumes and mounts: %s' % sorted(mounts.keys() ^ volumes.keys())
        return
    state = '/var/lib/' + settings(unit, 'StateDirectory')[0]
    for name, volume in volumes.items():
        path = volume.get('hostPath', {}).get('path')
        if path and (path, mounts[name]['mountPath']) != (state, state) and not (mounts[name].get('readOnly') and path == mounts[name]['mountPath'] == '/sys/fs/cgroup'):
            yield 'the host\'s %s' % path
    writable = {m['mountPath'] for m in mounts.values() if not m.get('readOnly')}
    if writable != set(re.findall(r'"(/[^"]*)"', re.search(r'^VOLUME (.*)', dockerfile, re.M)[1])):
        yield 'writable are %s' % sorted(writable)
    where = mounts['settings']['mountPath']
    if list(config['data']) != ['offwind.conf'] or volumes['settings']['configMap']['name'] != config['metadata']['name'] or not os.path.isfile(stage + where + '/offwind.conf'):
        yield 'the settings'
    path = sys.argv[1] + '/settings'
    open(path, 'w').write(config['data'].get('offwind.conf', 'absent'))
    checked = subprocess.run([program, 'daemon', '--config', path, '--db', sys.argv[1] + '/store.db', '--check-config'], capture_output=True, text=True)
    if checked.returncode:
        yield 'its settings are wrong: ' + checked.stderr

    # What it runs.
    image = re.search(r'^ENTRYPOINT \["(.*)"\]', dockerfile, re.M)[1]
    if settings(unit, 'ExecStart') != [' '.join(['/usr/bin/' + image] + container['args'])]:
        yield 'it runs another command than the unit'
    if not container['image'].endswith(':' + re.search(r'^VERSION := (.*)', read('Makefile'), re.M)[1]):
        yield 'the version of the image'
    for probe, request in ('startup', '/healthz'), ('liveness', '/healthz'), ('readiness', '/readyz'):
        command = container.get(probe + 'Probe', {}).get('exec', {}).get('command', ['', ''])
        if command != ['offwind-probe', request] or '`GET %s`' % request not in pages['docs/api.md']:
            yield 'the %s probe: %s' % (probe, command)


def check_dockerfile(text, loaded, linked):
    stages = re.split(r'^FROM ', re.sub(r'\\\n', '', text), flags=re.M)[1:]
    if [s.split()[0] for s in stages] != ['debian:12-slim'] * 2:
        yield 'the bases'
        return
    installed = [sorted(p for line in re.findall(r'apt-get install ([^&\n]*)', s) for p in line.split() if not p.startswith('-')) for s in stages]
    # What else building needs is what the Makefile installs.
    if installed[0] != ['ca-certificates', 'make'] or not re.search(r'^RUN make deps\b', stages[0], re.M):
        yield 'the first stage installs %s' % installed[0]
    if installed[1] != sorted(loaded):
        yield 'the last stage installs %s, the program loads %s' % (installed[1], sorted(loaded))
    if set(linked) - {'libc6'}:
        yield 'the program is linked with libraries of %s' % linked
    copied = re.findall(r'^COPY --from=build (\S+) (\S+)$', stages[1], re.M)
    for source, target in copied:
        there = stage + source[len('/stage'):] if source.startswith('/stage/') else source[len('/src/'):]
        if not os.path.exists(there):
            yield 'no %s is installed' % source
    targets = [t for _, t in copied]
    if '/usr/bin' not in targets or '/usr/bin/offwind-probe' not in targets or not os.access('deploy/probe.sh', os.X_OK):
        yield 'no program'
    if not re.search(r'^HEALTHCHECK CMD \["offwind-probe", "/healthz"\]$', stages[1], re.M) or not re.search(r'^CMD \["daemon"\]$', stages[1], re.M):
        yield 'the commands'
    if re.search(r'^USER ', stages[1], re.M):
        yield 'a user who cannot record'


def check_store(documents, daemon):
    by_kind = {d['kind']: d for d in documents}
    if sorted(by_kind) != ['ConfigMap', 'Service', 'StatefulSet'] or len(documents) != 3:
        yield 'the kinds of the store are %s' % sorted(by_kind)
        return
    config, service, servers = by_kind['ConfigMap'], by_kind['Service'], by_kind['StatefulSet']
    if any(d['metadata']['namespace'] != 'offwind' for d in documents):
        yield 'namespaces of the store'
    labels = servers['spec']['template']['metadata']['labels']
    if servers['spec']['selector']['matchLabels'] != labels or service['spec']['selector'] != labels:
        yield 'the selectors of the store do not select its pods'
    # Pods have names only below a service without an address of its own.
    name = service['metadata']['name']
    if service['spec'].get('clusterIP') != 'None' or servers['spec']['serviceName'] != name:
        yield 'pods of the store have no names'
    pods = ['%s-%d.%s' % (servers['metadata']['name'], i, name) for i in range(servers['spec']['replicas'])]
    container = servers['spec']['template']['spec']['containers'][0]
    ports = {p['name']: p['port'] for p in service['spec']['ports']}
    if ports != {p['name']: p['containerPort'] for p in container['ports']}:
        yield 'ports of the store'
    fleet = xml.etree.ElementTree.fromstring(config['data']['fleet.xml']).find('remote_servers/fleet')
    if [(r.findtext('host'), r.findtext('port')) for r in fleet.findall('shard/replica')] != [(p, str(ports['native'])) for p in pods]:
        yield 'the shards are not the pods'
    urls = re.search(r'^ *# url = (\S+)$', daemon, re.M)
    if not urls or urls[1].split(',') != ['http://%s.offwind.svc:%d' % (p, ports['http']) for p in pods]:
        yield 'hosts send to other servers'
    mounts = {m['name']: m for m in container['volumeMounts']}
    volumes = {v['name']: v['configMap']['name'] for v in servers['spec']['template']['spec']['volumes']}
    if volumes != {'settings': config['metadata']['name']} or mounts['settings']['subPath'] not in config['data']:
        yield 'the settings of the store'
    if [c['metadata']['name'] for c in servers['spec']['volumeClaimTemplates']] != ['data'] or mounts['data']['mountPath'] != '/var/lib/clickhouse':
        yield 'the store has no disk of its own'


documents = list(yaml.safe_load_all(read('deploy/kubernetes.yaml')))
store = list(yaml.safe_load_all(read('deploy/kubernetes-clickhouse.yaml')))
unit, dockerfile = read('deploy/offwind.service'), read('deploy/Dockerfile')
pages = {p: read(p) for p in ('docs/security.md', 'docs/api.md')}
faults = list(check_manifest(documents, unit, dockerfile, pages)) + list(check_dockerfile(dockerfile, loaded, linked)) + list(check_store(store, read('deploy/kubernetes.yaml')))

# Each of these changes is a new fault.
def changed(change):
    other = copy.deepcopy(documents)
    pod = [d for d in other if d['kind'] == 'DaemonSet'][0]['spec']['template']['spec']
    change(pod, pod['containers'][0], pod['containers'][0]['securityContext'])
    return list(check_manifest(other, unit, dockerfile, pages))

for name, change in {
        'a capability more': lambda pod, c, r: r['capabilities']['add'].append('SYS_ADMIN'),
        'a capability less': lambda pod, c, r: r['capabilities']['add'].remove('KILL'),
        'privileged': lambda pod, c, r: r.update(privileged=True),
        'no word about privileged': lambda pod, c, r: r.pop('privileged'),
        'new privileges': lambda pod, c, r: r.update(allowPrivilegeEscalation=True),
        'capabilities that stay': lambda pod, c, r: r['capabilities'].update(drop=[]),
        'the network of the host': lambda pod, c, r: pod.update(hostNetwork=True),
        'pids of its own': lambda pod, c, r: pod.pop('hostPID'),
        'all files of the host': lambda pod, c, r: pod['volumes'][1]['hostPath'].update(path='/'),
        'cgroups that it can write': lambda pod, c, r: c['volumeMounts'][3].pop('readOnly'),
        'no limit': lambda pod, c, r: c['resources']['limits'].pop('cpu'),
        'more memory': lambda pod, c, r: c['resources']['limits'].update(memory='2Gi'),
        'another command': lambda pod, c, r: c.update(args=['record']),
        'another request': lambda pod, c, r: c['readinessProbe']['exec'].update(command=['offwind-probe', '/ready'])}.items():
    if not set(changed(change)) - set(faults):
        faults.append('the check does not see: ' + name)
for name, change in {
        'a shard that no other knows': lambda s: s['StatefulSet']['spec'].update(replicas=3),
        'pods without names': lambda s: s['Service']['spec'].pop('clusterIP'),
        'another port': lambda s: s['Service']['spec']['ports'][0].update(port=8124),
        'other pods': lambda s: s['Service']['spec'].update(selector={'app.kubernetes.io/name': 'x'}),
        'settings that are not there': lambda s: s['ConfigMap']['metadata'].update(name='x')}.items():
    other = copy.deepcopy(store)
    change({d['kind']: d for d in other})
    if not set(check_store(other, read('deploy/kubernetes.yaml'))) - set(faults):
        faults.append('the check of the store does not see: ' + name)
if not set(check_manifest(documents, unit.replace(' CAP_KILL', ''), dockerfile, pages)) - set(faults):
    faults.append('the check does not see that the unit has a capability less')
for old, new in ('libmicrohttpd12', 'libmicrohttpd12 curl'), ('libdebuginfod1 ', ''), ('make deps', 'make all'), ('/stage/usr/bin', '/stage/usr/sbin'), ('CMD ["daemon"]', 'USER nobody\nCMD ["daemon"]'):
    if dockerfile.count(old) < 1 or not set(check_dockerfile(dockerfile.replace(old, new), loaded, linked)) - set(faults):
        faults.append('the check does not see %s in place of %s' % (new, old))
print('\n'.join(faults) if faults else 'the manifests and the image agree with the unit and the Makefile')
sys.exit(bool(faults))
P
