// tests/diff/parquet.mjs: compares Parquet files, as DuckDB reads them, with the JSON lines of the same profiles.
//   usage: parquet.mjs NODE_MODULES FILE.parquet…       FILE.jsonl has the samples
import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { resolve } from 'node:path';

const [modules, ...files] = process.argv.slice(2);
const { DuckDBInstance } = createRequire(resolve(modules, 'x.js'))('@duckdb/node-api');
const db = await (await DuckDBInstance.create(':memory:')).connect();
const ask = async sql => (await db.runAndReadAll(sql)).getRowObjectsJson();
let failures = 0;
const check = (ok, what) => { if (!ok) { console.log(what); failures++; } };

// What both say of a sample, as one text. Numbers are compared as texts: JSON lines have integers beyond 2^53.
const exact = text => JSON.parse(text.replace(/:(-?\d+)([,}])/g, ':"$1"$2').replace(/:(-?\d+)([,}])/g, ':"$1"$2'));
const fields = ['function', 'file', 'line', 'module', 'build_id', 'address', 'inlined'];
const frame = f => fields.map(k => `${f[k] ?? ''}`).join('\t');
const sample = (values, labels, frames) => JSON.stringify([values, labels.map(l => l.join('\t')).sort(), frames.map(frame)]);

for (const file of files) {
	const lines = readFileSync(file.replace(/parquet$/, 'jsonl'), 'utf8').split('\n').filter(Boolean);
	const [{ n }] = await ask(`SELECT count(*) AS n FROM '${file}'`);
	const columns = (await ask(`DESCRIBE SELECT * FROM '${file}'`)).map(c => [c.column_name, c.column_type]);
	const meta = Object.fromEntries((await ask(`SELECT key::VARCHAR AS k, value::VARCHAR AS v FROM parquet_kv_metadata('${file}')`)).map(r => [r.k, r.v]));
	const values = columns.map(c => c[0]).filter(c => !['time', 'labels', 'stack'].includes(c));
	check(columns[0][0] === 'time' && columns[0][1].startsWith('TIMESTAMP'), `${file}: time: ${columns[0]}`);
	check(columns.at(-2)[1] === 'MAP(VARCHAR, VARCHAR)', `${file}: labels: ${columns.at(-2)}`);
	check(values.length === meta.sample_types.split(',').length, `${file}: ${values} are not ${meta.sample_types}`);
	// Formats for people leave out what has no value of the default type.
	const kept = values[meta.sample_types.split(',').map(t => t.split(':')[0]).indexOf(meta.default_type)];
	const want = new Map(), got = new Map();
	const count = (map, key) => map.set(key, (map.get(key) ?? 0) + 1);
	for (const line of lines) {
		const s = exact(line);
		count(want, sample(Object.values(s.values).map(String), Object.entries(s.labels ?? {}).filter(l => l[0] !== 'end_timestamp_ns'),
			s.frames.map(f => ({ ...f, address: f.address ?? '', inlined: f.inlined ?? false }))));
	}
	const reader = await db.stream(`SELECT * REPLACE (epoch_ns(time) AS time) FROM '${file}' WHERE "${kept}" <> 0`);
	const times = new Map();
	let rows = 0;
	for await (const part of reader.yieldRowObjectJson()) {
		for (const r of part) {
			rows++;
			count(times, r.time === null ? 'none' : `${BigInt(r.time) / 1000n}`);
			count(got, sample(values.map(v => `${r[v]}`), r.labels.map(l => [l.key, l.value]),
				r.stack.map(f => ({ ...f, address: f.address === null ? '' : `0x${BigInt(f.address).toString(16)}` }))));
		}
	}
	const other = [...want].filter(([k, v]) => got.get(k) !== v), more = [...got].filter(([k, v]) => want.get(k) !== v);
	check(rows === lines.length && !other.length && !more.length,
		`${file}: ${rows} of ${n} rows, ${lines.length} lines; expected ${other[0]?.[0].slice(0, 400)}, got ${more[0]?.[0].slice(0, 400)}`);
	const wantTimes = new Map();
	for (const line of lines) {
		const time = exact(line).labels?.end_timestamp_ns;
		// DuckDB keeps microseconds of a time with a time zone.
		count(wantTimes, time || meta.time_ns !== '0' ? `${BigInt(time ?? meta.time_ns) / 1000n}` : 'none');
	}
	check([...wantTimes].every(([k, v]) => times.get(k) === v), `${file}: times: ${[...times].slice(0, 3)} not ${[...wantTimes].slice(0, 3)}`);
	const groups = await ask(`SELECT max(row_group_id) + 1 AS n, any_value(compression) AS packed FROM parquet_metadata('${file}')`);
	console.log(`${file.split('/').at(-1)}: ${rows} rows in ${groups[0].n} groups, ${groups[0].packed}`);
	if (/rows/.test(file)) check(groups[0].n > 1, `${file}: one group of rows`);
}
const twice = (await ask(`DESCRIBE SELECT * FROM read_parquet('${resolve(files[0], '../twice')}')`)).map(c => c.column_name).join();
check(twice === 'time,samples,cpu,time_x_3,cpu_x_4,labels,stack', `types of one name: ${twice}`);
process.exit(failures ? 1 : 0);
