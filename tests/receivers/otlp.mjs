// Receives OTLP profiles as strictly as the published rules allow: what the comments of profiles.proto
// (opentelemetry-proto 1.11) and the data format's specification demand, "should" taken as "must".

const frameTypes = ['beam', 'cpython', 'dotnet', 'go', 'jvm', 'kernel', 'luajit', 'native', 'perl', 'php', 'ruby', 'rust', 'v8js'];
const buildIds = ['process.executable.build_id.gnu', 'process.executable.build_id.go', 'process.executable.build_id.htlhash'];

export class Refusal extends Error {}
export function demand(ok, what) {
	if (!ok) throw new Refusal(what);
}

// Return whether a message has no field that is set, but for bytes that are all 0 of this length.
function isZero(type, message, lengths = {}) {
	return type.fieldsArray.every(f => {
		const v = message[f.name];
		if (f.repeated) return !v || v.length === 0;
		if (f.type === 'bytes') return !v || v.length === 0 || (v.length === lengths[f.name] && v.every(b => b === 0));
		return v === null || v === undefined || !Object.hasOwn(message, f.name) || v === '' || String(v) === '0';
	});
}

// Check a request, and return its samples: { type, unit, value, frames: [[text, kind]…] outermost first, thread, resource },
// and the hashes of files, by path.
export function readRequest(types, bytes) {
	const Request = types.lookupType('opentelemetry.ExportProfilesServiceRequest');
	let request;
	try {
		request = Request.decode(bytes);
	} catch (e) {
		throw new Refusal(`no ExportProfilesServiceRequest: ${e.message}`);
	}
	demand(Buffer.compare(Buffer.from(Request.encode(request).finish()), Buffer.from(bytes)) === 0, 'fields that are not known, or not as every writer has them');
	const d = request.dictionary;
	demand(d, 'no dictionary');
	const tables = { mapping: d.mappingTable, location: d.locationTable, function: d.functionTable, link: d.linkTable, attribute: d.attributeTable, stack: d.stackTable };
	const names = { mapping: 'Mapping', location: 'Location', function: 'Function', link: 'Link', attribute: 'KeyValueAndUnit', stack: 'Stack' };
	const used = {};
	for (const [name, table] of Object.entries(tables)) {
		const type = types.lookupType('opentelemetry.' + names[name]);
		demand(table.length > 0 && isZero(type, table[0], { traceId: 16, spanId: 8 }), `${name}_table[0] is not the zero value`);
		demand(new Set(table.map(m => Buffer.from(type.encode(m).finish()).toString('base64'))).size === table.length, `${name}_table has an element twice`);
		used[name] = new Set([0]);
	}
	demand(d.stringTable.length > 0 && d.stringTable[0] === '', 'string_table[0] is not ""');
	demand(new Set(d.stringTable).size === d.stringTable.length, 'string_table has a text twice');
	used.string = new Set([0]);
	tables.string = d.stringTable;

	const at = (name, index) => {
		demand(Number.isInteger(index) && index >= 0 && index < tables[name].length, `${name} ${index} is not in the table of ${tables[name].length}`);
		used[name].add(index);
		return tables[name][index];
	};
	const attributes = (indices, where) => {
		const all = {};
		for (const i of indices) {
			demand(i > 0, `${where}: attribute 0`);
			const a = at('attribute', i), key = at('string', a.keyStrindex);
			at('string', a.unitStrindex);
			demand(key && !(key in all), `${where}: attribute '${key}' is empty or twice`);
			demand(a.value && a.value.value, `${where}: '${key}' has no value`);
			all[key] = a.value.value === 'intValue' ? Number(a.value.intValue) : a.value.stringValue;
		}
		return all;
	};
	const mappings = new Map(), locations = new Map();
	const mapping = index => {
		if (index === 0) return null;
		if (!mappings.has(index)) {
			const m = at('mapping', index), all = attributes(m.attributeIndices, 'mapping');
			const hash = all['process.executable.build_id.htlhash'];
			demand(buildIds.some(k => all[k]), 'a mapping without build-id');
			demand(hash === undefined || /^[0-9a-f]{32}$/.test(hash), `the htlhash ${hash}`);
			if (hash) hashes[at('string', m.filenameStrindex)] = hash;
			demand(BigInt(m.memoryStart) < BigInt(m.memoryLimit), 'an empty mapping');
			mappings.set(index, { file: at('string', m.filenameStrindex), start: BigInt(m.memoryStart), limit: BigInt(m.memoryLimit) });
		}
		return mappings.get(index);
	};
	// The frames of a location, the outermost first.
	const location = index => {
		if (!locations.has(index)) {
			demand(index > 0, 'location 0 in a stack');
			const l = at('location', index), m = mapping(l.mappingIndex), all = attributes(l.attributeIndices, 'location');
			demand(frameTypes.includes(all['profile.frame.type']), `profile.frame.type is '${all['profile.frame.type']}'`);
			demand(!m || (m.start <= BigInt(l.address) && BigInt(l.address) < m.limit), 'an address outside its mapping');
			const kind = all['profile.frame.type'] === 'kernel' ? '_[k]' : '';
			const frames = l.lines.map((line, i) => {
				const f = at('function', line.functionIndex), name = at('string', f.nameStrindex);
				demand(line.functionIndex > 0 && (name || at('string', f.systemNameStrindex) || at('string', f.filenameStrindex)), 'a function without names');
				at('string', f.systemNameStrindex);
				at('string', f.filenameStrindex);
				demand(BigInt(line.line) >= 0n && BigInt(f.startLine) >= 0n, 'a line below 0');
				return [name, kind || (i < l.lines.length - 1 ? '_[i]' : '')];
			});
			demand(frames.length || m, 'a frame without function and mapping');
			locations.set(index, frames.length ? frames.reverse() : [[`[${m.file.replace(/^\[(.*)\]$/, '$1').split('/').pop()}]`, kind]]);
		}
		return locations.get(index);
	};

	const samples = [], ids = [], hashes = {};
	demand(request.resourceProfiles.length > 0, 'no resource');
	for (const r of request.resourceProfiles) {
		demand(r.resource, 'no resource of profiles');
		const keys = r.resource.attributes.map(a => a.key), resource = {};
		demand(new Set(keys).size === keys.length && keys.every(k => k), 'a resource has an attribute twice');
		for (const a of r.resource.attributes) resource[a.key] = a.value.value === 'intValue' ? Number(a.value.intValue) : a.value.stringValue;
		demand(resource['service.name'], 'no service.name');
		demand(resource['host.name'], 'no host.name');
		for (const s of r.scopeProfiles) {
			demand(s.scope?.name, 'no scope');
			for (const p of s.profiles) {
				const id = Buffer.from(p.profileId);
				demand(id.length === 16 && id.some(b => b), 'a profile_id that is not valid');
				ids.push(id.toString('hex'));
				demand(p.sampleType, 'no sample_type');
				const type = at('string', p.sampleType.typeStrindex), unit = at('string', p.sampleType.unitStrindex);
				demand(type && unit, 'an empty sample_type');
				demand(BigInt(p.timeUnixNano) > 0n, 'no time');
				demand(p.samples.length > 0, 'a profile without samples');
				const seen = new Set();
				for (const x of p.samples) {
					const all = attributes(x.attributeIndices, 'sample');
					at('link', x.linkIndex);
					demand(x.values.length || x.timestampsUnixNano.length, 'a sample without value and time');
					demand(!x.values.length || !x.timestampsUnixNano.length || x.values.length === x.timestampsUnixNano.length, 'values and times differ in number');
					const [from, to] = [BigInt(p.timeUnixNano), BigInt(p.timeUnixNano) + BigInt(p.durationNano)];
					demand(x.timestampsUnixNano.every(t => BigInt(t) >= from && BigInt(t) <= to), `a time that is not in the profile's`);
					const identity = [x.stackIndex, x.linkIndex, ...[...x.attributeIndices].sort()].join();
					demand(!seen.has(identity), 'two samples are one');
					seen.add(identity);
					const stack = at('stack', x.stackIndex);
					samples.push({
						type, unit, resource, attributes: all,
						start: BigInt(p.timeUnixNano), end: BigInt(p.timeUnixNano) + BigInt(p.durationNano),
						times: x.timestampsUnixNano.length,
						value: x.values.reduce((sum, v) => sum + BigInt(v), 0n),
						thread: all['thread.name'] ?? resource['offwind.comm'] ?? '',
						frames: [...stack.locationIndices].reverse().flatMap(location),
					});
				}
			}
		}
	}
	demand(new Set(ids).size === ids.length, 'a profile_id is twice in a request');
	for (const [name, table] of Object.entries(tables))
		demand(used[name].size === table.length || (name === 'link'), `${table.length - used[name].size} elements of ${name}_table are used by nothing`);
	return { samples, ids, hashes };
}
