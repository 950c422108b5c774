// A receiver for tests of what the daemon sends: it takes what the protocol's published rules allow, refuses
// the rest, and rebuilds folded stacks. It is written apart from the senders.
//   usage: node receiver.mjs NODE_MODULES otlp [KEY CERTIFICATE]      prints "PORT N" when it listens; with a certificate, it speaks TLS
// Asked by the test at /control: ?behave=WORD sets how it behaves from now on; ?forget forgets what was received; ?folded=TYPE and ?stats print what was received.
import { createRequire } from 'node:module';
import fs from 'node:fs';
import http from 'node:http';
import https from 'node:https';
import path from 'node:path';
import zlib from 'node:zlib';
import { Refusal, readRequest } from './otlp.mjs';

const [modules, kind, key, certificate] = process.argv.slice(2);
const require = createRequire(path.resolve(modules, 'x.js'));
const protobuf = require('protobufjs');
const here = path.dirname(new URL(import.meta.url).pathname);
const types = new protobuf.Root();
types.loadSync(path.join(here, 'otlp.proto'));

let behave = 'ok';
const stats = { requests: 0, accepted: 0, refused: [], again: 0, samples: 0, bytes: 0, services: {}, resources: {}, attributes: {} };
const folded = new Map(), ids = new Set(); // folded: lines by sample type
let from = null, to = null;

// Take over samples that were accepted.
function accept({ samples, ids: all }) {
	const again = all.filter(id => ids.has(id)).length;
	if (again) {
		// A window may come twice: the id says so.
		stats.again++;
		return;
	}
	all.forEach(id => ids.add(id));
	stats.accepted++;
	for (const s of samples) {
		if (from === null || s.start < from) from = s.start;
		if (to === null || s.end > to) to = s.end;
		for (const k of Object.keys(s.resource)) stats.resources[k] = s.resource[k];
		for (const k of Object.keys(s.attributes)) stats.attributes[k] = s.attributes[k];
		if (s.type === 'samples') {
			const service = s.resource['service.name'];
			stats.services[service] = (stats.services[service] ?? 0) + Number(s.value);
			stats.samples += Number(s.value);
		}
		const clean = t => t.replaceAll(';', ':') || '-';
		const line = [clean(s.thread), ...s.frames.map(([name, suffix]) => clean(name) + suffix)].join(';');
		if (!folded.has(s.type)) folded.set(s.type, new Map());
		folded.get(s.type).set(line, (folded.get(s.type).get(line) ?? 0n) + s.value);
	}
}

function refuse(e) {
	stats.refused.push(e.message);
	console.error('refused:', e.message);
}

// ---- OTLP/HTTP ------------------------------------------------------------------------------

function otlpHttp(request, body) {
	const Response = types.lookupType('opentelemetry.ExportProfilesServiceResponse'), Status = types.lookupType('opentelemetry.Status');
	const reply = (status, type, message) => ({ status, headers: { 'Content-Type': 'application/x-protobuf' }, body: Buffer.from(type.encode(message).finish()) });
	try {
		if (request.method !== 'POST' || request.url !== '/v1development/profiles') return { status: 404, headers: {}, body: '' };
		if (request.headers['content-type'] !== 'application/x-protobuf') throw new Refusal(`Content-Type ${request.headers['content-type']}`);
		if ((request.headers['otlp-profiles-development-version'] ?? '1') !== '1') throw new Refusal('unsupported otlp-profiles-development-version');
		if (request.headers['content-encoding'] === 'gzip') body = zlib.gunzipSync(body);
		else if (request.headers['content-encoding']) throw new Refusal('Content-Encoding');
		accept(readRequest(types, body));
		return reply(200, Response, {});
	} catch (e) {
		if (!(e instanceof Refusal)) console.error(e);
		refuse(e);
		return reply(400, Status, { code: 3, message: e.message });
	}
}

// ---- how it behaves ---------------------------------------------------------------------------

const behaviours = {
	busy: r => r.writeHead(503, { 'Retry-After': '1' }).end('later'),
	forbidden: r => r.writeHead(403).end(),
	broken: r => r.writeHead(500).end('oops'),
	never: r => r.writeHead(400, { 'Content-Type': 'text/plain' }).end('\x1b[31mnobody wants this'),
	hang: () => {},
	drip: r => {
		r.writeHead(200, { 'Content-Type': 'application/x-protobuf', 'Content-Length': 1000 });
		const timer = setInterval(() => r.destroyed ? clearInterval(timer) : r.write('\n'), 300);
	},
	page: r => r.writeHead(200, { 'Content-Type': 'text/html' }).end('<html>log in</html>'),
	endless: r => {
		r.writeHead(200, { 'Content-Type': 'application/x-protobuf' });
		const more = () => { while (!r.destroyed && r.write(Buffer.alloc(65536))); };
		r.on('drain', more);
		more();
	},
	headers: r => r.writeHead(200, { 'X-A': 'a'.repeat(200000) }).end(),
	away: r => r.destroy(),
	redirect: r => r.writeHead(302, { Location: '/elsewhere' }).end(),
	rejects: r => r.writeHead(200, { 'Content-Type': 'application/x-protobuf' }).end(Buffer.from(types.lookupType('opentelemetry.ExportProfilesServiceResponse')
		.encode({ partialSuccess: { rejectedProfiles: 9007199254740991, errorMessage: 'too \x07 many' } }).finish())),
};

function control(url, response) {
	const q = new URL(url, 'http://x').searchParams;
	if (q.has('behave')) behave = q.get('behave');
	if (q.has('forget')) {
		folded.clear();
		ids.clear();
		from = to = null;
	}
	if (q.has('folded')) response.write([`# ${from} ${to}`, ...[...folded.get(q.get('folded')) ?? []].map(([line, n]) => `${line} ${n}`)].join('\n') + '\n');
	if (q.has('stats')) response.write(JSON.stringify({ ...stats, from: String(from), to: String(to) }) + '\n');
	response.end();
}

const tls = key ? { key: fs.readFileSync(key), cert: fs.readFileSync(certificate) } : {};
const server = (key ? https : http).createServer({ maxHeaderSize: 1 << 20, ...tls }, (request, response) => {
	const chunks = [];
	if (request.url.startsWith('/control')) return control(request.url, response);
	request.on('data', c => chunks.push(c));
	request.on('end', () => {
		const body = Buffer.concat(chunks);
		stats.requests++;
		stats.bytes += body.length;
		stats.headers = request.headers;
		if (behaviours[behave]) return behaviours[behave](response);
		const r = otlpHttp(request, body);
		response.writeHead(r.status, r.headers).end(r.body);
	});
});
server.listen(0, '127.0.0.1', () => console.log(`PORT ${server.address().port}`));
