// Receives what Pyroscope and Parca take, pprof files with labels beside them, as strictly as these do: their
// validation of labels and profiles, and the limits that a tenant of Pyroscope has by default.
import zlib from 'node:zlib';
import { Refusal, demand } from './otlp.mjs';

export const pyroscope = { bytes: 4 << 20, samples: 16000, depth: 1000, sampleLabels: 100, age: 3600, ahead: 600, names: 30, nameLength: 1024, valueLength: 2048 };
// The mark of interpreted code in folded stacks, from the name of its mapping; "": it is other code.
const markOf = file => (/^\[(cpython|jvm|perl|php|ruby|v8)\]$/.test(file) ? `_${file}` : '');
const labelName = /^[a-zA-Z_][a-zA-Z0-9_]*$/;

function checkLabels(labels) {
	const names = labels.map(l => l.name), all = Object.fromEntries(labels.map(l => [l.name, l.value]));
	demand(labels.length > 0 && new Set(names).size === names.length, 'a label is there twice, or there is none');
	demand(names.every(n => labelName.test(n)), `a name of a label is not valid: ${names}`);
	demand(names.every((n, i) => !i || names[i - 1] < n), 'labels are not sorted');
	demand(labels.every(l => l.value), 'an empty label');
	demand(all.__name__, 'no __name__');
	return all;
}

// Check a pprof profile, and return its samples as otlp.mjs does.
export function readProfile(types, packed, limits) {
	demand(packed[0] === 0x1f && packed[1] === 0x8b, 'the profile is not compressed');
	const bytes = zlib.gunzipSync(packed), Profile = types.lookupType('push.Profile'), p = Profile.decode(bytes);
	demand(!limits || bytes.length <= limits.bytes, `a profile of ${bytes.length} bytes`);
	demand(!limits || p.sample.length <= limits.samples, `a profile of ${p.sample.length} samples`);
	demand(p.stringTable.length > 0 && p.stringTable[0] === '', 'string_table[0] is not ""');
	const text = i => {
		demand(Number(i) >= 0 && Number(i) < p.stringTable.length, `text ${i} is not in the table`);
		return p.stringTable[Number(i)];
	};
	const known = (list, id, what) => {
		demand(Number(id) > 0 && Number(id) <= list.length, `${what} ${id} is not there`);
		return list[Number(id) - 1];
	};
	for (const [what, list] of [['mapping', p.mapping], ['location', p.location], ['function', p.function]])
		list.forEach((x, i) => demand(Number(x.id) === i + 1, `${what} ${i} has the id ${x.id}`));
	demand(p.sampleType.length > 0 && p.sampleType.every(t => text(t.type) && text(t.unit)), 'sample types');
	demand(p.periodType && text(p.periodType.type) === 'cpu' && Number(p.period) > 0, 'no period');
	const locations = p.location.map(l => {
		const m = Number(l.mappingId) ? known(p.mapping, l.mappingId, 'mapping') : null, file = m ? text(m.filename) : '';
		demand(m || l.line.length, 'a location without mapping and lines');
		demand(!m || (BigInt(m.memoryStart) <= BigInt(l.address) && BigInt(l.address) < BigInt(m.memoryLimit)), 'an address outside its mapping');
		if (m) text(m.buildId);
		const kind = file.startsWith('[kernel') ? '_[k]' : markOf(file);
		const frames = l.line.map((line, i) => {
			const f = known(p.function, line.functionId, 'function');
			demand(text(f.name), 'a function without name');
			text(f.systemName);
			text(f.filename);
			return [text(f.name), kind || (i < l.line.length - 1 ? '_[i]' : '')];
		});
		return frames.length ? frames.reverse() : [[`[${file.replace(/^\[(.*)\]$/, '$1').split('/').pop()}]`, kind]];
	});
	return p.sample.map(s => {
		demand(s.value.length === p.sampleType.length, 'values and sample types differ in number');
		demand(!limits || s.locationId.length <= limits.depth, `a stack of ${s.locationId.length} frames`);
		demand(!limits || s.label.length <= limits.sampleLabels, 'labels of a sample');
		const attributes = {};
		for (const l of s.label) {
			demand(text(l.key) && !(text(l.key) in attributes), 'a label without key, or twice');
			attributes[text(l.key)] = Number(l.str) ? text(l.str) : Number(l.num);
			text(l.numUnit);
		}
		const frames = s.locationId.map(id => (known(p.location, id, 'location'), locations[Number(id) - 1])).reverse().flat();
		return {
			attributes, frames,
			start: BigInt(p.timeNanos), end: BigInt(p.timeNanos) + BigInt(p.durationNanos),
			values: s.value.map((v, i) => ({ type: text(p.sampleType[i].type), unit: text(p.sampleType[i].unit), value: BigInt(v) })),
		};
	});
}

function samplesOf(all, resource, thread) {
	return all.flatMap(s => s.values.filter(v => v.value !== 0n).map(v => ({ ...v, start: s.start, end: s.end, attributes: s.attributes, frames: s.frames, resource, thread: thread(s) })));
}

export function readPush(types, bytes) {
	const request = types.lookupType('push.PushRequest').decode(bytes), samples = [], ids = [];
	demand(request.series.length > 0, 'no series');
	for (const series of request.series) {
		const labels = checkLabels(series.labels);
		demand(labels.service_name, 'no service_name');
		demand(series.labels.length <= pyroscope.names && series.labels.every(l => l.name.length <= pyroscope.nameLength && l.value.length <= pyroscope.valueLength), 'too many or too long labels');
		demand(series.samples.length === 1, 'profiles of a series');
		demand(/^[0-9a-f]{8}-[0-9a-f]{4}-8[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/.test(series.samples[0].ID), `the id ${series.samples[0].ID}`);
		ids.push(series.samples[0].ID);
		const all = readProfile(types, series.samples[0].rawProfile, pyroscope), now = Date.now() / 1000;
		for (const s of all) demand(Number(s.end / 1000000000n) > now - pyroscope.age && Number(s.start / 1000000000n) < now + pyroscope.ahead, 'the profile is too old or too new');
		samples.push(...samplesOf(all, labels, () => null));
	}
	return { samples, ids };
}

export function readWriteRaw(types, request) {
	const samples = [];
	demand(request.normalized, 'addresses that are not normalized');
	demand(request.series.length > 0, 'no series');
	for (const series of request.series) {
		const labels = checkLabels(series.labels?.labels ?? []);
		demand(series.samples.length > 0, 'a series without profile');
		for (const s of series.samples) samples.push(...samplesOf(readProfile(types, s.rawProfile), labels, x => x.attributes.thread ?? x.attributes.comm ?? ''));
	}
	return { samples, ids: [] };
}
